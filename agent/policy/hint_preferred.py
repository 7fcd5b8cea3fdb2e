"""The best mask that every offer prefers, on machines too large for tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from agent.model.cpuset import bits
from agent.model.numa import NodeMask
from agent.policy.closest_search import best_of_size
from agent.policy.hint_family import CapacityHints, Found, Hint, Need, Offer
from agent.policy.hint_narrowest import least_size, slack_of
from agent.policy.node_packing import Budget, BudgetExhaustedError, Packing
from agent.policy.numa_distances import NUMADistances, fittest


def best_preferred(offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> Found:
    """The best mask that is preferred by every offer at once. default: all nodes of the machine."""
    return _PreferredSearch(offers, default, distances).run()


class _PreferredSearch:
    """Masks of the rules are searched for, masks that are listed anywhere are looked at one by one."""

    def __init__(self, offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> None:
        self._offers, self._default, self._distances = offers, default, distances
        self._budget = Budget()
        self._exact = True
        self._preferred = [_preferred_masks(offer.hints) for offer in offers]

    def run(self) -> Found:
        listed = {mask for offer in self._offers for mask in offer.listed if self._all_prefer(mask)}
        best = self._fittest([mask & self._default for mask in listed if mask & self._default])
        # an offer that also takes any node does not restrict the others
        strict = [offer.hints for offer in self._offers if not offer.anywhere_preferred]
        families = [hints for hints in strict if isinstance(hints, CapacityHints)]
        if families and len(families) == len(strict):
            try:
                best = self._by_rules(families, best)
            except BudgetExhaustedError:
                self._exact = False
        return Found(best, self._exact)

    def _all_prefer(self, mask: NodeMask) -> bool:
        named = False
        for offer, preferred in zip(self._offers, self._preferred, strict=True):
            if isinstance(offer.hints, CapacityHints):
                prefers = offer.hints.prefers(mask) and offer.hints.admits(mask)
            else:
                prefers = mask in preferred
            if not prefers and not offer.anywhere_preferred:
                return False
            named |= prefers
        return named

    def _fittest(self, masks: Iterable[NodeMask]) -> NodeMask | None:
        return fittest(masks, 1, self._distances)

    def _by_rules(self, families: list[CapacityHints], best: NodeMask | None) -> NodeMask | None:
        nodes = self._default
        for family in families:
            nodes &= family.nodes
        fixed = {family.preferred_size for family in families if not family.sockets}
        if len(fixed) > 1:
            return best
        least = max(map(least_size, families))
        most = nodes.bit_count() if best is None else best.bit_count()
        for size in fixed or range(max(least, 1), most + 1):
            found = self._of_size(families, nodes, size)
            if found is not None:
                return found if best is None else self._fittest([found, best])
        return best

    def _of_size(self, families: list[CapacityHints], nodes: NodeMask, size: int) -> NodeMask | None:
        by_socket = [family for family in families if family.sockets and family.preferred_size != size]
        found = []
        for part, touching in _socket_choices(by_socket, nodes):
            self._budget.spend(part.bit_count())
            slack = slack_of([*families, *touching], part)
            if slack is not None and size <= part.bit_count():
                found.append(best_of_size(Packing(part, (slack,), self._budget), size, self._distances))
        self._exact &= all(result.exact for result in found)
        return self._fittest(result.mask for result in found if result.mask is not None)


def _preferred_masks(hints: CapacityHints | tuple[Hint, ...]) -> frozenset[NodeMask | None]:
    """The masks of the listed hints that are preferred."""
    if isinstance(hints, CapacityHints):
        return frozenset()
    return frozenset(hint.affinity for hint in hints if hint.preferred)


def _socket_choices(aligned: list[CapacityHints], nodes: NodeMask) -> Iterable[tuple[NodeMask, list[CapacityHints]]]:
    """The ways to span the right number of sockets: the nodes within them, and the rule that each of them is touched."""
    if not aligned:
        yield nodes, []
        return
    sockets, count = aligned[0].sockets, aligned[0].socket_count  # there is one CPU manager
    every = 0
    for node in bits(nodes):
        every |= sockets.get(node, 0)
    for chosen in combinations(bits(every), count):
        within = sum(1 << socket for socket in chosen)
        part = sum(1 << node for node in bits(nodes) if not sockets.get(node, 0) & ~within)
        touched = tuple(
            Need({node: 1 for node in bits(part) if sockets.get(node, 0) >> socket & 1}, 1) for socket in chosen
        )
        yield part, [CapacityHints(part, touched, 0)]
