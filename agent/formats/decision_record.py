"""Decisions of the daemon as `pinfold replay` reads them: kinds `topology` and `admission` (design section 12).

A record holds what one look decided. The first one of a file has the whole state before it (`before`); each later one follows the
one above it (`follows`), so that a decision costs what it is about and not what the node holds. Of a pod only names, kinds and
resources are kept: nothing else decides.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from agent.formats.device_facts import encode_devices
from agent.formats.grants import encode_grants
from agent.formats.memory_blocks import block_objects
from agent.formats.pods import encode_pod
from agent.formats.resource_lists import encode_resources
from agent.model.machine import Machine
from agent.model.pod import Pod
from agent.model.state import Grants, State
from agent.policy.device_placement import DEVICES_AWAITED
from agent.policy.free_hugepages import HUGEPAGES_IN_USE
from agent.policy.managers import ManagerConfig
from agent.policy.new_pods import DUPLICATE_UID, WAITING
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Event
from agent.policy.second import PAUSED, is_second

# what changes no grants, or is replayed as an op; after anything else the next record begins anew
_FOLLOWED = frozenset({Event.ADMITTED, Event.REFUSED, Event.WAITING, Event.TERMINATING, Event.RELEASED, Event.PLACED})
_JUDGED = frozenset({Event.ADMITTED, Event.REFUSED, Event.PLACED})
# refusals that come from outside a decision's input
_OUTSIDE = frozenset({HUGEPAGES_IN_USE, PAUSED, DUPLICATE_UID, WAITING})


def can_follow(decisions: Sequence[Decision]) -> bool:
    """Whether a record of these decisions tells all that has become of the pods and their grants."""
    return all(each.event in _FOLLOWED and each.reason != DEVICES_AWAITED for each in decisions)


def topology_record(machine: Machine) -> dict[str, Any]:
    """The machine; its id is a digest of what it is."""
    content = {
        "cpus": [
            {"id": cpu.id, "core": cpu.core, "socket": cpu.socket, "numa": cpu.numa, "uncore": cpu.uncore}
            for cpu in machine.topology.cpus
        ],
        "numa_memory": {str(node): dict(amounts) for node, amounts in machine.numa_memory.items()},
        "distances": {str(node): list(row) for node, row in machine.distances.items()},
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
    return {"kind": "topology", "id": f"machine-{digest}", "input": content, "want": {}}


def decision_record(
    ident: str,
    machine: str,
    config: ManagerConfig,
    node: NodeCapacity,
    before: State | str,
    after: State,
    decisions: Sequence[Decision],
) -> dict[str, Any] | None:
    """One look as a record of kind `admission`; None where it decided nothing that can be replayed.

    before: the state, or the id of the record that this one follows. after: the state in force since.
    """
    ops: list[dict[str, Any]] = []
    outcomes: list[dict[str, Any]] = []
    for decision in decisions:
        if decision.event is Event.RELEASED:
            ops.append({"op": "remove", "uid": decision.pod.uid})
            outcomes.append({})
        elif decision.event in _JUDGED and decision.reason not in _OUTSIDE:
            ops.append(_admit(decision, after))
            outcomes.append(_outcome(decision, after.grants))
    if not ops:
        return None
    start: dict[str, Any] = {"follows": before} if isinstance(before, str) else {"before": _state(before)}
    return {
        "kind": "admission",
        "id": ident,
        "input": {"topology": machine, "config": encode_config(config), "node": _node(node), **start, "ops": ops},
        "want": {"init": {}, "ops": outcomes},
    }


def _admit(decision: Decision, after: State) -> dict[str, Any]:
    """The op. second: a kubelet has judged the fit. placed: the pod is here already, unplaced. devices: where some are known."""
    record = after.pods.get(decision.pod.uid)
    op: dict[str, Any] = {"op": "admit", "pod": _pod(decision.pod)}
    op["second"] = record is not None and is_second(record.source)
    if decision.event is Event.PLACED:
        op["placed"] = True
    if decision.devices is not None:
        op["devices"] = encode_devices(decision.devices)
    return op


def encode_config(config: ManagerConfig) -> dict[str, Any]:
    """`input.config`, as `agent.replay.node` reads it."""
    return {
        "cpu_policy": config.cpu_policy,
        "cpu_options": dict(config.cpu_options),
        "reserved_cpus": str(config.reserved_cpus),
        "reserved_cpu_millis": config.reserved_cpu_millis,
        "memory_policy": config.memory_policy,
        "reserved_memory": {str(node): dict(amounts) for node, amounts in config.reserved_memory.items()},
        "node_reserved_memory": None if config.node_reserved_memory is None else dict(config.node_reserved_memory),
        "topology_policy": config.topology_policy,
        "topology_scope": config.topology_scope,
        "topology_options": dict(config.topology_options),
        "feature_gates": dict(config.feature_gates),
        "kubelet_version": config.kubelet_version,
        "min_shared_cpus": config.min_shared_cpus,
    }


def _node(node: NodeCapacity) -> dict[str, Any]:
    return {"capacity": encode_resources(node.capacity), "allocatable": encode_resources(node.allocatable)}


def _state(state: State) -> dict[str, Any]:
    return {"grants": encode_grants(state.grants), "pods": [_pod(record.pod) for record in state.pods.values()]}


def _pod(pod: Pod) -> dict[str, object]:
    return encode_pod(pod.as_asked)


def _outcome(decision: Decision, grants: Grants) -> dict[str, Any]:
    if decision.event is Event.REFUSED:
        return {"admitted": False, "reason": decision.reason, "message": decision.message}
    uid = decision.pod.uid
    cpus, memory = grants.cpu.entries.get(uid, {}), grants.memory.entries.get(uid, {})
    bubble = grants.cpu.pod_entries.get(uid)
    containers = [
        {
            "name": container.name,
            "assigned_cpus": str(cpus[container.name]) if container.name in cpus else None,
            "memory": block_objects(memory.get(container.name, ())) or None,
        }
        for container in decision.pod.containers
    ]
    pod = {
        "containers": containers,
        "pod_cpus": None if bubble is None else str(bubble),
        "pod_memory": block_objects(grants.memory.pod_entries.get(uid, ())) or None,
    }
    return {"admitted": True, "pod": pod}
