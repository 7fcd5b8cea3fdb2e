"""Hints and merge by plain enumeration, rule by rule as the kubelet works: what the clever code is compared with.

Every set of NUMA nodes, every combination of hints, the running best with its comparisons. Exponential on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.state import NUMANodeState
from agent.policy.hint_family import Hint
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName

Hints = tuple[Hint, ...]
Providers = Sequence[Mapping[str, Hints | None] | None]


def all_masks(nodes: Sequence[int]) -> Iterator[NodeMask]:
    """Every non-empty set of nodes: small ones first, each size in lexicographic order."""
    for size in range(1, len(nodes) + 1):
        for chosen in combinations(nodes, size):
            yield node_mask(chosen)


def cpu_hints(topology: CPUTopology, available: CPUSet, reusable: CPUSet, n: int, align_by_socket: bool) -> Hints:
    nodes = list(topology.numa_masks)
    smallest = len(nodes)
    found = []
    for mask in all_masks(nodes):
        in_mask = CPUSet(sum(topology.numa_masks[node] for node in node_ids(mask)))
        if len(in_mask) >= n:
            smallest = min(smallest, mask.bit_count())
        if reusable <= in_mask and len(reusable) + len(available & in_mask) >= n:
            found.append(mask)
    per_socket = len(nodes) // len(topology.socket_masks)

    def preferred(mask: NodeMask) -> bool:
        if align_by_socket and per_socket:
            cpus = sum(topology.numa_masks[node] for node in node_ids(mask))
            spanned = sum(1 for socket in topology.socket_masks.values() if socket & cpus)
            if spanned == -(-smallest // per_socket):
                return True
        return mask.bit_count() == smallest

    return tuple(Hint(mask, preferred(mask)) for mask in found)


def memory_hints(
    machine: Mapping[int, NUMANodeState], request: Mapping[str, int], reusable: Mapping[NodeMask, Mapping[str, int]]
) -> dict[str, Hints]:
    nodes = sorted(machine)
    smallest = len(nodes)
    found = []
    for mask in all_masks(nodes):
        members = node_ids(mask)
        if any(sum(machine[n].memory[r].allocatable for n in members) < size for r, size in request.items()):
            continue
        smallest = min(smallest, len(members))
        if len(members) == 1:
            if machine[members[0]].cells.bit_count() > 1:
                continue
        elif any(machine[n].assignments > 0 and machine[n].cells != mask for n in members):
            continue
        spare = reusable.get(mask, {})
        if all(
            sum(machine[n].memory[r].free for n in members) + spare.get(r, 0) >= size for r, size in request.items()
        ):
            found.append(mask)
    hints = tuple(Hint(mask, mask.bit_count() == smallest) for mask in found)
    return {resource: hints for resource in request if hints}


def best_memory_hint(hints: Hints, containing: NodeMask) -> Hint | None:
    fitting = [hint for hint in hints if hint.affinity is not None and not containing & ~hint.affinity]
    return min(
        fitting, key=lambda hint: (not hint.preferred, (hint.affinity or 0).bit_count(), hint.affinity), default=None
    )


def filtered(providers: Providers) -> list[Hints]:
    """Per resource the hints to combine: saying nothing is any node, preferred; no possibility is any node, not preferred."""
    result: list[Hints] = []
    for provider in providers:
        if not provider:
            result.append((Hint(None, True),))
            continue
        result += [
            (Hint(None, True),) if hints is None else hints or (Hint(None, False),) for hints in provider.values()
        ]
    return result


def merge(
    numa_nodes: NodeMask, distances: Mapping[int, Sequence[int]], policy: TopologyPolicy, providers: Providers
) -> tuple[Hint, bool]:
    """The running best over every combination of hints."""
    resources = considered(policy, providers)
    combinations = (merge_permutation(numa_nodes, permutation) for permutation in product(*resources))
    return choose(combinations, resources, numa_nodes, distances, policy)


def merge_folded(
    numa_nodes: NodeMask, distances: Mapping[int, Sequence[int]], policy: TopologyPolicy, providers: Providers
) -> tuple[Hint, bool]:
    """The same, one resource after the other, with combinations dropped that another one equals so far."""
    resources = considered(policy, providers)
    # the intersection so far; the one mask all had so far, None = none had any, 0 = they differ; whether all are preferred
    partial: set[tuple[NodeMask, NodeMask | None, bool]] = {(numa_nodes, None, True)}
    for hints in resources:
        longer = set()
        for merged, common, preferred in partial:
            for hint in hints:
                if hint.affinity is None:
                    longer.add((merged, common, preferred and hint.preferred))
                else:
                    same = hint.affinity if common is None or common == hint.affinity else 0
                    longer.add((merged & hint.affinity, same, preferred and hint.preferred))
        partial = longer
    combinations = (Hint(merged, preferred and common != 0) for merged, common, preferred in partial)
    return choose(combinations, resources, numa_nodes, distances, policy)


def considered(policy: TopologyPolicy, providers: Providers) -> list[Hints]:
    resources = filtered(providers)
    if policy.name is not TopologyPolicyName.SINGLE_NUMA_NODE:
        return resources
    return [
        tuple(h for h in hints if h.preferred and (h.affinity is None or h.affinity.bit_count() == 1))
        for hints in resources
    ]


def choose(
    combinations: Iterable[Hint],
    resources: list[Hints],
    numa_nodes: NodeMask,
    distances: Mapping[int, Sequence[int]],
    policy: TopologyPolicy,
) -> tuple[Hint, bool]:
    if policy.name is TopologyPolicyName.NONE:
        return Hint(None, False), True
    single = policy.name is TopologyPolicyName.SINGLE_NUMA_NODE
    order: Order = narrower
    if policy.prefer_closest_numa_nodes and not single:
        order = closer(numa_nodes, distances)
    counts = [min((h.affinity.bit_count() for h in hints if h.affinity is not None), default=0) for hints in resources]
    best: Hint | None = None
    for candidate in combinations:
        if candidate.affinity:
            best = candidate if best is None else better(best, candidate, max(counts, default=0), order)
    best = best or Hint(numa_nodes, False)
    if single and best.affinity == numa_nodes:
        best = Hint(None, best.preferred)
    return best, policy.name is TopologyPolicyName.BEST_EFFORT or best.preferred


def merge_permutation(numa_nodes: NodeMask, permutation: Sequence[Hint]) -> Hint:
    masks = [hint.affinity for hint in permutation if hint.affinity is not None]
    merged = numa_nodes
    for mask in masks:
        merged &= mask
    return Hint(merged, all(hint.preferred for hint in permutation) and len(set(masks)) <= 1)


Order = Callable[[NodeMask, NodeMask], NodeMask]


def better(current: Hint, candidate: Hint, target: int, fitter: Order) -> Hint:
    assert current.affinity
    assert candidate.affinity
    if current.preferred != candidate.preferred:
        return current if current.preferred else candidate
    chosen = candidate if fitter(current.affinity, candidate.affinity) != current.affinity else current
    if current.preferred:
        return chosen
    have, new = current.affinity.bit_count(), candidate.affinity.bit_count()
    if have > target:
        return chosen
    if have == target:
        return chosen if new == have else current
    if new > target:
        return current
    if new == target or new > have:
        return candidate
    return chosen if new == have else current


def narrower(one: NodeMask, other: NodeMask) -> NodeMask:
    return min(one, other, key=lambda mask: (mask.bit_count(), mask))


def closer(numa_nodes: NodeMask, distances: Mapping[int, Sequence[int]]) -> Order:
    nodes = node_ids(numa_nodes)
    by_rank = all(len(distances[node]) == len(nodes) for node in nodes)

    def average(mask: NodeMask) -> float:
        members = node_ids(mask)
        pairs = [(a, nodes.index(b) if by_rank else b) for a in members for b in members]
        return sum(distances[a][column] for a, column in pairs) / len(pairs)

    def fitter(one: NodeMask, other: NodeMask) -> NodeMask:
        if one.bit_count() != other.bit_count():
            return narrower(one, other)
        return min(one, other, key=lambda mask: (average(mask), mask))

    return fitter
