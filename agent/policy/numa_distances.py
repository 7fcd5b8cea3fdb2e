"""How close NUMA nodes are to each other, for prefer-closest-numa-nodes (kubelet cm/topologymanager, NUMADistances)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from agent.model.numa import NodeMask, node_ids

Distances: TypeAlias = Mapping[int, Mapping[int, int]]  # node -> node -> distance

UNREACHABLE = 255  # ACPI 6.5, 5.2.17 (SLIT): no path between the two nodes


def distance_table(numa_nodes: NodeMask, distances: Mapping[int, Sequence[int]]) -> dict[int, dict[int, int]]:
    """Node -> node -> distance.

    Linux writes one column per online node, in ascending id order. The kubelet takes the id for the column, which is the same
    thing only without gaps in the ids; it crashes where the column does not exist. Here rows that have exactly a column per
    node are read as Linux writes them, others by id. A distance that is not there counts as unreachable.
    """
    nodes = node_ids(numa_nodes)
    by_rank = all(len(distances.get(node, ())) == len(nodes) for node in nodes)
    columns = {node: rank if by_rank else node for rank, node in enumerate(nodes)}
    table = {}
    for node in nodes:
        row = distances.get(node, ())
        table[node] = {other: row[column] if column < len(row) else UNREACHABLE for other, column in columns.items()}
    return table


def distance_sum(mask: NodeMask, distances: Distances) -> int:
    """The distances of all ordered pairs of the mask's nodes, each node with itself included.

    The kubelet compares averages; only masks of the same size are compared by it, so sums give the same order.
    """
    members = node_ids(mask)
    return sum(distances[one][other] for one in members for other in members)


def fittest(masks: Iterable[NodeMask], target: int, distances: Distances | None) -> NodeMask | None:
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
    return min(best, key=lambda mask: (distance_sum(mask, distances), mask))
