"""The best common mask of families of hints on large machines: every family as what it can leave out, no set listed.

Bounded work: a result says whether it is proven to be the best. Small machines: `agent.policy.hint_tables`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from agent.model.cpuset import bits
from agent.model.numa import NodeMask
from agent.policy.closest_search import closest
from agent.policy.hint_family import CapacityHints, Found, Need, Offer
from agent.policy.node_packing import Budget, BudgetExhaustedError, Packing, Slack
from agent.policy.numa_distances import NUMADistances, fittest

MOST_WAYS = 4096  # combinations of listed masks that are followed
LAST_STEPS = 500  # for an answer of the right size once the budget is spent


def narrowest(hints: CapacityHints, containing: NodeMask = 0) -> Found:
    """The hint with the fewest nodes, then the lowest value, among those whose mask has all nodes of `containing`."""
    listed = fittest((mask for mask in hints.others if not containing & ~mask), 1, None)
    ruled = _narrowest_by_rule(hints, containing, Budget())
    return Found(fittest([mask for mask in (listed, ruled.mask) if mask is not None], 1, None), ruled.exact)


def _narrowest_by_rule(hints: CapacityHints, containing: NodeMask, budget: Budget) -> Found:
    slack = _slack((hints,), hints.nodes, containing)
    if slack is None:
        return Found(None)
    some = _some_narrow_mask(hints, containing)
    packing = Packing(hints.nodes, (slack,), budget)
    exact = True
    for size in range(max(least_size(hints), (hints.required | containing).bit_count(), 1), some.bit_count() + 1):
        found = packing.lowest(size)
        exact &= found.exact
        if found.mask is not None:
            return Found(found.mask, exact)
    return Found(some, exact)


def narrowest_size(hints: CapacityHints, budget: Budget) -> tuple[int, bool]:
    """The number of nodes in the narrowest mask, and whether that is proven; 0 if there is no mask."""
    listed = min((mask.bit_count() for mask in hints.others), default=0)
    if not hints.is_open():
        return listed, True
    least = max(least_size(hints), hints.required.bit_count(), 1)
    most = _some_narrow_mask(hints, 0).bit_count()
    most = min(most, listed) if listed else most
    if least >= most:
        return most, True
    slack = _slack((hints,), hints.nodes)
    packing = Packing(hints.nodes, (slack,) if slack is not None else (), budget)
    exact = True
    for size in range(least, most):
        found = packing.lowest(size)
        if found.mask is not None:
            return size, exact
        exact &= found.exact
    return most, exact


def _some_narrow_mask(hints: CapacityHints, containing: NodeMask) -> NodeMask:
    """A mask of the rule that has few nodes: those with the largest share of all needs first. The rule is open."""
    staying = hints.required | containing

    def share(node: int) -> float:
        return sum(need.amounts.get(node, 0) / need.at_least for need in hints.needs if need.at_least > 0)

    mask = staying
    have = [sum(need.amounts.get(node, 0) for node in bits(staying)) for need in hints.needs]
    for node in sorted(bits(hints.nodes & ~staying), key=share, reverse=True):
        if mask and all(total >= need.at_least for total, need in zip(have, hints.needs, strict=True)):
            break
        mask |= 1 << node
        have = [total + need.amounts.get(node, 0) for total, need in zip(have, hints.needs, strict=True)]
    return mask


def least_size(hints: CapacityHints) -> int:
    """No mask of the rule has fewer nodes: each need taken by itself, largest amounts first."""
    least = 0
    for need in hints.needs:
        total = count = 0
        for amount in sorted((need.amounts.get(node, 0) for node in bits(hints.nodes)), reverse=True):
            if total >= need.at_least:
                break
            total, count = total + amount, count + 1
        least = max(least, count)
    return least


def _slack(families: Iterable[CapacityHints], nodes: NodeMask, staying: NodeMask = 0) -> Slack | None:
    """What masks within `nodes` that satisfy all of these families' rules can leave out; None where there is no such mask."""
    needs: list[Need] = []
    for family in families:
        if family.required & ~nodes:
            return None
        staying |= family.required
        needs += family.needs
    limits = tuple(sum(need.amounts.get(node, 0) for node in bits(nodes)) - need.at_least for need in needs)
    if not nodes or staying & ~nodes or min(limits, default=0) < 0:
        return None
    costs = {node: tuple(need.amounts.get(node, 0) for need in needs) for node in bits(nodes & ~staying)}
    return Slack(limits, costs)


class PackingSearch:
    """The best masks that these offers have in common. default: all nodes of the machine."""

    def __init__(self, offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> None:
        self._offers, self._default, self._distances = offers, default, distances

    def best_preferred(self) -> Found:
        """The best mask that is preferred by every offer at once."""
        return _PreferredSearch(self._offers, self._default, self._distances).run()

    def best_intersection(self) -> Found:
        """The best mask that is an intersection of one mask of each offer; sized for the offer that needs the most nodes."""
        return _IntersectionSearch(self._offers, self._default, self._distances).run()


class _PreferredSearch:
    """Masks of the rules are searched for, masks that are listed anywhere are looked at one by one."""

    def __init__(self, offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> None:
        self._offers, self._default, self._distances = offers, default, distances
        self._budget = Budget()
        self._exact = True

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
        for offer in self._offers:
            if isinstance(offer.hints, CapacityHints):
                prefers = offer.hints.admits(mask) and offer.hints.prefers(mask)
            else:
                prefers = any(hint.preferred and hint.affinity == mask for hint in offer.hints)
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
            slack = _slack([*families, *touching], part)
            if slack is not None and size <= part.bit_count():
                found.append(_search(Packing(part, (slack,), self._budget), size, self._distances))
        self._exact &= all(result.exact for result in found)
        return self._fittest(result.mask for result in found if result.mask is not None)


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


class _IntersectionSearch:
    """Each offer gives either a listed mask or one by its rule; combinations that restrict alike are looked at once."""

    def __init__(self, offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> None:
        self._offers, self._default, self._distances = offers, default, distances
        self._budget = Budget()
        self._exact = True

    def run(self) -> Found:
        target = 0
        for offer in self._offers:
            target = max(target, self._narrowest_size(offer))
        parts = self._parts()
        best = self._of_size(parts, target)
        if best is None and not self._exact:
            best = self._alone(parts, target)
        if best is None:
            best = self._other_size(parts, target)
        return Found(best, self._exact)

    def _narrowest_size(self, offer: Offer) -> int:
        if not isinstance(offer.hints, CapacityHints):
            return min((mask.bit_count() for mask in offer.listed), default=0)
        size, exact = narrowest_size(offer.hints, self._budget)
        self._exact &= exact
        return size

    def _parts(self) -> list[Packing]:
        """Every way to restrict the nodes by listed masks, with the rules of the offers that gave none of theirs."""
        ways: dict[tuple[NodeMask, tuple[int, ...]], None] = {(self._default, ()): None}
        rules: list[CapacityHints] = []
        for offer in self._offers:
            masks = set(offer.listed) | ({self._default} if offer.anywhere else set())
            rule = None
            if isinstance(offer.hints, CapacityHints) and offer.hints.is_open():
                rule = next((rank for rank, known in enumerate(rules) if known is offer.hints), len(rules))
                if rule == len(rules):
                    rules.append(offer.hints)
            longer: dict[tuple[NodeMask, tuple[int, ...]], None] = {}
            for nodes, chosen in ways:
                for mask in masks:
                    if nodes & mask:
                        longer[nodes & mask, chosen] = None
                if rule is not None and nodes & rules[rule].nodes:
                    longer[nodes & rules[rule].nodes, tuple(sorted((*chosen, rule)))] = None
            ways = longer
            if len(ways) > MOST_WAYS:
                self._exact = False
                ways = dict.fromkeys(sorted(ways, key=lambda way: -way[0].bit_count())[:MOST_WAYS])
        slacks = [_slack((rule,), rule.nodes) for rule in rules]
        return [
            Packing(nodes, [slack for rank in chosen if (slack := slacks[rank]) is not None], self._budget)
            for nodes, chosen in ways
        ]

    def _of_size(self, parts: list[Packing], size: int) -> NodeMask | None:
        best: NodeMask | None = None
        for part in sorted(parts, key=lambda part: part.ideal(size)):
            if part.nodes.bit_count() < size or size < 1:
                continue
            if best is not None and self._distances is None and part.ideal(size) >= best:
                continue
            found = _search(part, size, self._distances, best)
            self._exact &= found.exact
            if found.mask is not None:
                best = fittest([found.mask] if best is None else [found.mask, best], size, self._distances)
        return best

    def _alone(self, parts: list[Packing], size: int) -> NodeMask | None:
        """The budget is spent: a mask of this size all the same, if one family can leave out all the rest."""
        for part in parts:
            for slack in part.slacks if part.nodes.bit_count() >= size else ():
                found = Packing(part.nodes, [slack], Budget(LAST_STEPS)).lowest(size)
                if found.mask is not None:
                    return found.mask
        return None

    def _other_size(self, parts: list[Packing], target: int) -> NodeMask | None:
        """No intersection has the size aimed at: the largest smaller one, else the smallest larger one.

        A part's own nodes are always possible; smaller ones of the same part only down to what its rules need.
        """
        smaller = [part.nodes for part in parts if part.nodes.bit_count() < target]
        if smaller:
            return fittest(smaller, target, self._distances)
        most = max((part.nodes.bit_count() for part in parts), default=0)
        for size in range(target + 1, most + 1):
            best = self._of_size(parts, size)
            if best is not None:
                return best
        return None


def _search(packing: Packing, size: int, distances: NUMADistances | None, beat: NodeMask | None = None) -> Found:
    if distances is None:
        return packing.lowest(size)
    return closest(packing, size, distances, beat)
