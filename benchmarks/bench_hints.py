"""What hints and merge cost on machines of 2 to 64 NUMA nodes, beside plain enumeration where that can run.

Machines: 128 CPUs up to 16 NUMA nodes, then 8 for each; 32 GiB and 4 GiB of 2 MiB pages per NUMA node; two sockets. `idle`:
only two CPUs are taken. `busy`: 45 % of the CPUs and all of every fourth node, memory held by single nodes and by pairs. The pod
asks for CPUs, memory and hugepages: `small` = a node can do it; `span` = more CPUs than a node has; `half`, `most` = of all that
is free. `~` marks an answer that is not proven to be the kubelet's (the search was cut off).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology, RawCPU, discover
from agent.model.state import MemoryTable, NUMANodeState
from agent.policy.hint_family import ProviderHints
from agent.policy.hints import cpu_hints, memory_hints
from agent.policy.topology_manager import Merged, merge
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName
from benchmarks.figure import Figure, Scale, repeated
from benchmarks.row import KUBELET, Recorded, Reference, Row, Target
from tests.policy import reference_merge

GIB = 1 << 30
LEAST_CPUS, LEAST_CPUS_PER_NODE = 128, 8
NODE_COUNTS = (2, 4, 8, 16, 34, 64)
ASKS = ("small", "span", "half", "most")
MOST_ENUMERATED_STEPS = 10_000  # products of hint lists that plain enumeration is given: a fraction of a second
# kubelet 1.36.2, 128 CPUs, fastest ms by NUMA nodes: CPU hints, memory hints, merge (with `closest` at 16: never ended)
GO = {
    "restricted": {2: 0.0687, 4: 0.279, 8: 20.89},
    "closest": {2: 0.0690, 4: 0.280, 8: 19.414},
    "single": {2: 0.0683, 4: 0.2547, 8: 4.557, 16: 2392.167},
}
BUDGET = (16, 34, 64)  # NUMA nodes of design section 13
LIMIT_MS = 20.0

POLICIES = {
    "restricted": TopologyPolicy(TopologyPolicyName.RESTRICTED),
    "closest": TopologyPolicy(TopologyPolicyName.RESTRICTED, prefer_closest_numa_nodes=True),
    "single": TopologyPolicy(TopologyPolicyName.SINGLE_NUMA_NODE),
}


@dataclass(frozen=True)
class Node:
    """A machine, what is free on it, and what a pod asks for."""

    topology: CPUTopology
    distances: Mapping[int, tuple[int, ...]]
    available: CPUSet
    memory: Mapping[int, NUMANodeState]
    cpus: int
    request: Mapping[str, int]

    @property
    def numa_nodes(self) -> int:
        return sum(1 << node for node in self.memory)


def build(nodes: int, busy: bool, ask: str) -> Node:
    """ask: as in the module's docstring."""
    rng = random.Random(nodes)
    socket = [node * 2 // nodes for node in range(nodes)]
    each = max(LEAST_CPUS_PER_NODE, LEAST_CPUS // nodes)
    raw = [RawCPU(cpu, cpu, socket[cpu // each], cpu // each) for cpu in range(nodes * each)]
    distances = {
        one: tuple(10 if one == other else 12 if socket[one] == socket[other] else 32 for other in range(nodes))
        for one in range(nodes)
    }
    full = set(rng.sample(range(nodes), nodes // 4)) if busy else set()
    free = [cpu.id for cpu in raw if cpu.id > 1 and not (busy and (cpu.numa in full or rng.random() < 0.45))]
    cpus, memory = {
        "small": (4, GIB),
        "span": (each * 3 // 2, 2 * GIB),
        "half": (len(free) // 2, (3 if busy else 15) * nodes * GIB // (2 if busy else 1)),
        "most": (len(free) - 3, (2 if busy else 25) * nodes * GIB),
    }[ask]
    request = {"memory": memory, "hugepages-2Mi": min(memory // 8, nodes * GIB)}
    return Node(discover(raw), distances, CPUSet.of(free), _memory(nodes, busy, rng), cpus, request)


def _memory(nodes: int, busy: bool, rng: random.Random) -> dict[int, NUMANodeState]:
    result: dict[int, NUMANodeState] = {}
    while len(result) < nodes:
        node, fate = len(result), rng.random()
        if busy and fate < 0.4:
            result[node] = _held(1, 1 << node, rng.random())
        elif busy and fate < 0.55 and node + 2 <= nodes:
            result[node] = _held(1, 0b11 << node, 1.0)
            result[node + 1] = _held(1, 0b11 << node, rng.random())
        else:
            result[node] = _held(0, 1 << node, 0.0)
    return result


def _held(assignments: int, cells: int, share: float) -> NUMANodeState:
    tables = {}
    for resource, size, unit in (("memory", 31 * GIB, 4096), ("hugepages-2Mi", 4 * GIB, 2 << 20)):
        reserved = int(size * share) // unit * unit
        tables[resource] = MemoryTable(size, 0, size, reserved, size - reserved)
    return NUMANodeState(assignments, cells, tables)


def hints(node: Node) -> list[ProviderHints]:
    cpu = cpu_hints(node.topology, node.available, CPUSet(), node.cpus, align_by_socket=False)
    return [{"cpu": cpu}, memory_hints(node.memory, node.request, {})]


def decide(node: Node, policy: TopologyPolicy) -> Merged:
    return merge(node.numa_nodes, node.distances, policy, hints(node))


def enumerate_all(node: Node) -> reference_merge.Providers:
    cpu = reference_merge.cpu_hints(node.topology, node.available, CPUSet(), node.cpus, False)
    return [{"cpu": cpu}, reference_merge.memory_hints(node.memory, node.request, {})]


def rows(scale: Scale) -> Iterator[Row]:
    for nodes in scale.pick(NODE_COUNTS, (2, 16)):
        found = [each for busy in (False, True) for ask in ASKS for each in case(nodes, busy, ask, scale)]
        yield from found
        worst = max((row.measured for row in found), key=lambda figure: figure.p50)
        target = Target("p50 < 20 ms", "p50", LIMIT_MS) if nodes in BUDGET else None
        yield Row(f"hints and merge, {nodes} NUMA nodes, the slowest of these {len(found)}", worst, target=target)


def case(nodes: int, busy: bool, ask: str, scale: Scale) -> Iterator[Row]:
    node = build(nodes, busy, ask)
    reference = enumeration(node, scale)
    for name, policy in POLICIES.items():
        go = None if busy else GO[name].get(nodes)
        exact = decide(node, policy).exact
        yield Row(
            f"{nodes} NUMA nodes, {'busy' if busy else 'idle'}, {ask}, {name}{'' if exact else ' ~'}",
            repeated(lambda policy=policy: decide(node, policy), scale.seconds / 3),  # type: ignore[misc]
            reference=Reference("enumeration", reference) if reference is not None and name == "restricted" else None,
            recorded=Recorded(go, KUBELET) if go is not None else None,
        )


def enumeration(node: Node, scale: Scale) -> Figure | None:
    """All hints and all their combinations, as the kubelet goes through them; None where that would take too long."""
    if len(node.memory) > 8:
        return None
    steps = 1
    for hint_list in reference_merge.filtered(enumerate_all(node)):
        steps *= len(hint_list)
    if steps > MOST_ENUMERATED_STEPS:
        return None
    policy = POLICIES["restricted"]
    return repeated(
        lambda: reference_merge.merge(node.numa_nodes, node.distances, policy, enumerate_all(node)),
        scale.seconds / 3,
        least=1,
    )
