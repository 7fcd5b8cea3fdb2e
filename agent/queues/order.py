"""Queue order: which of two queues is served first. The first rule that tells them apart decides.

Source: KAI-Scheduler plugins/proportion/queue_order; rule 0 is the change of the in-quota reclaim design, section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cmp_to_key

from agent.model.queue import UNLIMITED, ZERO, QueueShare, ResourceQuantities
from agent.queues.options import QueueOptions
from agent.queues.quantities import allocatable_share, fits, minus, over_fair_share, plus

_NO_SHARE_FACTOR = 1000.0  # upstream: use of a resource with no allocatable share weighs a thousandfold


class OrderRule(StrEnum):
    """The rules in the order in which they are asked."""

    IN_QUOTA_PRIORITY = "inQuotaPriority"
    UNDER_FAIR_SHARE = "underFairShare"
    UNDER_QUOTA_WITH_JOB = "underQuotaWithJob"
    PRIORITY = "priority"
    ZERO_SHARE = "zeroShare"
    DOMINANT_SHARE_WITH_JOB = "dominantShareWithJob"
    DOMINANT_SHARE = "dominantShare"
    ALLOCATABLE_SHARE = "allocatableShare"
    CREATION_TIME = "creationTime"


@dataclass(frozen=True, slots=True)
class Contender:
    """A queue, the job it would run next (nothing asked where there is none), and what was already taken from it as
    victims.
    """

    share: QueueShare
    job: ResourceQuantities = ZERO
    victims: tuple[ResourceQuantities, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """left_first, and the rule that decided with the value it had on either side (smaller goes first)."""

    left_first: bool
    rule: OrderRule
    left: float
    right: float

    def __str__(self) -> str:
        return (
            f"{'left' if self.left_first else 'right'} first by {self.rule} (left {self.left:g}, right {self.right:g})"
        )


def compare(left: Contender, right: Contender, total: ResourceQuantities, options: QueueOptions) -> Order:
    """Which of two queues goes first. total: the cluster, in place of an unlimited share.

    Not antisymmetric: with everything equal the right one goes first both ways, as upstream; `in_order` breaks such
    ties by name.
    """
    tolerance = options.profile.tolerance
    left_held, right_held = plus(left.share.allocated, left.job), plus(right.share.allocated, right.job)
    left_in_quota = fits(left_held, left.share.queue.deserved, tolerance)
    right_in_quota = fits(right_held, right.share.queue.deserved, tolerance)
    left_priority, right_priority = -left.share.queue.priority, -right.share.queue.priority
    if options.queue_priority_in_quota_reclaim and left_in_quota and right_in_quota and left_priority != right_priority:
        return _decided(OrderRule.IN_QUOTA_PRIORITY, left_priority, right_priority)
    left_over, right_over = over_fair_share(left.share), over_fair_share(right.share)
    if left_over != right_over:
        return _decided(OrderRule.UNDER_FAIR_SHARE, left_over, right_over)
    if left_in_quota != right_in_quota:
        return _decided(OrderRule.UNDER_QUOTA_WITH_JOB, not left_in_quota, not right_in_quota)
    if left_priority != right_priority:
        return _decided(OrderRule.PRIORITY, left_priority, right_priority)
    return _by_share(left, left_held, right, right_held, total, tolerance)


def _by_share(
    left: Contender,
    left_held: ResourceQuantities,
    right: Contender,
    right_held: ResourceQuantities,
    total: ResourceQuantities,
    tolerance: float,
) -> Order:
    """The rules that look at allocatable shares, and the creation time."""
    left_share, right_share = allocatable_share(left.share), allocatable_share(right.share)
    left_zero, right_zero = _uses_zero_share(left_held, left_share), _uses_zero_share(right_held, right_share)
    if left_zero != right_zero:
        return _decided(OrderRule.ZERO_SHARE, left_zero, right_zero)
    left_dominant = _dominant_share(_without(left_held, left.victims), left_share, total)
    right_dominant = _dominant_share(_without(right_held, right.victims), right_share, total)
    if left_dominant != right_dominant:
        return _decided(OrderRule.DOMINANT_SHARE_WITH_JOB, left_dominant, right_dominant)
    left_dominant = _dominant_share(left.share.allocated, left_share, total)
    right_dominant = _dominant_share(right.share.allocated, right_share, total)
    if left_dominant != right_dominant:
        return _decided(OrderRule.DOMINANT_SHARE, left_dominant, right_dominant)
    left_larger = not fits(left_share, right_share, tolerance)
    right_larger = not fits(right_share, left_share, tolerance)
    if left_larger != right_larger:
        return _decided(OrderRule.ALLOCATABLE_SHARE, left_larger, right_larger)
    return _decided(OrderRule.CREATION_TIME, left.share.queue.created, right.share.queue.created)


def _decided(rule: OrderRule, left: float, right: float) -> Order:
    return Order(left < right, rule, left, right)


def _without(held: ResourceQuantities, victims: Iterable[ResourceQuantities]) -> ResourceQuantities:
    for victim in victims:
        held = minus(held, victim)
    return held


def _uses_zero_share(held: ResourceQuantities, share: ResourceQuantities) -> bool:
    return any(due == 0 and amount > 0 for amount, due in zip(held, share, strict=True))


def _dominant_share(held: ResourceQuantities, share: ResourceQuantities, total: ResourceQuantities) -> float:
    """The largest of held / share over the resources, never below 0."""
    dominant = 0.0
    for amount, due, whole in zip(held, share, total, strict=True):
        basis = whole if due == UNLIMITED else due
        value = amount * _NO_SHARE_FACTOR if basis == 0 else amount / basis
        if value > dominant:
            dominant = value
    return dominant


def in_order(contenders: Iterable[Contender], total: ResourceQuantities, options: QueueOptions) -> list[Contender]:
    """Contenders, first to be served first. Where `compare` has only the creation time left and it is equal: by name."""

    def difference(left: Contender, right: Contender) -> int:
        order = compare(left, right, total, options)
        if order.rule is OrderRule.CREATION_TIME and order.left == order.right:
            return -1 if left.share.queue.name < right.share.queue.name else 1
        return -1 if order.left_first else 1

    return sorted(contenders, key=cmp_to_key(difference))
