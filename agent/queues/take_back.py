"""Take-back: could a victim of an accepted reclaim take its resources back at once. Upstream has four ways, named here.

The in-quota design argues that reclaim by queue priority never loops. That holds for every victim that only the new
strategy releases, as long as the reclaimer's limit is not below its quota. The rest is found by asking: after the
reclaim each victim, and all victims of a queue together, are put as reclaimers against the job that took their place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.model.queue import ZERO, QueueShare, QueueShares, ResourceQuantities
from agent.queues.options import QueueOptions
from agent.queues.quantities import minus, plus, summed
from agent.queues.reclaim import can_reclaim, keeps_victim, reclaimable
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.reclaim_verdict import Strategy, Verdict
from agent.queues.tree import ancestry


class TakeBackKind(StrEnum):
    """The ways, by name. Only LIMIT_BELOW_QUOTA gives back a victim that the in-quota strategy alone has released."""

    MIXED_STRATEGIES = "mixed-strategies"  # an old strategy released this victim in a scenario with in-quota victims
    PRIORITY_BOUNCE = "priority-bounce"  # old strategies dropped a queue of higher priority below its quota
    WITHOUT_PRIORITY = "without-priority"  # old strategies both ways, such as between departments of fair share 0
    LIMIT_BELOW_QUOTA = "limit-below-quota"  # the reclaimer's allocatable share is capped below its quota


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Victims of `queue` that could take `resources` back. released_by, by: the strategies of the reclaim and of the
    way back.
    """

    kind: TakeBackKind
    queue: str
    resources: ResourceQuantities
    released_by: tuple[Strategy, ...]
    by: tuple[Strategy, ...]


def after_reclaim(shares: QueueShares, reclaimer: Reclaimer, victims: Sequence[Victims]) -> dict[str, QueueShare]:
    """The shares once the victims are pending and the reclaimer runs. Requests, and so fair shares, are the same as
    before.
    """
    after = dict(shares)

    def charge(queue: str, amounts: ResourceQuantities, *, preemptible: bool) -> None:
        for share in ancestry(after, queue):
            non_preemptible = share.allocated_non_preemptible
            after[share.queue.name] = replace(
                share,
                allocated=plus(share.allocated, amounts),
                allocated_non_preemptible=non_preemptible if preemptible else plus(non_preemptible, amounts),
            )

    for group in victims:
        for resources in group.resources:
            charge(group.queue, minus(ZERO, resources), preemptible=True)
    charge(reclaimer.queue, reclaimer.resources, preemptible=reclaimer.preemptible)
    return after


def take_backs(
    shares: QueueShares, reclaimer: Reclaimer, victims: Sequence[Victims], verdict: Verdict, options: QueueOptions
) -> Iterator[TakeBack]:
    """Every way in which victims of an accepted scenario could take back from the reclaimer at once.

    verdict: the answer of `reclaimable` to this scenario. A non-preemptible reclaimer cannot be a victim, so there is
    none.
    """
    if not reclaimer.preemptible:
        return
    after = after_reclaim(shares, reclaimer, victims)
    gain = [Victims(reclaimer.queue, (reclaimer.resources,))]
    mixed = any(taken.strategy is Strategy.IN_QUOTA_QUEUE_PRIORITY for taken in verdict.taken)
    taken = iter(verdict.taken)
    for group in victims:
        released = tuple(next(taken).strategy for _ in group.resources)
        for resources, strategies in _attempts(group, released):
            back = Reclaimer(group.queue, resources)
            if (
                not can_reclaim(after, back, options).allowed
                or not keeps_victim(after, back, reclaimer.queue, options).allowed
            ):
                continue
            answer = reclaimable(after, back, gain, options)
            if answer.allowed:
                by = answer.by_strategy(reclaimer.queue)
                yield TakeBack(_kind(strategies, by, mixed=mixed), group.queue, resources, strategies, by)


def _attempts(
    group: Victims, released: tuple[Strategy, ...]
) -> Iterator[tuple[ResourceQuantities, tuple[Strategy, ...]]]:
    """Each victim alone, then all of the queue together."""
    for resources, strategy in zip(group.resources, released, strict=True):
        yield resources, (strategy,)
    if len(group.resources) > 1:
        yield summed(group.resources), released


def _kind(released: tuple[Strategy, ...], by: tuple[Strategy, ...], *, mixed: bool) -> TakeBackKind:
    if all(strategy is Strategy.IN_QUOTA_QUEUE_PRIORITY for strategy in released):
        return TakeBackKind.LIMIT_BELOW_QUOTA
    if mixed:
        return TakeBackKind.MIXED_STRATEGIES
    return TakeBackKind.PRIORITY_BOUNCE if Strategy.IN_QUOTA_QUEUE_PRIORITY in by else TakeBackKind.WITHOUT_PRIORITY
