"""Which NUMA nodes the masks of several families can have in common, without listing a single family.

A node is missing from an intersection if at least one of the masks leaves it out, and a mask can leave nodes out as long as
the others still meet its family's needs: that is the family's slack. So an intersection is possible if every node outside it
can be charged to one family, within all slacks. That is bin packing: hard in theory, easy on machines whose nodes resemble
each other. The search is exact unless the budget ends it, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from operator import mul, sub
from typing import TypeAlias

from agent.model.numa import NodeMask, node_ids
from agent.policy.hint_family import Found

BUDGET_STEPS = 20_000  # a step is about a microsecond of Python
BEAMS = (8, 256)  # how many ways of charging are followed side by side: first a few, then nearly all
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


@dataclass
class Packing:
    """The nodes that can be in the intersection, and the families that may leave some of them out."""

    nodes: NodeMask
    slacks: Sequence[Slack]
    budget: Budget = field(default_factory=Budget)

    def __post_init__(self) -> None:
        self.ids = node_ids(self.nodes)
        self.room: Room = tuple(limit for slack in self.slacks for limit in slack.limits)
        self._charges = [self._ways_to_charge(node) for node in self.ids]
        self.start(BEAMS[0])

    def start(self, beam: int) -> None:
        """Begin a search that follows at most `beam` ways of charging; `narrowed` says later whether there were more."""
        self._beam, self.narrowed = beam, False

    def _ways_to_charge(self, node: int) -> list[Room]:
        ways = []
        for rank, slack in enumerate(self.slacks):
            if node in slack.costs:
                way = []
                for other, each in enumerate(self.slacks):
                    way += list(slack.costs[node]) if other == rank else [0] * len(each.limits)
                ways.append(tuple(way))
        free = [way for way in ways if not any(way)]
        return free[:1] or list(dict.fromkeys(ways))

    def ideal(self, size: int) -> NodeMask:
        """The mask of the lowest `size` nodes: nothing can be lower."""
        return sum(1 << node for node in self.ids[:size])

    def lowest(self, size: int) -> Found:
        """The intersection of exactly `size` nodes with the lowest value."""
        ideal = self.ideal(size)
        best = None
        for beam in BEAMS:
            self.start(beam)
            try:
                found = self._lowest(len(self.ids), len(self.ids) - size, 0, [self.room])
            except BudgetExhaustedError:
                return Found(best, False)
            if found is not None and (best is None or found < best):
                best = found
            if best == ideal or not self.narrowed:
                return Found(best)
        return Found(best, False)

    def _lowest(self, index: int, drops: int, kept: NodeMask, rooms: list[Room]) -> NodeMask | None:
        """Decide on the nodes below `index`, highest first: out if that can work, for then the value is lowest."""
        if self._fits_in_one(index, drops, rooms):
            return kept | sum(1 << node for node in self.ids[: index - drops])
        rooms = self.promising(index, drops, rooms)
        if not rooms:
            return None
        charged = self.charge(index - 1, rooms)
        if charged:
            found = self._lowest(index - 1, drops - 1, kept, charged)
            if found is not None:
                return found
        return self._lowest(index - 1, drops, kept | 1 << self.ids[index - 1], rooms)

    def allows(self, mask: NodeMask) -> bool:
        """Whether the mask is one of the intersections. May say no where the beam is too narrow."""
        if any(min(map(sub, self.room, load), default=0) >= 0 for load in self._loads_outside(mask)):
            return True
        narrowed = self.narrowed
        rooms = [self.room]
        for index, node in enumerate(self.ids):
            if rooms and not mask >> node & 1:
                rooms = self.charge(index, rooms)
        self.narrowed = narrowed
        return bool(rooms)

    def _loads_outside(self, mask: NodeMask) -> Iterable[Room]:
        """What each family would have to leave out if it alone left out everything outside the mask."""
        outside = [rank for rank, node in enumerate(self.ids) if not mask >> node & 1]
        for sums, stuck in self._running_sums:
            if all(stuck[rank + 1] == stuck[rank] for rank in outside):
                loads = [tuple(map(sub, sums[rank + 1], sums[rank])) for rank in outside]
                yield tuple(map(sum, zip(*loads, strict=True))) if loads else (0,) * len(self.room)

    def charge(self, index: int, rooms: list[Room]) -> list[Room]:
        """Leave a node out: what can then be left of the slacks."""
        ways = self._charges[index]
        self.budget.spend(len(rooms) * len(ways) + 1)
        left = set()
        for room in rooms:
            for way in ways:
                rest = tuple(map(sub, room, way))
                if min(rest, default=0) >= 0:
                    left.add(rest)
        if len(left) <= self._beam:
            return list(left)
        best = _undominated(sorted(left, reverse=True), self.budget)
        if len(best) <= self._beam:
            return best
        self.narrowed = True
        return [best[rank * len(best) // self._beam] for rank in range(self._beam)]

    def _fits_in_one(self, index: int, drops: int, rooms: list[Room]) -> bool:
        """Whether one family can leave out all of the highest `drops` nodes below `index`."""
        if drops == 0:
            return True
        if drops > index:
            return False
        self.budget.spend(1)
        return any(
            min(map(sub, room, load), default=0) >= 0
            for load in self._loads_of_one_family(index, drops)
            for room in rooms
        )

    def _loads_of_one_family(self, index: int, drops: int) -> Iterable[Room]:
        for sums, stuck in self._running_sums:
            if stuck[index] == stuck[index - drops]:
                yield tuple(map(sub, sums[index], sums[index - drops]))

    @cached_property
    def _running_sums(self) -> list[tuple[list[Room], list[int]]]:
        """Per family: the charges of the lowest nodes up to each index, and how many of them it cannot leave out."""
        result = []
        at = 0
        for slack in self.slacks:
            sums, stuck = [(0,) * len(self.room)], [0]
            end = at + len(slack.limits)
            for node, ways in zip(self.ids, self._charges, strict=True):
                free = bool(ways) and not any(ways[0])
                total = list(sums[-1])
                if not free and node in slack.costs:
                    total[at:end] = map(int.__add__, total[at:end], slack.costs[node])
                sums.append(tuple(total))
                stuck.append(stuck[-1] + (not free and node not in slack.costs))
            result.append((sums, stuck))
            at = end
        return result

    def promising(self, index: int, drops: int, rooms: list[Room]) -> list[Room]:
        """Those rooms from which `drops` more nodes below `index` can perhaps be left out."""
        self.budget.spend(len(rooms))
        for weights, cheapest in self._bounds:
            if drops >= len(cheapest[index]):
                return []
            least = cheapest[index][drops]
            rooms = [room for room in rooms if sum(map(mul, weights, room)) >= least]
        return rooms

    @cached_property
    def _bounds(self) -> list[tuple[Room, list[list[int]]]]:
        """Weights of the needs, and for the nodes below each index the least weighted charge of leaving out 0, 1, 2, ...

        Whatever the weights: the charges add up to no more than the room. One need of each family is looked at at a time,
        its slack weighing the same as another family's.
        """
        result = []
        at = 0
        spans = []
        for slack in self.slacks:
            spans.append(range(at, at + len(slack.limits)))
            at += len(slack.limits)
        for chosen in list(product(*filter(None, spans)))[:8]:
            weights = tuple(
                _WEIGHTS // max(self.room[need], 1) if need in chosen else 0 for need in range(len(self.room))
            )
            cheapest = [[0]]
            costs: list[int] = []
            for ways in self._charges:
                if ways:
                    costs = sorted([*costs, min(sum(map(mul, weights, way)) for way in ways)])
                sums = [0]
                for cost in costs:
                    sums.append(sums[-1] + cost)
                cheapest.append(sums)
            result.append((weights, cheapest))
        return result


def _undominated(rooms: list[Room], budget: Budget) -> list[Room]:
    """Without the rooms that another one exceeds in nothing and undercuts in nothing. `rooms` is sorted, largest first."""
    best: list[Room] = []
    for room in rooms:
        budget.spend(len(best) // 4 + 1)
        if not any(min(map(sub, other, room), default=0) >= 0 for other in best):
            best.append(room)
    return best
