"""Handing out what is left after an even share: the groups that a distributed request has beyond it (see `cpu_balance`).

The kubelet (cm/cpumanager/cpu_assignment.go, takeByTopologyNUMADistributed) tries every subset of the nodes that have a whole
group to spare, from large to small ones, in lexicographic order within a size. Over a subset the groups go round by round, one
to every node that still has one. A subset that lacks the groups is passed over here; the kubelet never ends on one whose
loose CPUs add up (kubernetes/kubernetes#140730).

A cost is what an outcome adds to the sum of squares of the nodes' free CPUs, divided by the group size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from heapq import heapify, heapreplace

NEVER = 1 << 62  # about the cost of what cannot be done; far above any real cost


def one_by_one(spare: Sequence[int], left: int, group_size: int) -> int:
    """The cost of handing out each group to the node that has most CPUs left: no other way costs less."""
    if not left:
        return 0
    heap = [-cpus for cpus in spare]  # heapq keeps the smallest first
    heapify(heap)
    cost = 0
    for _ in range(left):
        most = -heap[0]
        if most < group_size:
            return NEVER
        cost += group_size - 2 * most
        heapreplace(heap, group_size - most)
    return cost


@dataclass(frozen=True, slots=True)
class _State:
    """A subset being built node by node: what is still to choose, and what it gives so far.

    rounds: full rounds that its nodes take part in; more: whether the partial round behind them still goes on.
    """

    members: int
    left: int
    rounds: int
    more: bool
    allowed: int  # the most that the rest may cost
    given: tuple[int, ...]


class Remainder:
    """`left` groups to hand out, at least one, over nodes that can give so many together.

    spare: free CPUs of every node that has at least a whole group, in picking order.
    """

    def __init__(self, spare: Sequence[int], left: int, group_size: int) -> None:
        self._spare = spare
        self._left = left
        self._size = group_size
        self._groups = [cpus // group_size for cpus in spare]
        self._lowest_by_rounds = cache(self._lowest_after)
        self._cost_of_some = cache(self._some_cost)

    @property
    def work(self) -> int:
        """The steps that `lowest_cost` takes at most."""
        return len(self._spare) * self._left * len(self._all_rounds)

    def lowest_cost(self, enough: int) -> int:
        """The lowest cost of any subset, or the first cost found that is no more than `enough`."""
        cost = NEVER
        if len(self._spare) >= self._left:
            cost = self._left * self._size - 2 * sum(sorted(self._spare)[-self._left :])
        for rounds in self._all_rounds:
            if cost <= enough:
                break
            cost = min(cost, self._lowest_by_rounds(rounds))
        return cost

    def first(self, limit: int) -> Sequence[int]:
        """Groups per node for the first subset whose cost is within the limit. There must be one."""
        givers = self._first_single(limit)
        if givers is not None:
            return givers
        for members in range(min(len(self._spare), self._left - 1), 0, -1):
            given = self._first_of_size(members, limit)
            if given is not None:
                return given
        raise AssertionError(
            f"no way to hand out {self._left} groups of {self._size} from {self._spare} within {limit}"
        )

    @property
    def _all_rounds(self) -> range:
        return range(1, min(self._left, max(self._groups)) + 1)

    def _first_single(self, limit: int) -> Sequence[int] | None:
        """The first subset of `left` nodes or more: its first `left` nodes give one group each, the others nothing.

        The larger the subset, the fewer nodes at the end of the order can be givers.
        """
        left = self._left
        wanted = -((limit - left * self._size) // 2)  # CPUs that the givers must have to spare together
        for reach in range(left, len(self._spare) + 1):
            spare = self._spare[:reach]
            if sum(sorted(spare)[-left:]) >= wanted:
                break
        else:
            return None
        given = [0] * len(self._spare)
        for place, cpus in enumerate(spare):
            behind = sorted(spare[place + 1 :], reverse=True)[: left - 1]
            if len(behind) == left - 1 and cpus + sum(behind) >= wanted:
                given[place] = 1
                wanted -= cpus
                left -= 1
                if not left:
                    break
        return given

    def _gives(self, place: int, rounds: int, more: bool) -> list[tuple[int, bool]]:
        """What a chosen node may give, and whether the partial round goes on behind it."""
        groups = self._groups[place]
        if groups <= rounds:
            return [(groups, more)]
        return [(rounds + 1, True), (rounds, False)] if more else [(rounds, False)]

    def _cost(self, place: int, groups: int) -> int:
        return groups * (self._size * groups - 2 * self._spare[place])

    def _lowest_after(self, rounds: int) -> int:
        """The lowest cost of any subset whose nodes take part in so many full rounds and a partial one.

        Built from the last node to the first: costs by number of groups, while the partial round goes on and after its end.
        """
        going_on = ended = [0] + [NEVER] * self._left
        for place in reversed(range(len(self._spare))):
            groups = min(self._groups[place], rounds)
            cost = self._cost(place, groups)
            taken = [min(skip, take + cost) for skip, take in zip(ended[groups:], ended, strict=False)]
            if self._groups[place] > rounds:
                one_more = self._cost(place, groups + 1)
                best = [
                    min(skip, take + one_more) for skip, take in zip(going_on[groups + 1 :], going_on, strict=False)
                ]
                going_on = going_on[: groups + 1] + best
                going_on[groups:] = map(min, going_on[groups:], taken)
            else:
                best = [min(skip, take + cost) for skip, take in zip(going_on[groups:], going_on, strict=False)]
                going_on = going_on[:groups] + best
            ended = ended[:groups] + taken
        return going_on[self._left]

    def _some_cost(self, start: int, members: int, left: int, rounds: int, more: bool) -> int:
        """The lowest cost of `left` groups from exactly `members` of the nodes from `start` on."""
        if not members:
            return NEVER if left else 0
        if len(self._spare) - start < members or not members <= left <= members * (rounds + 1):
            return NEVER
        cost = self._cost_of_some(start + 1, members, left, rounds, more)
        for groups, goes_on in self._gives(start, rounds, more):
            rest = self._cost_of_some(start + 1, members - 1, left - groups, rounds, goes_on)
            cost = min(cost, rest + self._cost(start, groups))
        return cost

    def _first_of_size(self, members: int, limit: int) -> Sequence[int] | None:
        """The first subset of this size, smaller than `left`."""
        alive = [
            _State(members, self._left, rounds, True, limit, ())
            for rounds in self._all_rounds
            if self._lowest_by_rounds(rounds) <= limit
            and self._cost_of_some(0, members, self._left, rounds, True) <= limit
        ]
        if not alive:
            return None
        for place in range(len(self._spare)):
            taking = []
            for state in alive:
                for groups, goes_on in self._gives(place, state.rounds, state.more):
                    allowed = state.allowed - self._cost(place, groups)
                    rest = (state.members - 1, state.left - groups, state.rounds, goes_on)
                    if self._cost_of_some(place + 1, *rest) <= allowed:
                        taking.append(_State(*rest, allowed, (*state.given, groups)))
            alive = taking or [
                replace(state, given=(*state.given, 0))
                for state in alive
                if self._cost_of_some(place + 1, state.members, state.left, state.rounds, state.more) <= state.allowed
            ]
        return alive[0].given
