"""Kind `admission`: pods come and go on one node, and the daemon restarts in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.errors import BadInputError
from agent.formats.device_facts import decode_devices
from agent.formats.grants import decode_grants
from agent.formats.memory_blocks import block_objects
from agent.formats.pods import decode_pod
from agent.model.devices import PodDevices
from agent.model.machine import Machine
from agent.model.numa import node_ids
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import Epoch, Grants, PodRecord, State
from agent.policy.admission import admit
from agent.policy.device_hints import device_hints
from agent.policy.judgement import judge
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.placement import placements
from agent.policy.qos import pod_qos
from agent.policy.removal import container_started, remove
from agent.policy.restore import fresh, refit
from agent.policy.verdict import Verdict
from agent.replay.context import Context, JSONObject
from agent.replay.node import cpu_facts, decode_config, encode_grants, start_or_error

_DOWN = {"admitted": False, "reason": "NotStarted", "message": "the agent did not start with this configuration"}


@dataclass(slots=True)
class _Node:
    """One scenario in progress. down: the last start was refused. pods: running, in admission order. fit: what the node has, None
    where that is not judged.
    """

    machine: Machine
    config: dict[str, Any]
    managers: Managers
    grants: Grants
    down: bool = False
    pods: dict[str, Pod] = field(default_factory=dict)
    fit: NodeCapacity | None = None


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`init` and one outcome per op. A configuration that does not start at all gives `error` and no outcomes.

    Records of the daemon (`agent.formats.decision_record`) begin with `before`, the state of a node in use, or where the record
    named by `follows` ended.
    """
    if "follows" in record_input:
        return _follow(record_input, context)
    machine = context.machine(record_input["topology"])
    config = dict(record_input["config"])
    managers, error = start_or_error(machine, decode_config(config))
    if managers is None:
        return {"init": error, "ops": [{} for _ in record_input["ops"]], **error}
    node = _Node(machine, config, managers, fresh(managers))
    if "before" in record_input:
        _begin(node, record_input)
        context.last = (context.current, node)
    init = {**cpu_facts(managers), "state": encode_grants(node.grants)}
    return {"init": init, "ops": [_op(node, op) for op in record_input["ops"]]}


def _begin(node: _Node, record_input: JSONObject) -> None:
    before, amounts = record_input["before"], record_input["node"]
    node.grants = decode_grants(before["grants"]["cpu"], before["grants"]["memory"])
    node.pods = {pod.uid: pod for pod in map(decode_pod, before["pods"])}
    node.fit = NodeCapacity(
        *({name: Quantity.parse(text) for name, text in amounts[key].items()} for key in ("capacity", "allocatable"))
    )


def _follow(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    if context.last is None or context.last[0] != record_input["follows"]:
        raise BadInputError(f"the record before this one is not {record_input['follows']!r}, which it follows")
    node: _Node = context.last[1]
    context.last = (context.current, node)
    return {"init": {}, "ops": [_op(node, op) for op in record_input["ops"]]}


def _op(node: _Node, op: JSONObject) -> dict[str, Any]:
    if op["op"] == "restart":
        return _restart(node, op)
    if node.down and op["op"] == "admit":
        return dict(_DOWN)
    match op["op"]:
        case "admit":
            # as recorded: the kubelet sees pods that an API server has given their defaults, or none
            return {**_decided(node, op), "state": encode_grants(node.grants)}
        case "remove":
            _drop(node, [op["uid"]])
        case "start":
            if op["uid"] in node.pods:
                node.grants = container_started(node.grants, node.pods[op["uid"]], op["container"])
        case "reconcile":
            pass  # nothing is left behind that a sweep would have to find
        case other:
            raise ValueError(f"unknown op {other!r}")
    if node.down:  # what the sources and the runtime say once it is up again
        return {}
    return {"state": encode_grants(node.grants)}


def _decided(node: _Node, op: JSONObject) -> dict[str, Any]:
    """An admission as recorded. placed: the pod has been here already, without anything of its own."""
    pod = decode_pod(op["pod"])
    devices = decode_devices(op["devices"], "devices") if "devices" in op else None
    if op.get("placed"):
        node.pods.pop(pod.uid, None)
    return _admit(node, pod, devices, second=bool(op.get("second")))


def _admit(node: _Node, pod: Pod, devices: PodDevices | None = None, *, second: bool = False) -> dict[str, Any]:
    if pod.uid in node.pods:  # a running pod keeps exactly what it has
        return {"admitted": True, "pod": _pod(node, node.pods[pod.uid])}
    if node.fit is not None:
        verdict = _judge(node, node.fit, pod, devices, second=second)
    else:
        verdict = admit(node.managers, node.grants, pod, device_hints(node.machine.numa_mask, devices))
    if not verdict.admitted:
        return {"admitted": False, "reason": verdict.reason, "message": verdict.message}
    node.grants = verdict.grants
    node.pods[pod.uid] = pod
    return {"admitted": True, "pod": _pod(node, pod)}


def _judge(node: _Node, fit: NodeCapacity, pod: Pod, devices: PodDevices | None, *, second: bool) -> Verdict:
    """The daemon's whole judgement; of a pod that a kubelet has admitted the fit is the kubelet's."""
    records = {uid: PodRecord(each) for uid, each in node.pods.items()}
    state = State(Epoch(0, "0" * 16), grants=node.grants, pods=records)
    return judge(node.managers, None if second else fit, state, pod, devices=devices)


def _restart(node: _Node, op: JSONObject) -> dict[str, Any]:
    node.config.update(op.get("config") or {})
    managers, error = start_or_error(node.machine, decode_config(node.config))
    node.down = managers is None
    if managers is None:
        _drop(node, op.get("drop") or [])
        return {"boot": error, "readmitted": []}
    node.managers = managers
    node.grants = refit(managers, node.grants)
    gone = op.get("drop") or []
    running = [pod for uid, pod in node.pods.items() if uid not in gone]
    readmitted = [_admit(node, pod) for pod in running] if op.get("readmit") else []
    _drop(node, gone)  # only now: what ended meanwhile is known once the sources answer
    return {"boot": {}, "readmitted": readmitted, "state": encode_grants(node.grants)}


def _drop(node: _Node, uids: Sequence[str]) -> None:
    for uid in uids:
        node.grants = remove(node.managers, node.grants, uid)
        node.pods.pop(uid, None)


def _pod(node: _Node, pod: Pod) -> dict[str, Any]:
    grants, gates = node.grants, node.managers.gates
    kinds = {container.name: str(container.kind) for container in pod.containers}
    containers = [
        {
            "name": placed.container,
            "kind": kinds[placed.container],
            "assigned_cpus": None if placed.assigned is None else str(placed.assigned),
            "run_cpus": str(placed.cpus),
            "isolation": str(placed.isolation),
            "quota_disabled": placed.quota_disabled,
            "memory": block_objects(placed.memory) or None,
            "run_mems": None if placed.mems is None else list(node_ids(placed.mems)),
        }
        for placed in placements(grants, pod, gates)
    ]
    bubble = grants.cpu.pod_entries.get(pod.uid)
    return {
        "qos": str(pod_qos(pod, pod_level_resources=gates.pod_level_resources)),
        "containers": containers,
        "pod_cpus": None if bubble is None else str(bubble),
        "pod_memory": block_objects(grants.memory.pod_entries.get(pod.uid, ())) or None,
    }
