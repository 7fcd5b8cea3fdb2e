"""Small nodes for tests: CPUs over NUMA nodes, memory per node, managers that are on, pods on one line."""

from __future__ import annotations

from collections.abc import Mapping

from agent.formats.pods import decode_pod
from agent.model.cpuset import CPUSet
from agent.model.machine import Machine, RawCPU, discover
from agent.model.pod import Pod
from agent.model.state import CPUState, Grants, MemoryState, PodRecord, PolicyInForce
from agent.policy.managers import ManagerConfig, Managers, start

GIB = 1 << 30


def machine(nodes: Mapping[int, str], memory: Mapping[int, Mapping[str, int]] | None = None) -> Machine:
    """nodes: NUMA id -> its online CPUs, one thread per core. memory: bytes by resource, 8 GiB each where not given."""
    cpus = [RawCPU(cpu, cpu, node, node) for node, text in nodes.items() for cpu in CPUSet.parse(text)]
    amounts = memory or {node: {"memory": 8 * GIB} for node in nodes}
    ids = sorted({*nodes, *amounts})
    distances = {node: tuple(10 if other == node else 20 for other in ids) for node in ids}
    return Machine(discover(cpus), amounts, distances)


def managers(
    node: Machine,
    *,
    reserved: str = "0",
    options: Mapping[str, str] | None = None,
    cpu_policy: str = "static",
    memory_policy: str = "None",
    reserved_memory: Mapping[int, Mapping[str, int]] | None = None,
    scope: str = "container",
    topology_policy: str = "none",
) -> Managers:
    return start(
        node,
        ManagerConfig(
            cpu_policy=cpu_policy,
            cpu_options=options or {},
            reserved_cpus=CPUSet.parse(reserved),
            memory_policy=memory_policy,
            reserved_memory=reserved_memory or {min(node.numa_memory): {"memory": GIB}},
            topology_policy=topology_policy,
            topology_scope=scope,
            feature_gates={"PodLevelResourceManagers": True},
        ),
    )


def policy(of: Managers) -> PolicyInForce:
    """What a state written under these managers says of them."""
    return PolicyInForce(
        cpu_policy="none" if of.cpu is None else "static",
        cpu_options={"strict-cpu-reservation": "true"}
        if of.cpu is not None and of.cpu.options.strict_reservation
        else {},
        online=of.machine.topology.all,
        reserved_cpus=CPUSet() if of.cpu is None else of.cpu.reserved,
        memory_policy="None" if of.memory is None else "Static",
        reserved_memory={} if of.memory is None else of.memory.system_reserved,
    )


def cpus(default: str, bubbles: Mapping[str, str] | None = None, **entries: Mapping[str, str]) -> CPUState:
    """cpus("0,3", a={"app": "1-2"}): the pod uid "a" holds 1-2 in its container app."""
    return CPUState(
        CPUSet.parse(default),
        {uid: {name: CPUSet.parse(text) for name, text in sets.items()} for uid, sets in entries.items()},
        {uid: CPUSet.parse(text) for uid, text in (bubbles or {}).items()},
    )


def grants(cpu: CPUState | None = None, memory: MemoryState | None = None) -> Grants:
    return Grants(cpu or CPUState(), memory or MemoryState())


def pod(
    uid: str, *, cpu: str = "2", memory: str = "1Gi", pod_level: Mapping[str, str] | None = None, **others: str
) -> Pod:
    """A Guaranteed pod with a container `app`, and others={"log": cpu} beside it."""

    def sized(amount: str, size: str = memory) -> dict[str, object]:
        return {"requests": {"cpu": amount, "memory": size}, "limits": {"cpu": amount, "memory": size}}

    containers = [{"name": "app", "resources": sized(cpu)}]
    containers += [{"name": name, "resources": sized(amount, "64Mi")} for name, amount in others.items()]
    spec: dict[str, object] = {"containers": containers}
    if pod_level:
        spec["resources"] = {"requests": dict(pod_level), "limits": dict(pod_level)}
    return decode_pod({"metadata": {"name": f"pod-{uid}", "namespace": "test", "uid": uid}, "spec": spec})


def records(*uids: str) -> dict[str, PodRecord]:
    return {uid: PodRecord(pod(uid)) for uid in uids}
