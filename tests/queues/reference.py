"""Fair share and reclaim written down as plainly as the rules read, for comparison: every quantity looked up and compared anew.

Nothing is shared with `agent.queues` but the values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from agent.model.queue import QueueShare, QueueShares, ResourceQuantities
from agent.queues.options import Profile, QueueOptions
from agent.queues.reclaim_scenario import Reclaimer, Victims


class _Claim:
    """One queue's numbers for one resource."""

    def __init__(self, share: QueueShare, resource: int) -> None:
        self.name, self.created, self.priority = share.queue.name, share.queue.created, share.queue.priority
        self.deserved, self.limit = share.queue.deserved[resource], share.queue.limit[resource]
        self.weight, self.usage, self.request = (
            share.queue.over_quota_weight[resource],
            share.usage[resource],
            share.request[resource],
        )
        self.fair_share = 0.0

    @property
    def requestable(self) -> float:
        return self.request if self.limit == -1 else min(self.limit, self.request)

    @property
    def satisfied(self) -> bool:
        return self.request <= self.fair_share or (self.limit != -1 and self.limit <= self.fair_share)

    @property
    def wanted(self) -> float:
        return max(0.0, self.requestable - self.fair_share)


def reference_fair_shares(
    shares: QueueShares, total: ResourceQuantities, options: QueueOptions
) -> dict[str, ResourceQuantities]:
    """The fair share of every queue that hangs on the root."""
    found = {name: [0.0, 0.0, 0.0] for name in shares}
    for resource in range(3):
        amounts = {"": total[resource]}
        while amounts:
            parent, amount = amounts.popitem()
            group = sorted(
                (share for share in shares.values() if share.queue.parent == parent), key=lambda share: share.queue.name
            )
            claims = [_Claim(share, resource) for share in group]
            _divide(amount, claims, options)
            for claim in claims:
                found[claim.name][resource] = amounts[claim.name] = claim.fair_share
    return {name: ResourceQuantities(*amounts) for name, amounts in found.items()}


def _divide(amount: float, claims: list[_Claim], options: QueueOptions) -> None:
    remainder = amount
    for claim in claims:
        claim.fair_share = min(amount if claim.deserved == -1 else claim.deserved, claim.requestable)
        remainder -= claim.fair_share
    if remainder <= 0:
        return
    fractions: dict[str, float] = {}
    levels = [
        [claim for claim in claims if claim.priority == level]
        for level in sorted({c.priority for c in claims}, reverse=True)
    ]
    for level in levels:
        remainder = _rounds(remainder, level, fractions, options.k_value)
        if options.profile is Profile.MAIN:
            remainder = _left_over(remainder, level, fractions)
    for level in levels:
        if options.profile is not Profile.MAIN:
            remainder = _left_over(remainder, level, fractions)


def _rounds(remainder: float, level: list[_Claim], fractions: dict[str, float], k_value: float) -> float:
    while remainder > 0:
        weights = 0.0
        for claim in level:
            weights += claim.weight if claim.wanted > 0 else 0.0
        if weights == 0:
            return remainder
        wishes = {}
        for claim in level:
            if not claim.satisfied:
                normal = claim.weight / weights
                wishes[claim.name] = max(0.0, normal + k_value * (normal - claim.usage))
        wish_sum = 0.0
        for wish in wishes.values():
            wish_sum += wish
        if wish_sum == 0:
            return remainder
        pool, another = remainder, False
        for claim in level:
            if claim.satisfied or claim.weight == 0 or remainder == 0:
                continue
            portion = pool * (wishes[claim.name] / wish_sum)
            wanted = claim.wanted
            if wanted <= portion:
                give = wanted
                fractions.pop(claim.name, None)
            else:
                give = float(max(0, math.floor(portion)))
                if portion - give > 0:
                    fractions[claim.name] = portion - give
            if give:
                claim.fair_share += give
                remainder -= give
                another = another or wanted < portion
        if not another:
            return remainder
    return remainder


def _left_over(remainder: float, level: list[_Claim], fractions: Mapping[str, float]) -> float:
    waiting = [claim for claim in level if claim.name in fractions]
    for claim in sorted(waiting, key=lambda claim: (-fractions[claim.name], claim.created, claim.name)):
        if remainder > 0:
            give = min(1.0, remainder)
            claim.fair_share += give
            remainder -= give
    return remainder


def reference_reclaimable(
    shares: QueueShares, reclaimer: Reclaimer, victims: Iterable[Victims], options: QueueOptions
) -> bool:
    """Whether the scenario is valid."""
    remaining: dict[str, list[float]] = {}
    involved: dict[str, set[int]] = {}
    request, tolerance = list(reclaimer.resources), options.profile.tolerance
    for group in victims:
        ours, theirs = _leveled(shares, reclaimer.queue, group.queue)
        for resources in group.resources:
            held = remaining.setdefault(theirs.queue.name, list(theirs.allocated))
            in_quota = _fits(
                [a + b for a, b in zip(ours.allocated, request, strict=True)], ours.queue.deserved, tolerance
            )
            allowed = not _fits(held, _allocatable(theirs), tolerance)
            allowed = allowed or (in_quota and not _fits(held, theirs.queue.deserved, tolerance))
            if options.queue_priority_in_quota_reclaim:
                allowed = allowed or (in_quota and ours.queue.priority > theirs.queue.priority)
            if not allowed:
                return False
            for share in _path(shares, group.queue):
                left = remaining.setdefault(share.queue.name, list(share.allocated))
                for resource in range(3):
                    left[resource] -= resources[resource]
                    if resources[resource] > 0:
                        involved.setdefault(share.queue.name, set()).add(resource)
    return _within_bounds(shares, reclaimer, remaining, involved, options)


def _within_bounds(
    shares: QueueShares,
    reclaimer: Reclaimer,
    remaining: dict[str, list[float]],
    involved: dict[str, set[int]],
    options: QueueOptions,
) -> bool:
    request = list(reclaimer.resources)
    for ours in _path(shares, reclaimer.queue):
        have = [a + b for a, b in zip(remaining.get(ours.queue.name, list(ours.allocated)), request, strict=True)]
        for name, left in remaining.items():
            sibling = shares[name]
            if sibling.queue.parent != ours.queue.parent or name == ours.queue.name:
                continue
            for resource in involved.get(name, set()) | {resource for resource in range(3) if request[resource] > 0}:
                our_share, their_share = ours.fair_share[resource], sibling.fair_share[resource]
                if our_share == -1 and their_share == -1:
                    continue
                ratio, theirs = _ratio(have[resource], our_share), _ratio(left[resource], their_share)
                if ratio > 1 and their_share > 0 and ratio * options.saturation_multiplier >= theirs:
                    return False
        fixed = [a + b for a, b in zip(ours.allocated_non_preemptible, request, strict=True)]
        if not reclaimer.preemptible and not _fits(fixed, ours.queue.deserved, options.profile.tolerance):
            return False
    return True


def _ratio(held: float, fair_share: float) -> float:
    if fair_share == 0:
        return math.inf if held > 0 else 0.0
    return 0.0 if fair_share == -1 else held / fair_share


def _allocatable(share: QueueShare) -> list[float]:
    found = []
    for deserved, limit, fair in zip(share.queue.deserved, share.queue.limit, share.fair_share, strict=True):
        amount = limit if deserved == -1 else max(deserved, fair)
        found.append(amount if limit == -1 or deserved == -1 else min(limit, amount))
    return found


def _fits(amounts: Iterable[float], bounds: Iterable[float], tolerance: float) -> bool:
    def over(amount: float, bound: float) -> bool:
        if amount == -1 or bound == -1:
            return amount == -1 and bound != -1
        return amount > bound and abs(amount - bound) > tolerance

    return not any(over(amount, bound) for amount, bound in zip(amounts, bounds, strict=True))


def _path(shares: QueueShares, name: str) -> list[QueueShare]:
    path = []
    while name in shares:
        path.append(shares[name])
        name = shares[name].queue.parent
    return path


def _leveled(shares: QueueShares, ours: str, theirs: str) -> tuple[QueueShare, QueueShare]:
    pairs = list(zip(reversed(_path(shares, ours)), reversed(_path(shares, theirs)), strict=False))
    return next((pair for pair in pairs if pair[0].queue.name != pair[1].queue.name), pairs[-1])
