"""Which NUMA nodes the masks of several families can have in common, without listing a single family.

A node is missing from an intersection if at least one of the masks leaves it out, and a mask can leave nodes out as long as
the others still meet its family's needs: that is the family's slack. So an intersection is possible if every node outside it
can be charged to one family, within all slacks. That is bin packing: hard in theory, easy on machines whose nodes resemble
each other. The search is exact unless the budget ends it, and says so.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, product
from operator import add, mul, sub
from typing import TypeAlias

from agent.model.numa import NodeMask, node_ids
from agent.policy.hint_family import Found

BUDGET_STEPS = 10_000  # a step is one or two microseconds of Python
BEAMS = (8, 64)  # how many ways of charging are followed side by side: first a few, then many
_WEIGHTS = 1 << 64  # scale of the integer weights; far above the bytes of any machine

Room: TypeAlias = tuple[int, ...]  # what is left of every slack, need by need


@dataclass(frozen=True, slots=True)
class Slack:
    """What one family can do without.

    limits: per need, how much may be left out. costs: node -> what goes with it, per need; a node not in here has to stay.
    """

    limits: tuple[int, ...]
    costs: Mapping[int, tuple[int, ...]]


@dataclass(slots=True)
class Budget:
    """Steps left for one decision."""

    steps: int = BUDGET_STEPS

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise BudgetExhaustedError


class BudgetExhaustedError(Exception):
    """Ends a search from within; the search says so in its result."""


@dataclass(frozen=True, slots=True)
class Rooms:
    """What can be left of the slacks once some nodes are charged. complete: False where only the beam's share is in `each`."""

    each: list[Room]
    complete: bool = True


class Packing:
    """nodes: those that can be in the intersection. slacks: of the families, each may leave some of them out."""

    def __init__(self, nodes: NodeMask, slacks: Sequence[Slack], budget: Budget) -> None:
        self.nodes, self.slacks, self.budget = nodes, slacks, budget
        self.ids = node_ids(nodes)
        self.room: Room = tuple(limit for slack in slacks for limit in slack.limits)
        self._spans = _spans(slacks)
        self._twins = [
            [span for span, other in zip(self._spans, slacks, strict=True) if other is slack]
            for rank, slack in enumerate(slacks)
            if slack in slacks[rank + 1 :] and slack not in slacks[:rank]
        ]
        self._charges = [self._ways_to_charge(node) for node in self.ids]
        self.start(BEAMS[0])

    def start(self, beam: int) -> None:
        """Begin a search that follows at most `beam` ways of charging; `doubtful` says later whether that missed something."""
        self._beam, self.doubtful = beam, False

    def _ways_to_charge(self, node: int) -> list[Room]:
        """One way per family that can leave the node out; a single one where that costs some family nothing."""
        ways = []
        for slack, span in zip(self.slacks, self._spans, strict=True):
            if node in slack.costs:
                way = [0] * len(self.room)
                way[span] = slack.costs[node]
                ways.append(tuple(way))
        free = [way for way in ways if not any(way)]
        return free[:1] or ways

    def lowest(self, size: int) -> Found:
        """The intersection of exactly `size` nodes with the lowest value."""
        best = None
        for beam in BEAMS:
            self.start(beam)
            try:
                found = self._lowest(len(self.ids), len(self.ids) - size, 0, Rooms([self.room]))
            except BudgetExhaustedError:
                return Found(best, False)
            if found is not None and (best is None or found < best):
                best = found
            if not self.doubtful:
                return Found(best)
        return Found(best, False)

    def _lowest(self, index: int, drops: int, kept: NodeMask, rooms: Rooms) -> NodeMask | None:
        """Decide on the nodes below `index`, highest first: out if that can work, for then the value is lowest."""
        if self._fits_in_one(index, drops, rooms):
            return kept | sum(1 << node for node in self.ids[: index - drops])
        rooms = self.promising(index, drops, kept, rooms)
        if not rooms.each:
            return None
        found = self._lowest(index - 1, drops - 1, kept, self.charge(index - 1, rooms))
        if found is not None:
            return found
        return self._lowest(index - 1, drops, kept | 1 << self.ids[index - 1], rooms)

    def allows(self, mask: NodeMask) -> bool:
        """Whether the mask is one of the intersections. May say no where the beam is too narrow."""
        if any(_covers(self.room, load) for load in self._loads_outside(mask)):
            return True
        rooms = Rooms([self.room])
        for index, node in enumerate(self.ids):
            if not mask >> node & 1:
                rooms = self.charge(index, rooms)
        return bool(rooms.each)

    def _loads_outside(self, mask: NodeMask) -> Iterator[Room]:
        """What each family would have to leave out if it alone left out everything outside the mask."""
        outside = [rank for rank, node in enumerate(self.ids) if not mask >> node & 1]
        for sums, stuck in self._running_sums:
            if all(stuck[rank + 1] == stuck[rank] for rank in outside):
                loads = [tuple(map(sub, sums[rank + 1], sums[rank])) for rank in outside]
                yield tuple(map(sum, zip(*loads, strict=True))) if loads else (0,) * len(self.room)

    def charge(self, index: int, rooms: Rooms) -> Rooms:
        """Leave the node at `index` out: what can then be left of the slacks, nothing if it does not fit."""
        ways = self._charges[index]
        self.budget.spend(len(rooms.each) * len(ways) + 1)
        left = {rest for room in rooms.each for way in ways if min(rest := tuple(map(sub, room, way)), default=0) >= 0}
        if len(left) <= self._beam:
            return Rooms(list(left), rooms.complete)
        best = _undominated(sorted({self._sorted_twins(room) for room in left}, reverse=True), self.budget)
        if len(best) <= self._beam:
            return Rooms(best, rooms.complete)
        return Rooms([best[rank * len(best) // self._beam] for rank in range(self._beam)], complete=False)

    def _sorted_twins(self, room: Room) -> Room:
        """The room with the slacks of one and the same family in order: it does not matter which of them was charged."""
        if not self._twins:
            return room
        result = list(room)
        for spans in self._twins:
            for span, part in zip(spans, sorted((room[span] for span in spans), reverse=True), strict=True):
                result[span] = part
        return tuple(result)

    def _fits_in_one(self, index: int, drops: int, rooms: Rooms) -> bool:
        """Whether one family can leave out all of the highest `drops` nodes below `index`."""
        if drops > index or not rooms.each:
            return False
        if drops == 0:
            return True
        self.budget.spend(1)
        return any(
            _covers(room, tuple(map(sub, sums[index], sums[index - drops])))
            for sums, stuck in self._running_sums
            if stuck[index] == stuck[index - drops]
            for room in rooms.each
        )

    @cached_property
    def _running_sums(self) -> list[tuple[list[Room], list[int]]]:
        """Per family: the charges of the lowest nodes up to each index, and how many of them it cannot leave out."""
        result = []
        for slack, span in zip(self.slacks, self._spans, strict=True):
            total = [0] * len(self.room)
            sums, stuck = [tuple(total)], [0]
            for node, ways in zip(self.ids, self._charges, strict=True):
                free = bool(ways) and not any(ways[0])
                if not free and node in slack.costs:
                    total[span] = map(add, total[span], slack.costs[node])
                sums.append(tuple(total))
                stuck.append(stuck[-1] + (not free and node not in slack.costs))
            result.append((sums, stuck))
        return result

    def promising(self, index: int, drops: int, kept: NodeMask, rooms: Rooms) -> Rooms:
        """Those rooms from which `drops` more nodes below `index` can perhaps be left out.

        kept: the nodes from `index` on that stay. Where none is left although not all were followed, the search becomes
        doubtful, unless no room at all could have been enough.
        """
        each = rooms.each
        self.budget.spend(len(each) + 1)
        for weights, _, cheapest in self._bounds:
            if drops >= len(cheapest[index]):
                return Rooms([])
            least = cheapest[index][drops]
            each = [room for room in each if sum(map(mul, weights, room)) >= least]
        if not each and not rooms.complete and not self.doubtful:
            self.doubtful = not self._is_hopeless(index, drops, kept)
        return Rooms(each, rooms.complete)

    def _is_hopeless(self, index: int, drops: int, kept: NodeMask) -> bool:
        """Whether the nodes from `index` on that do not stay, and `drops` more, are too much however they are charged."""
        out = [rank for rank in range(index, len(self.ids)) if not kept >> self.ids[rank] & 1]
        self.budget.spend(len(out))
        return any(
            sum(costs[rank] for rank in out) + cheapest[index][drops] > sum(map(mul, weights, self.room))
            for weights, costs, cheapest in self._bounds
        )

    @cached_property
    def _bounds(self) -> list[tuple[Room, list[int], list[list[int]]]]:
        """Weights of the needs; every node's least weighted charge; and, for the nodes below each index, the least sum of the
        charges of 0, 1, 2, ... of them.

        Whatever the weights: the charges add up to no more than the room. One need of each family is looked at at a time,
        its slack weighing the same as another family's.
        """
        result = []
        for chosen in list(product(*(range(span.start, span.stop) for span in self._spans if span.start < span.stop)))[
            :8
        ]:
            weights = tuple(_WEIGHTS // max(limit, 1) if need in chosen else 0 for need, limit in enumerate(self.room))
            costs = [min((sum(map(mul, weights, way)) for way in ways), default=0) for ways in self._charges]
            cheapest = [[0]]
            movable: list[int] = []
            for cost, ways in zip(costs, self._charges, strict=True):
                if ways:
                    insort(movable, cost)
                cheapest.append(list(accumulate(movable, initial=0)))
            result.append((weights, costs, cheapest))
        return result


def _spans(slacks: Sequence[Slack]) -> list[slice]:
    """Where each family's needs are in a room."""
    ends = list(accumulate((len(slack.limits) for slack in slacks), initial=0))
    return [slice(start, end) for start, end in pairwise(ends)]


def _covers(room: Room, load: Room) -> bool:
    return min(map(sub, room, load), default=0) >= 0


def _undominated(rooms: list[Room], budget: Budget) -> list[Room]:
    """Without the rooms that another one exceeds in nothing and undercuts in nothing. `rooms` is sorted, largest first."""
    best: list[Room] = []
    for room in rooms:
        budget.spend(len(best) // 4 + 1)
        if not any(_covers(other, room) for other in best):
            best.append(room)
    return best
