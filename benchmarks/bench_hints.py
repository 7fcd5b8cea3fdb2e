"""What hints and merge cost on machines of 2 to 64 NUMA nodes, beside plain enumeration where that can run.

    python -m benchmarks.bench_hints [NODES,NODES,...]

Machines: 8 CPUs, 32 GiB and 4 GiB of 2 MiB pages per NUMA node, two sockets. `idle`: only two CPUs are taken. `busy`: 45 % of
the CPUs and all of every fourth node, memory held by single nodes and by pairs. The pod asks for CPUs, memory and hugepages.
Times are the fastest of several runs, in milliseconds of process time; `!` marks an answer that is not proven.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology, RawCPU, discover
from agent.model.state import MemoryTable, NUMANodeState
from agent.policy.hint_family import ProviderHints
from agent.policy.hints import cpu_hints, memory_hints
from agent.policy.topology_manager import Merged, merge
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName
from tests.policy import reference_merge

GIB = 1 << 30
CPUS_PER_NODE = 8
NODE_COUNTS = (2, 4, 8, 12, 16, 34, 64)
MOST_ENUMERATED_STEPS = 300_000  # products of hint lists that plain enumeration is given: some seconds

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
    """ask: `small` = a node can do it; `span` = more CPUs than a node has; `half`, `most` = of everything that is free."""
    rng = random.Random(nodes)
    socket = [node * 2 // nodes for node in range(nodes)]
    raw = [RawCPU(cpu, cpu, socket[cpu // CPUS_PER_NODE], cpu // CPUS_PER_NODE) for cpu in range(nodes * CPUS_PER_NODE)]
    distances = {
        one: tuple(10 if one == other else 12 if socket[one] == socket[other] else 32 for other in range(nodes))
        for one in range(nodes)
    }
    full = set(rng.sample(range(nodes), nodes // 4)) if busy else set()
    free = [cpu.id for cpu in raw if cpu.id > 1 and not (busy and (cpu.numa in full or rng.random() < 0.45))]
    cpus, memory = {
        "small": (4, GIB),
        "span": (12, 2 * GIB),
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


def milliseconds(call: Callable[[], object], *, least_seconds: float = 0.2) -> float:
    """The fastest run, of as many as fit into `least_seconds`."""
    best, spent = float("inf"), 0.0
    while spent < least_seconds:
        start = time.process_time()
        call()
        took = time.process_time() - start
        best, spent = min(best, took), spent + max(took, 1e-5)
    return best * 1000


def row(nodes: int, busy: bool, ask: str) -> str:
    node = build(nodes, busy, ask)
    cells = [f"{nodes:5d}  {'busy' if busy else 'idle':4s} {ask:5s} {milliseconds(lambda: hints(node)):8.2f}"]
    for policy in POLICIES.values():
        merged = decide(node, policy)
        result = f"{(merged.best.affinity or 0).bit_count()}{'+' if merged.best.preferred else '-'}"
        took = milliseconds(lambda policy=policy: decide(node, policy))  # type: ignore[misc]
        cells.append(f"{took:8.2f}{' ' if merged.exact else '!'}{result:4s}")
    cells.append(_enumeration(node))
    return " ".join(cells)


def _enumeration(node: Node) -> str:
    if len(node.memory) > 8:
        return "-"
    listed = enumerate_all(node)
    steps = 1
    for hint_list in reference_merge.filtered(listed):
        steps *= len(hint_list)
    if steps > MOST_ENUMERATED_STEPS:
        return f"- ({steps} combinations)"
    took = milliseconds(
        lambda: reference_merge.merge(node.numa_nodes, node.distances, POLICIES["restricted"], enumerate_all(node))
    )
    return f"{took:.1f} ({steps} combinations)"


def main(arguments: Sequence[str]) -> None:
    counts = [int(count) for count in arguments[0].split(",")] if arguments else NODE_COUNTS
    print("nodes  load ask      hints   restricted       closest        single     enumeration, restricted")
    print("hints: both managers; the others: hints and merge; 2+ = a preferred mask of 2 nodes, 2- = not preferred")
    for nodes in counts:
        for busy in (False, True):
            for ask in ("small", "span", "half", "most"):
                print(row(nodes, busy, ask), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
