"""Of the intersections that a packing allows, the one whose nodes are closest together (prefer-closest-numa-nodes).

Branch and bound: what is kept so far, and a lower bound for the distances that the rest must add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from agent.model.numa import NodeMask
from agent.policy.hint_family import Found
from agent.policy.node_packing import BEAMS, BudgetExhaustedError, Packing, Rooms
from agent.policy.numa_distances import NUMADistances, nearest

MOST_KINDS = 5  # kinds of nodes for which the exact bound is computed; sockets, as a rule


def closest(packing: Packing, size: int, distances: NUMADistances, beat: NodeMask | None = None) -> Found:
    """The intersection of exactly `size` nodes that are closest together, then of the lowest value.

    beat: a mask to do better than; None is found otherwise.
    """
    search = _ClosestSearch(packing, size, distances, beat)
    for beam in BEAMS:
        packing.start(beam)
        try:
            search.run()
        except BudgetExhaustedError:
            return Found(search.best, False)
        if not packing.doubtful:
            return Found(search.best)
    return Found(search.best, False)


def best_of_size(packing: Packing, size: int, distances: NUMADistances | None, beat: NodeMask | None = None) -> Found:
    """The closest intersection of `size` nodes where distances count, else the one of the lowest value."""
    return packing.lowest(size) if distances is None else closest(packing, size, distances, beat)


class _ClosestSearch:
    """Branch and bound over the nodes to keep, lowest values first. Distances count twice here, to stay whole numbers."""

    def __init__(self, packing: Packing, size: int, distances: NUMADistances, beat: NodeMask | None) -> None:
        self._packing, self._size, self._distances = packing, size, distances
        self._ids = packing.ids
        ranks = [rank for rank, node in enumerate(distances.nodes) if packing.nodes >> node & 1]
        self._pair = [[distances.pair[one][other] for other in ranks] for one in ranks]
        self._own = [2 * distances.own[rank] for rank in ranks]
        self._near = {len(ranks): distances.near} if len(ranks) == len(distances.nodes) else {}
        self._kinds = _Kinds.of(self._ids, self._own, self._pair, size)
        self.best: NodeMask | None = None
        self._bound = None if beat is None else (2 * distances.total(beat), beat)

    def run(self) -> None:
        """Improve `best` until nothing better can exist."""
        index, rooms = len(self._ids), Rooms([self._packing.room])
        cross = [0] * index
        near = self._nearest_below(index)
        promising = sorted(range(index), key=lambda seed: (self._own[seed] + near[seed][self._size - 1], seed))
        for seed in promising:
            if not self._can_improve(index, 0, 0, cross, self._size):
                return
            order = sorted(range(index), key=lambda other: (other != seed, self._pair[seed][other], other))
            self._try(sum(1 << self._ids[other] for other in order[: self._size]))
        self._descend(index, 0, 0, cross, rooms)

    def _try(self, mask: NodeMask) -> None:
        self._packing.budget.spend(self._size)
        found = (2 * self._distances.total(mask), mask)
        if (self._bound is None or found < self._bound) and self._packing.allows(mask):
            self.best, self._bound = mask, found

    def _descend(self, index: int, kept: NodeMask, inside: int, cross: list[int], rooms: Rooms) -> None:
        """Decide on the nodes below `index`. inside: distances within `kept`. cross: per node, its distances to `kept`."""
        wanted = self._size - kept.bit_count()
        if wanted > index or not self._can_improve(index, kept, inside, cross, wanted):
            return
        rooms = self._packing.promising(index, index - wanted, kept, rooms)
        if not rooms.each:
            return
        if wanted == index:
            mask = kept | sum(1 << node for node in self._ids[:index])
            found = (2 * self._distances.total(mask), mask)
            if self._bound is None or found < self._bound:
                self.best, self._bound = mask, found
            return
        node = index - 1
        self._descend(node, kept, inside, cross, self._packing.charge(node, rooms))
        if wanted:
            nearer = [so_far + 2 * more for so_far, more in zip(cross[:node], self._pair[node], strict=False)]
            self._descend(node, kept | 1 << self._ids[node], inside + self._own[node] + cross[node], nearer, rooms)

    def _can_improve(self, index: int, kept: NodeMask, inside: int, cross: list[int], wanted: int) -> bool:
        """Whether the nearest of the nodes below `index` could make a better mask than the best so far."""
        if self._bound is None:
            return True
        total, mask = self._bound
        self._packing.budget.spend(index // 4 + 1)
        if self._kinds is not None:
            least = self._kinds.least_total(index, kept)
        else:
            least = inside + self._least_added(index, cross, wanted)
        if least != total:
            return least < total
        return kept | sum(1 << node for node in self._ids[:wanted]) < mask

    def _least_added(self, index: int, cross: list[int], wanted: int) -> int:
        """A bound for the distances that come with `wanted` nodes below `index`: each with its nearest others."""
        if wanted == 0:
            return 0
        near = self._nearest_below(index)
        each = [
            own + so_far + sums[wanted - 1] for own, so_far, sums in zip(self._own[:index], cross, near, strict=False)
        ]
        return sum(sorted(each)[:wanted])

    def _nearest_below(self, index: int) -> Sequence[Sequence[int]]:
        """Per node below `index`: the sum of its distances to the 0, 1, 2, ... nearest others of them."""
        if index not in self._near:
            self._packing.budget.spend(4 * index)
            self._near[index] = nearest([row[:index] for row in self._pair[:index]])
        return self._near[index]


@dataclass
class _Kinds:
    """Nodes that are equally far from every other node count as one kind: then only how many of each are kept matters.

    masks, own, within: per kind its nodes, a node's own distance, the distance of two of them. between: of two kinds. All
    count twice. ids: of all nodes, ascending.
    """

    size: int
    ids: Sequence[int]
    masks: Sequence[NodeMask]
    own: Sequence[int]
    within: Sequence[int]
    between: Sequence[Sequence[int]]
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)

    @classmethod
    def of(cls, ids: Sequence[int], own: Sequence[int], pair: Sequence[Sequence[int]], size: int) -> _Kinds | None:
        """The kinds of these nodes; None where they are many, or further from their own kind than from others."""
        groups: list[list[int]] = []
        for rank in range(len(ids)):
            for group in groups:
                twin = group[0]
                others = (k for k in range(len(ids)) if k not in (rank, twin))
                if own[rank] == own[twin] and all(pair[rank][other] == pair[twin][other] for other in others):
                    group.append(rank)
                    break
            else:
                groups.append([rank])
            if len(groups) > MOST_KINDS:
                return None
        within = [2 * pair[group[0]][group[1]] if len(group) > 1 else 0 for group in groups]
        between = [[2 * pair[one[0]][other[0]] for other in groups] for one in groups]
        ranks = range(len(groups))
        if any(within[one] + within[other] > 2 * between[one][other] for one in ranks for other in range(one)):
            return None
        masks = [sum(1 << ids[rank] for rank in group) for group in groups]
        return cls(size, ids, masks, [own[group[0]] for group in groups], within, between)

    def least_total(self, index: int, kept: NodeMask) -> int:
        """The least total of a mask that has `kept` and otherwise nodes below `index`.

        Moving from one kind to another is never best halfway, as a kind is closest to itself. So at most one kind is
        neither taken as far as possible nor as little as possible.
        """
        least = [(kept & mask).bit_count() for mask in self.masks]
        key = (index, *least)
        if key not in self._known:
            below = sum(1 << node for node in self.ids[:index])
            most = [count + (below & mask).bit_count() for count, mask in zip(least, self.masks, strict=True)]
            totals = []
            for between in range(len(least)):
                choices = [
                    (None,) if kind == between else {low, high}
                    for kind, (low, high) in enumerate(zip(least, most, strict=True))
                ]
                for chosen in product(*choices):
                    rest = self.size - sum(count for count in chosen if count is not None)
                    if least[between] <= rest <= most[between]:
                        totals.append(self._total([rest if count is None else count for count in chosen]))
            self._known[key] = min(totals)
        return self._known[key]

    def _total(self, counts: Sequence[int]) -> int:
        result = 0
        for kind, count in enumerate(counts):
            result += count * self.own[kind] + count * (count - 1) // 2 * self.within[kind]
            result += sum(count * counts[other] * self.between[kind][other] for other in range(kind))
        return result
