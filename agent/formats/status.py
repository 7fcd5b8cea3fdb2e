"""What `pinfold status` shows, as JSON: the state in force and what is not as it should be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.formats.memory_blocks import block_objects
from agent.formats.numa_status import encode_numa
from agent.model.state import Mark, PodRecord, State
from agent.policy.managers import Managers
from agent.policy.observation import Refused
from agent.policy.placement import placements
from agent.policy.qos import pod_qos
from agent.policy.reasons import asked_amounts
from agent.policy.resize_terms import conditions

_NONE: Mapping[str, Mark] = {}


def encode_status(
    state: State,
    managers: Managers,
    refused: Mapping[str, Refused],
    problems: Sequence[str],
    *,
    ready: bool,
    paused: bool = False,
    pods: bool = True,
    misaligned: Mapping[str, Mark] = _NONE,
) -> dict[str, Any]:
    """The whole status. Lists of CPUs are in kernel form, sizes in bytes. problems: one sentence each. pods: those too.

    misaligned: UID -> why the pod's devices are far from its CPUs.
    """
    reserved = managers.cpu.reserved if managers.cpu is not None else state.policy.reserved_cpus
    return {
        "epoch": str(state.epoch),
        "generation": state.generation,
        "ready": ready,
        "paused": paused,
        "problems": list(problems),
        "policy": {
            "cpuManagerPolicy": state.policy.cpu_policy,
            "memoryManagerPolicy": state.policy.memory_policy,
            "topologyManagerPolicy": state.policy.topology_policy,
            "topologyManagerScope": state.policy.topology_scope,
        },
        "cpus": {
            "online": str(managers.machine.topology.all),
            "reserved": str(reserved),
            "shared": str(state.grants.cpu.default),
        },
        "memory": {
            str(node): {
                resource: {"allocatable": table.allocatable, "reserved": table.reserved, "free": table.free}
                for resource, table in numa.memory.items()
            }
            for node, numa in state.grants.memory.machine.items()
        },
        "numa": encode_numa(state, managers),
        "pods": [_pod(record, state, managers, misaligned.get(uid)) for uid, record in state.pods.items()]
        if pods
        else [],
        "refused": [
            {
                "uid": each.pod.uid,
                "namespace": each.pod.namespace,
                "name": each.pod.name,
                "reason": each.reason,
                "message": each.message,
                "hint": each.hint,
                "asked": dict(asked_amounts(managers, each.pod)),
            }
            for each in refused.values()
        ],
    }


def _pod(record: PodRecord, state: State, managers: Managers, misaligned: Mark | None) -> dict[str, Any]:
    pod = record.pod
    bubble = state.grants.cpu.pod_entries.get(pod.uid)
    return {
        "uid": pod.uid,
        "namespace": pod.namespace,
        "name": pod.name,
        "qos": str(pod_qos(pod, pod_level_resources=managers.gates.pod_level_resources)),
        "phase": str(record.phase),
        "cpus": None if bubble is None else str(bubble),
        "memory": block_objects(state.grants.memory.pod_entries.get(pod.uid, ())),
        "resize": str(record.resize.state),
        "resizeMessage": record.resize.message or record.resize.error,
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            for each in conditions(record.resize)
        ],
        "unplaced": record.unplaced.message if record.unplaced else "",
        "degraded": record.degraded.message if record.degraded else "",
        "misaligned": misaligned.message if misaligned else "",
        "containers": [
            {
                "name": placed.container,
                "isolation": str(placed.isolation),
                "cpus": str(placed.cpus),
                "memory": block_objects(placed.memory),
            }
            for placed in placements(state.grants, pod, managers.gates)
        ],
    }
