"""Queues beyond a limit, or beyond their quota with work that cannot be preempted: shown, and blocking further growth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.model.queue import RESOURCES, QueueShare, QueueShares, ResourceName
from agent.queues.options import Profile
from agent.queues.quantities import exceeds, format_amount
from agent.queues.resize_bounds import BoundKind


@dataclass(frozen=True, slots=True)
class Violation:
    """A queue holds more of a resource than a bound allows, in the resource's unit."""

    queue: str
    resource: ResourceName
    bound_kind: BoundKind
    held: float
    bound: float

    def __str__(self) -> str:
        what = "allocated" if self.bound_kind is BoundKind.LIMIT else "allocated to non-preemptible work"
        held, bound = (format_amount(self.resource, amount) for amount in (self.held, self.bound))
        return f"queue {self.queue}: {self.resource} {what} {held}, {self.bound_kind} {bound}"


def violations(shares: QueueShares, profile: Profile) -> Iterator[Violation]:
    """Every bound that is passed now, in the order of `shares`. Queues without `spec.resources` have none."""
    return (each for share in shares.values() for each in violations_of(share, profile))


def violations_of(share: QueueShare, profile: Profile) -> Iterator[Violation]:
    """The bounds that one queue passes."""
    queue = share.queue
    if not queue.has_resources:
        return
    checks = (
        (BoundKind.LIMIT, share.allocated, queue.limit),
        (BoundKind.QUOTA, share.allocated_non_preemptible, queue.deserved),
    )
    for kind, amounts, bounds in checks:
        for resource, held, bound in zip(RESOURCES, amounts, bounds, strict=True):
            if held > 0 and exceeds(held, bound, profile.tolerance):
                yield Violation(queue.name, resource, kind, held, bound)
