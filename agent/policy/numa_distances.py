"""How close NUMA nodes are to each other, for prefer-closest-numa-nodes (kubelet cm/topologymanager, NUMADistances)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from agent.model.numa import NodeMask, node_ids

UNREACHABLE = 255  # ACPI 6.5, 5.2.17 (SLIT): no path between the two nodes


@dataclass(frozen=True, slots=True)
class NUMADistances:
    """Distances between a machine's nodes. Lists are by rank: a node's place in `nodes`, which are ascending.

    own: of a node to itself. pair: there and back between two nodes. near: the sum of the pair distances of a node to its
    0, 1, 2, ... nearest other nodes.
    """

    nodes: tuple[int, ...]
    own: tuple[int, ...]
    pair: tuple[tuple[int, ...], ...]
    near: tuple[tuple[int, ...], ...]

    def total(self, mask: NodeMask) -> int:
        """The distances of all ordered pairs of the mask's nodes, each node with itself included.

        The kubelet compares averages, but only of masks of one size: totals give the same order.
        """
        ranks = [rank for rank, node in enumerate(self.nodes) if mask >> node & 1]
        result = 0
        for place, rank in enumerate(ranks):
            row = self.pair[rank]
            result += self.own[rank] + sum([row[other] for other in ranks[:place]])
        return result


def numa_distances(numa_nodes: NodeMask, distances: Mapping[int, tuple[int, ...]]) -> NUMADistances:
    """The distances of a machine. distances: NUMA id -> row of the distance file.

    Linux writes one column per online node, in ascending id order. The kubelet takes the id for the column, which is the same
    thing only without gaps in the ids; it crashes where the column does not exist. Here rows that have exactly a column per
    node are read as Linux writes them, others by id. A distance that is not there counts as unreachable.
    """
    return _numa_distances(numa_nodes, tuple(distances.get(node, ()) for node in node_ids(numa_nodes)))


@lru_cache(maxsize=8)
def _numa_distances(numa_nodes: NodeMask, rows: tuple[tuple[int, ...], ...]) -> NUMADistances:
    nodes = node_ids(numa_nodes)
    columns = range(len(nodes)) if all(len(row) == len(nodes) for row in rows) else nodes
    table = [[row[column] if column < len(row) else UNREACHABLE for column in columns] for row in rows]
    ranks = range(len(nodes))
    pair = tuple(tuple(table[one][other] + table[other][one] for other in ranks) for one in ranks)
    return NUMADistances(nodes, tuple(table[rank][rank] for rank in ranks), pair, nearest(pair))


def nearest(pair: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """For every rank the sum of the distances to its 0, 1, 2, ... nearest others."""
    return tuple(tuple(accumulate(sorted([*row[:rank], *row[rank + 1 :]]), initial=0)) for rank, row in enumerate(pair))


def fittest(masks: Iterable[NodeMask], target: int, distances: NUMADistances | None) -> NodeMask | None:
    """The mask whose size is `target`, else the next smaller, down to 1, else the next larger; None of none.

    Among masks of one size: the closest together where distances are given, then the lowest value. This order is what all of
    the kubelet's pairwise comparisons of hints that are not preferred amount to; with target 1 it is that of preferred hints.
    """
    by_size: dict[int, list[NodeMask]] = {}
    for mask in masks:
        by_size.setdefault(mask.bit_count(), []).append(mask)
    if not by_size:
        return None
    best = by_size[min(by_size, key=lambda size: (size > target, abs(size - target)))]
    if distances is None:
        return min(best)
    return min(best, key=lambda mask: (distances.total(mask), mask))
