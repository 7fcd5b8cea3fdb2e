"""The best intersection of one mask of each offer, on machines too large for tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent.model.numa import NodeMask
from agent.policy.closest_search import best_of_size
from agent.policy.hint_family import CapacityHints, Found, Offer
from agent.policy.hint_narrowest import narrowest_size, slack_of
from agent.policy.node_packing import Budget, Packing, Slack
from agent.policy.numa_distances import NUMADistances, fittest

MOST_WAYS = 4096  # combinations of listed masks that are looked at for each offer
LAST_STEPS = 500  # for an answer of the right size once the budget is spent

_Way: TypeAlias = tuple[NodeMask, tuple[int, ...]]  # nodes left by listed masks; offers whose rule gives the mask


def best_intersection(offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> Found:
    """The best mask that is an intersection of one mask of each offer; sized for the offer that needs the most nodes.

    default: all nodes of the machine.
    """
    return _IntersectionSearch(offers, default, distances).run()


@dataclass(frozen=True, slots=True)
class _Part:
    """Intersections within `nodes`: all of them, less what the families with these slacks leave out."""

    nodes: NodeMask
    slacks: tuple[Slack, ...]

    @property
    def size(self) -> int:
        return self.nodes.bit_count()

    def lowest_value(self, size: int) -> NodeMask:
        """No mask of this size is lower: the lowest nodes."""
        rest = self.nodes
        for _ in range(size):
            rest &= rest - 1
        return self.nodes ^ rest


class _IntersectionSearch:
    """Each offer gives either a listed mask or one by its rule; combinations that restrict alike are looked at once."""

    def __init__(self, offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> None:
        self._offers, self._default, self._distances = offers, default, distances
        self._budget = Budget()
        self._exact = True

    def run(self) -> Found:
        target = max(map(self._narrowest_size, self._offers))
        parts = self._parts()
        best = self._of_size(parts, target)
        if best is None and not self._exact:
            best = self._by_one_family(parts, target)
        if best is None:
            best = self._other_size(parts, target)
        return Found(best, self._exact)

    def _narrowest_size(self, offer: Offer) -> int:
        if not isinstance(offer.hints, CapacityHints):
            return min(mask.bit_count() for mask in offer.listed)
        size, exact = narrowest_size(offer.hints, self._budget)
        self._exact &= exact
        return size

    def _parts(self) -> list[_Part]:
        """Every way to restrict the nodes by listed masks, with the rules of the offers that gave none of theirs."""
        ways: dict[_Way, None] = {(self._default, ()): None}
        rules: list[CapacityHints] = []
        for offer in self._offers:
            masks = {*offer.listed, self._default} if offer.anywhere else set(offer.listed)
            most = max(MOST_WAYS // max(len(ways), 1), 1)
            if len(masks) > most:  # the widest leave most to the others
                self._exact = False
                masks = set(sorted(masks, key=lambda mask: (-mask.bit_count(), mask))[:most])
            longer: dict[_Way, None] = {
                (nodes & mask, chosen): None for nodes, chosen in ways for mask in masks if nodes & mask
            }
            if isinstance(offer.hints, CapacityHints) and offer.hints.is_open():
                rule = next((rank for rank, known in enumerate(rules) if known is offer.hints), len(rules))
                if rule == len(rules):
                    rules.append(offer.hints)
                for nodes, chosen in ways:
                    if nodes & offer.hints.nodes:
                        longer[nodes & offer.hints.nodes, tuple(sorted((*chosen, rule)))] = None
            ways = longer
        slacks = [slack_of((rule,), rule.nodes) for rule in rules]
        return [
            _Part(nodes, tuple(slack for rank in chosen if (slack := slacks[rank]) is not None))
            for nodes, chosen in ways
        ]

    def _of_size(self, parts: Sequence[_Part], size: int) -> NodeMask | None:
        if size < 1:
            return None
        best = fittest((part.nodes for part in parts if part.size == size), size, self._distances)
        wider = [part for part in parts if part.size > size and part.slacks]
        for part in sorted(wider, key=lambda part: part.lowest_value(size)):
            if best is not None and self._distances is None and part.lowest_value(size) >= best:
                break
            found = best_of_size(Packing(part.nodes, part.slacks, self._budget), size, self._distances, best)
            self._exact &= found.exact
            if found.mask is not None:
                best = fittest([found.mask] if best is None else [found.mask, best], size, self._distances)
        return best

    def _by_one_family(self, parts: Sequence[_Part], size: int) -> NodeMask | None:
        """The budget is spent: a mask of this size all the same, if one family can leave out all the rest."""
        for part in parts:
            for slack in part.slacks if part.size >= size else ():
                found = Packing(part.nodes, (slack,), Budget(LAST_STEPS)).lowest(size)
                if found.mask is not None:
                    return found.mask
        return None

    def _other_size(self, parts: Sequence[_Part], target: int) -> NodeMask | None:
        """No intersection has the size aimed at: the largest smaller one, else the smallest larger one.

        A part's own nodes are always possible, and with a mask every wider one within the part.
        """
        smaller = [part.nodes for part in parts if part.size < target]
        if smaller:
            return fittest(smaller, target, self._distances)
        for size in range(target + 1, max((part.size for part in parts), default=0) + 1):
            best = self._of_size(parts, size)
            if best is not None:
                return best
        return None
