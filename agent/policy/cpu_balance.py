"""How many CPUs each NUMA node gives when a request is distributed: the kubelet's search for the best balance, without its loops.

The kubelet (cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed) tries every combination of `width` nodes. Each
member gives an even share of whole groups; the groups left over go round-robin over a subset of the members, and every
subset is tried too, larger ones first. The lowest standard deviation of what is free afterwards wins, the first found on ties.

This finds the same answer: combinations in the same order, but cut off where a bound shows that they cannot win, and the best
subset by dynamic programming. Nodes with equal counts side by side are interchangeable, so only the first of them is tried.
Exact up to MAX_BOUNDS evaluated bounds, which no machine of up to 12 nodes reaches; beyond, the best split found so far, which
is at least that of the `width` nodes with the most free CPUs.

Two faults of the kubelet's are left out: it remembers its best combination in memory that it goes on writing to, and it never
ends on a subset that holds enough CPUs but not enough whole groups (kubernetes/kubernetes#140730).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import heapify, heapreplace
from math import isqrt

MAX_BOUNDS = 20_000  # bounds evaluated in one search: some 0.2 s of work

_NEVER = 1 << 62  # the cost of what cannot be done


@dataclass(frozen=True, slots=True)
class _Scale:
    """Turns costs into the kubelet's score: the standard deviation in thousandths, rounded half away from zero.

    A cost is what a split adds to the sum of squares of the nodes' free counts, divided by the group size. It orders splits as
    the score does, but the score is coarser: rounding makes ties, and on ties the first found wins.
    """

    nodes: int
    group_size: int
    squares: int  # sum of squared free counts before
    free_after: int  # sum of free counts afterwards

    @property
    def _mean(self) -> int:
        return (2000 * self.free_after + self.nodes) // (2 * self.nodes)

    @property
    def _offset(self) -> int:
        return 1_000_000 * self.squares - 2000 * self._mean * self.free_after + self.nodes * self._mean**2

    def score(self, cost: int) -> int:
        deviations = self._offset + 1_000_000 * self.group_size * cost
        return (isqrt(4 * deviations // self.nodes) + 1) // 2

    def ceiling(self, score: int) -> int:
        """The largest cost that still rounds to this score or less; for a score below zero nothing does."""
        if score < 0:
            return -_NEVER
        deviations = (self.nodes * (2 * score + 1) ** 2 - 1) // 4
        return (deviations - self._offset) // (1_000_000 * self.group_size)


def best_split(counts: Sequence[int], width: int, groups: int, group_size: int) -> tuple[int, ...] | None:
    """How many groups each node gives, parallel to `counts`; None where no `width` nodes can share `groups` groups evenly.

    counts: free CPUs per NUMA node, in picking order. Every member gives groups // width groups, or more.
    """
    share, left = divmod(groups, width)
    members = [node for node, count in enumerate(counts) if count >= share * group_size]
    if len(members) < width or sum(sorted(count // group_size for count in counts)[-width:]) < groups:
        return None
    scale = _Scale(len(counts), group_size, sum(c * c for c in counts), sum(counts) - groups * group_size)
    search = _Search([counts[node] for node in members], width, share, left, scale)
    split = [0] * len(counts)
    for index, extra in search.run():
        split[members[index]] = share + extra
    return tuple(split)


def _one_by_one(spare: Sequence[int], left: int, group_size: int) -> int:
    """The cost of handing out each group to the node that has most CPUs left: no other way costs less."""
    if not left:
        return 0
    heap = [-cpus for cpus in spare]  # heapq keeps the smallest first
    heapify(heap)
    cost = 0
    for _ in range(left):
        most = -heap[0]
        if most < group_size:
            return _NEVER
        cost += group_size - 2 * most
        heapreplace(heap, group_size - most)
    return cost


Chosen = tuple[tuple[int, int], ...]  # (index into counts, groups beyond the even share) of every member


class _Search:
    """Combinations of `width` out of `counts` in lexicographic order, for one best; see the module's text."""

    def __init__(self, counts: list[int], width: int, share: int, left: int, scale: _Scale) -> None:
        self._counts = counts
        self._width = width
        self._share = share
        self._left = left
        self._scale = scale
        self._largest = [sorted(counts[start:], reverse=True) for start in range(len(counts) + 1)]
        self._best: Chosen = ()
        self._limit = 0
        self._bounds = 0

    def run(self) -> Chosen:
        by_count = sorted(range(len(self._counts)), key=lambda index: -self._counts[index])
        richest = sorted(by_count[: self._width])
        cost, self._best = self._evaluate(richest)
        self._limit = self._scale.ceiling(self._scale.score(cost))  # a combination before it may be as good
        self._visit(0, [])
        return self._best

    def _base(self, counts: Sequence[int]) -> int:
        """The cost of the even share."""
        return self._share * (self._width * self._scale.group_size * self._share - 2 * sum(counts))

    def _bound(self, counts: Sequence[int]) -> int:
        """No split over nodes with these counts costs less."""
        taken = self._share * self._scale.group_size
        return self._base(counts) + _one_by_one([count - taken for count in counts], self._left, self._scale.group_size)

    def _visit(self, start: int, chosen: list[int]) -> None:
        missing = self._width - len(chosen)
        if not missing:
            cost, found = self._evaluate(chosen)
            if cost <= self._limit:
                self._best = found
                self._limit = self._scale.ceiling(self._scale.score(cost) - 1)
            return
        before = None
        prefix = [self._counts[index] for index in chosen]
        for index in range(start, len(self._counts) - missing + 1):
            count = self._counts[index]
            if count == before:
                continue  # like its neighbour, only later
            before = count
            self._bounds += 1
            if self._bounds > MAX_BOUNDS:
                return
            if self._bound([*prefix, count, *self._largest[index + 1][: missing - 1]]) <= self._limit:
                self._visit(index + 1, [*chosen, index])

    def _evaluate(self, chosen: Sequence[int]) -> tuple[int, Chosen]:
        """The best way to hand out what is left over these members, and its cost."""
        counts = [self._counts[index] for index in chosen]
        base = self._base(counts)
        if not self._left:
            return base, tuple((index, 0) for index in chosen)
        size = self._scale.group_size
        spare = [count - self._share * size for count in counts]
        open_members = [place for place, cpus in enumerate(spare) if cpus >= size]
        remainder = _Remainder([spare[place] for place in open_members], self._left, base, self._scale)
        extras = [0] * len(chosen)
        for place, extra in zip(open_members, remainder.best(), strict=True):
            extras[place] = extra
        cost = base + sum(extra * (size * extra - 2 * cpus) for extra, cpus in zip(extras, spare, strict=True))
        return cost, tuple(zip(chosen, extras, strict=True))


@dataclass(frozen=True, slots=True)
class _State:
    """A subset being built member by member: what is still to choose, and what it gives so far.

    rounds: full rounds that members take part in; more: whether the partial round behind them still goes on.
    """

    members: int
    left: int
    rounds: int
    more: bool
    allowed: int  # the most that the rest may cost
    extras: tuple[int, ...]


class _Remainder:
    """Handing out `left` single groups round-robin over a subset of the members that have a whole group to spare.

    spare: their free CPUs after the even share, in picking order. A round gives one group to every member of the subset that
    still has one, so a subset of `left` or more members gives its first `left` members one group each.
    """

    def __init__(self, spare: list[int], left: int, base: int, scale: _Scale) -> None:
        self._spare = spare
        self._left = left
        self._base = base
        self._scale = scale
        self._size = scale.group_size
        self._groups = [cpus // self._size for cpus in spare]
        self._cost_of_rounds = cache(self._rounds_cost)

    def best(self) -> list[int]:
        """Groups per member for the first of the best subsets: from large to small ones, each size in lexicographic order."""
        limit = self._scale.ceiling(self._scale.score(self._base + self._lowest())) - self._base
        for members in range(len(self._spare), 0, -1):
            extras = self._first_ones(members, limit) if members >= self._left else self._first_rounds(members, limit)
            if extras is not None:
                return extras
        raise AssertionError(f"no subset of {self._spare} hands out {self._left} groups")

    def _lowest(self) -> int:
        """The lowest cost of any subset."""
        cost = _NEVER
        if len(self._spare) >= self._left:
            cost = self._left * self._size - 2 * sum(sorted(self._spare)[-self._left :])
            bound = _one_by_one(self._spare, self._left, self._size)
            if self._scale.score(self._base + cost) == self._scale.score(self._base + bound):
                return cost
        for members in range(min(len(self._spare), self._left - 1), 0, -1):
            for rounds in self._rounds(members):
                cost = min(cost, self._cost_of_rounds(0, members, self._left, rounds, True))
        return cost

    def _first_ones(self, members: int, limit: int) -> list[int] | None:
        """The first subset of at least `left` members within the limit. Only the first `left` of them give anything."""
        reach = len(self._spare) - members + self._left
        spare = self._spare[:reach]
        wanted = -((limit - self._left * self._size) // 2)  # CPUs that the givers must have to spare together
        extras = [0] * len(self._spare)
        left = self._left
        for place, cpus in enumerate(spare):
            if (
                left
                and cpus + sum(sorted(spare[place + 1 :], reverse=True)[: left - 1]) >= wanted
                and reach - place >= left
            ):
                extras[place] = 1
                wanted -= cpus
                left -= 1
        return None if left else extras

    def _rounds(self, members: int) -> range:
        """How many full rounds a subset of this size can take: one number, unless a member may run out before the end."""
        least = self._left // members
        if min(self._groups) > least:
            return range(least, least + 1)
        return range(least, self._left + 1)

    def _gives(self, place: int, rounds: int, more: bool) -> list[tuple[int, bool]]:
        """What a member may give after so many full rounds, and whether the last round, a partial one, goes on behind it."""
        groups = self._groups[place]
        if groups <= rounds:
            return [(groups, more)]
        return [(rounds + 1, True), (rounds, False)] if more else [(rounds, False)]

    def _rounds_cost(self, start: int, members: int, left: int, rounds: int, more: bool) -> int:
        """The lowest cost of `left` groups from `members` members out of those from `start` on."""
        if not members:
            return _NEVER if left else 0
        if len(self._spare) - start < members or not members <= left <= members * (rounds + 1):
            return _NEVER
        cost = self._cost_of_rounds(start + 1, members, left, rounds, more)
        for extra, goes_on in self._gives(start, rounds, more):
            rest = self._cost_of_rounds(start + 1, members - 1, left - extra, rounds, goes_on)
            cost = min(cost, rest + extra * (self._size * extra - 2 * self._spare[start]))
        return cost

    def _first_rounds(self, members: int, limit: int) -> list[int] | None:
        """The first subset of fewer than `left` members within the limit."""
        cost_of = self._cost_of_rounds
        alive = [_State(members, self._left, rounds, True, limit, ()) for rounds in self._rounds(members)]
        alive = [state for state in alive if cost_of(0, members, self._left, state.rounds, True) <= limit]
        if not alive:
            return None
        for place, spare in enumerate(self._spare):
            taking = []
            for state in alive:
                for extra, goes_on in self._gives(place, state.rounds, state.more):
                    allowed = state.allowed - extra * (self._size * extra - 2 * spare)
                    after = (state.members - 1, state.left - extra, state.rounds, goes_on)
                    if cost_of(place + 1, *after) <= allowed:
                        taking.append(_State(*after, allowed, (*state.extras, extra)))
            alive = taking or [
                replace(state, extras=(*state.extras, 0))
                for state in alive
                if cost_of(place + 1, state.members, state.left, state.rounds, state.more) <= state.allowed
            ]
        return list(alive[0].extras)
