"""How many CPUs each NUMA node gives when a request is distributed: the kubelet's search for the best balance, without its loops.

The kubelet (cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed) tries every combination of `width` nodes. Each
member gives an even share of whole groups; what is left over goes to some of the members (`agent.policy.cpu_remainder`). The
lowest standard deviation of what is free afterwards wins, the first found on ties.

This finds the same answer: combinations in the same order, but cut off where a bound shows that they cannot win. Nodes with
equal counts side by side are interchangeable, so only the first of them is tried. Exact within MAX_WORK, which no machine of up
to 12 nodes reaches, and larger ones only with free counts in great disorder; beyond, the best split found so far, at least as
good as that of the `width` nodes with the most free CPUs.

One difference: the kubelet remembers its best combination in memory that it goes on writing to, so with four members, or six to
eight, it may take another one than it found. What it found is the answer here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt

from agent.policy.cpu_remainder import NEVER, Remainder, one_by_one

MAX_WORK = 500_000  # steps, some 0.1 s; 12 nodes take at most 250,000 (792 combinations of 7 x 252, and bounds)


@dataclass(frozen=True)
class _Scale:
    """Turns costs into the kubelet's score: the standard deviation in thousandths, rounded half away from zero.

    A cost is what a split adds to the sum of squares of the nodes' free counts, divided by the group size. It orders splits as
    the score does, but the score is coarser: rounding makes ties, and on ties the first found wins.
    """

    nodes: int
    group_size: int
    squares: int  # sum of squared free counts before
    free_after: int  # sum of free counts afterwards

    @cached_property
    def _offset(self) -> int:
        mean = (2000 * self.free_after + self.nodes) // (2 * self.nodes)  # rounded to thousandths before it is used
        return 1_000_000 * self.squares - 2000 * mean * self.free_after + self.nodes * mean**2

    def score(self, cost: int) -> int:
        deviations = self._offset + 1_000_000 * self.group_size * cost
        return (isqrt(4 * deviations // self.nodes) + 1) // 2

    def ceiling(self, score: int) -> int:
        """The largest cost that rounds to this score or less; for a score below zero nothing does."""
        if score < 0:
            return -NEVER
        deviations = (self.nodes * (2 * score + 1) ** 2 - 1) // 4
        return (deviations - self._offset) // (1_000_000 * self.group_size)

    def ties(self, cost: int) -> int:
        """The largest cost with the same score."""
        return self.ceiling(self.score(cost))


def best_split(counts: Sequence[int], width: int, groups: int, group_size: int) -> tuple[int, ...] | None:
    """How many groups each node gives, parallel to `counts`; None where no `width` nodes can share `groups` groups evenly.

    counts: free CPUs per NUMA node, in picking order. Every member gives groups // width groups, or more.
    """
    share, left = divmod(groups, width)
    able = [node for node, count in enumerate(counts) if count >= share * group_size]
    if len(able) < width or sum(sorted(count // group_size for count in counts)[-width:]) < groups:
        return None
    scale = _Scale(len(counts), group_size, sum(c * c for c in counts), sum(counts) - groups * group_size)
    split = [0] * len(counts)
    for index, extra in _Search([counts[node] for node in able], width, share, left, scale).run().items():
        split[able[index]] = share + extra
    return tuple(split)


class _Search:
    """Combinations of `width` out of `counts` in lexicographic order, for the best one; see the module's text."""

    def __init__(self, counts: list[int], width: int, share: int, left: int, scale: _Scale) -> None:
        self._counts = counts
        self._width = width
        self._share = share
        self._left = left
        self._scale = scale
        self._size = scale.group_size
        self._largest = [sorted(counts[start:], reverse=True) for start in range(len(counts) + 1)]
        self._best: Sequence[int] = ()
        self._best_cost = self._limit = 0
        self._work = 0

    def run(self) -> Mapping[int, int]:
        """Groups beyond the even share by member."""
        by_count = sorted(range(len(self._counts)), key=lambda index: -self._counts[index])
        self._best = sorted(by_count[: self._width])
        self._best_cost = self._cost(self._best)
        self._limit = self._scale.ties(self._best_cost)  # one that comes first may be as good
        self._visit(0, [])
        extras = self._extras(self._best, self._best_cost)
        return {index: extras.get(index, 0) for index in self._best}

    def _visit(self, start: int, chosen: list[int]) -> None:
        missing = self._width - len(chosen)
        if not missing:
            cost = self._cost(chosen)
            if cost <= self._limit:
                self._best, self._best_cost = chosen, cost
                self._limit = self._scale.ceiling(self._scale.score(cost) - 1)
            return
        prefix = [self._counts[index] for index in chosen]
        before = None
        for index in range(start, len(self._counts) - missing + 1):
            count = self._counts[index]
            if count == before:
                continue  # like its neighbour, only later
            before = count
            if self._work > MAX_WORK:
                return
            self._work += self._width
            if self._bound([*prefix, count, *self._largest[index + 1][: missing - 1]]) <= self._limit:
                self._visit(index + 1, [*chosen, index])

    def _base(self, counts: Sequence[int]) -> int:
        """The cost of the even share."""
        return self._share * (self._width * self._size * self._share - 2 * sum(counts))

    def _bound(self, counts: Sequence[int]) -> int:
        """No split over members with these counts costs less."""
        taken = self._share * self._size
        return self._base(counts) + one_by_one([count - taken for count in counts], self._left, self._size)

    def _remainder(self, chosen: Sequence[int]) -> tuple[list[int], Remainder]:
        """The members that have a whole group to spare after the even share, and what is left over for them."""
        taken = self._share * self._size
        able = [index for index in chosen if self._counts[index] - taken >= self._size]
        return able, Remainder([self._counts[index] - taken for index in able], self._left, self._size)

    def _cost(self, chosen: Sequence[int]) -> int:
        """The cost of these members with the best way to hand out what is left over, or one that scores the same."""
        counts = [self._counts[index] for index in chosen]
        if not self._left:
            return self._base(counts)
        base = self._base(counts)
        _, remainder = self._remainder(chosen)
        self._work += remainder.work
        return base + remainder.lowest_cost(self._scale.ties(self._bound(counts)) - base)

    def _extras(self, chosen: Sequence[int], cost: int) -> Mapping[int, int]:
        """Groups beyond the even share by member: the first way whose score is that of this cost."""
        if not self._left:
            return {}
        able, remainder = self._remainder(chosen)
        base = self._base([self._counts[index] for index in chosen])
        return dict(zip(able, remainder.first(self._scale.ties(cost) - base), strict=True))
