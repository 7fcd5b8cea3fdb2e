"""Picking CPUs evenly over NUMA nodes (kubelet cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed).

The numbers, how much each node gives, are `agent.policy.cpu_balance`; inside a node CPUs are packed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from math import ceil

from agent.model.machine import CPUTopology
from agent.policy.cpu_balance import best_split
from agent.policy.cpu_packed import numa_order, pick_packed


def pick_distributed(
    topology: CPUTopology, free: int, need: int, *, group_size: int, spread_cores: bool, min_numa_nodes: int
) -> int:
    """`need` CPUs out of `free`, which holds at least as many, in groups of `group_size`, from as few nodes as can share evenly.

    min_numa_nodes: the fewest nodes to begin with; where no so many can share evenly, the most that can. Packed where the need
    is no multiple of the group or where no number of nodes works.
    """
    if need % group_size == 0:
        groups = need // group_size
        nodes = list(dict.fromkeys(numa_order(topology, free)))  # one that lies in two sockets is listed for both
        counts = [(node & free).bit_count() for node in nodes]
        for width in _widths(topology, len(nodes), groups, group_size, min_numa_nodes):
            split = best_split(counts, width, groups, group_size)
            if split is not None:
                return _take_split(
                    topology, free, zip(nodes, split, strict=True), groups // width, group_size, spread_cores
                )
    return pick_packed(topology, free, need, spread_cores=spread_cores, prefer_uncore=False)


def _widths(topology: CPUTopology, nodes: int, groups: int, group_size: int, min_numa_nodes: int) -> Iterable[int]:
    """The numbers of nodes to try: from what an average node would hold when empty, up to one group per node.

    Starts at min_numa_nodes instead where that is more; the smaller ones follow then, from large to small.
    """
    groups_per_node = ceil(ceil(topology.num_cpus / group_size) / len(topology.numa_masks))
    least = ceil(groups / groups_per_node)
    most = min(groups, nodes)
    floor = max(least, min(min_numa_nodes, most))
    return chain(range(floor, most + 1), range(floor - 1, least - 1, -1))


def _take_split(
    topology: CPUTopology, free: int, split: Iterable[tuple[int, int]], share: int, group_size: int, spread_cores: bool
) -> int:
    """From each node its even share at once, then what it gives beyond that group by group."""
    taken = 0
    for node, groups in split:
        if not groups:
            continue
        rest = node & free
        for count in (share, *[1] * (groups - share)):
            cpus = pick_packed(topology, rest, count * group_size, spread_cores=spread_cores, prefer_uncore=False)
            rest &= ~cpus
            taken |= cpus
    return taken
