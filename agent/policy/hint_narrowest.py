"""How few nodes a family's masks can have, and what its masks can leave out. Families are described, not listed."""

from __future__ import annotations

from collections.abc import Iterable

from agent.model.cpuset import bits
from agent.model.numa import NodeMask
from agent.policy.hint_family import CapacityHints, Found, Need
from agent.policy.node_packing import Budget, Packing, Slack
from agent.policy.numa_distances import fittest


def narrowest(hints: CapacityHints, containing: NodeMask) -> Found:
    """The hint with the fewest nodes, then the lowest value, among those whose mask has all nodes of `containing`."""
    listed = fittest((mask for mask in hints.others if not containing & ~mask), 1, None)
    ruled = _narrowest_by_rule(hints, containing, Budget())
    return Found(fittest([mask for mask in (listed, ruled.mask) if mask is not None], 1, None), ruled.exact)


def _narrowest_by_rule(hints: CapacityHints, containing: NodeMask, budget: Budget) -> Found:
    slack = slack_of((hints,), hints.nodes, containing)
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
    slack = slack_of((hints,), hints.nodes)
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
    """A lower bound for the nodes of the rule's masks: each need taken by itself, largest amounts first."""
    least = 0
    for need in hints.needs:
        total = count = 0
        for amount in sorted((need.amounts.get(node, 0) for node in bits(hints.nodes)), reverse=True):
            if total >= need.at_least:
                break
            total, count = total + amount, count + 1
        least = max(least, count)
    return least


def slack_of(families: Iterable[CapacityHints], nodes: NodeMask, staying: NodeMask = 0) -> Slack | None:
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
