"""What answers about reclaim consist of: the level that is compared, the strategy that allows a victim, the verdict, and the
steps with their numbers.

Source: as `agent.queues.reclaim`, which gives the verdicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from agent.model.queue import QueueShare, QueueShares, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.quantities import allocatable_share, first_excess
from agent.queues.tree import ancestry


class Strategy(StrEnum):
    """Why a victim may be taken."""

    MAINTAIN_FAIR_SHARE = "MaintainFairShare"
    GUARANTEE_DESERVED_QUOTA = "GuaranteeDeservedQuota"
    IN_QUOTA_QUEUE_PRIORITY = "InQuotaQueuePriority"


@dataclass(frozen=True, slots=True)
class Level:
    """The two queues that are compared: the ancestors of reclaimer and victim just below their lowest common ancestor."""

    reclaimer_side: QueueShare
    victim_side: QueueShare


class Taken(NamedTuple):
    """A victim that a strategy allows to take. remaining: what the victim's side held just before."""

    queue: str
    strategy: Strategy
    level: Level
    remaining: ResourceQuantities


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer with its reasons. taken: the victims of a scenario that some strategy allows, in order, up to a
    refusal.
    """

    allowed: bool
    steps: tuple[Step, ...]
    taken: tuple[Taken, ...] = ()

    @property
    def refusal(self) -> Step | None:
        """The step that said no."""
        return None if self.allowed else self.steps[-1]

    def by_strategy(self, queue: str) -> tuple[Strategy, ...]:
        """The strategies that allow the victims of one queue, in order."""
        return tuple(taken.strategy for taken in self.taken if taken.queue == queue)


def level_queues(shares: QueueShares, reclaimer_queue: str, victim_queue: str) -> Level | None:
    """The pair to compare: walk both paths from the root and stop where they part.

    Where one path ends first the last pair counts, so a queue and its ancestor give the same queue twice. None for an
    unknown queue.
    """
    return deepest_level(ancestry(shares, reclaimer_queue), ancestry(shares, victim_queue))


def deepest_level(reclaimer_path: Sequence[QueueShare], victim_path: Sequence[QueueShare]) -> Level | None:
    """`level_queues` on paths from leaf to root."""
    ours = theirs = None
    for ours, theirs in zip(reversed(reclaimer_path), reversed(victim_path), strict=False):
        if ours is not theirs:
            break
    return None if ours is None or theirs is None else Level(ours, theirs)


def explain(taken: Taken, options: QueueOptions) -> Step:
    """The numbers behind a strategy's yes."""
    theirs = taken.level.victim_side
    match taken.strategy:
        case Strategy.MAINTAIN_FAIR_SHARE:
            return over_step(Rule.MAINTAIN_FAIR_SHARE, theirs, taken.remaining, allocatable_share(theirs), options)
        case Strategy.GUARANTEE_DESERVED_QUOTA:
            return over_step(Rule.GUARANTEE_QUOTA, theirs, taken.remaining, theirs.queue.deserved, options)
        case Strategy.IN_QUOTA_QUEUE_PRIORITY:
            return priority_step(taken.level, holds=True)


def fit_step(
    rule: Rule, share: QueueShare, held: ResourceQuantities, bounds: ResourceQuantities, options: QueueOptions
) -> Step:
    """Holds where everything fits; names the first resource that does not."""
    return _bound_step(rule, share, held, bounds, options, holds_within=True, said="would be")


def over_step(
    rule: Rule, share: QueueShare, held: ResourceQuantities, bounds: ResourceQuantities, options: QueueOptions
) -> Step:
    """Holds where something does not fit, and names it."""
    return _bound_step(rule, share, held, bounds, options, holds_within=False, said="held")


def _bound_step(
    rule: Rule,
    share: QueueShare,
    held: ResourceQuantities,
    bounds: ResourceQuantities,
    options: QueueOptions,
    *,
    holds_within: bool,
    said: str,
) -> Step:
    excess = first_excess(held, bounds, options.profile.tolerance)
    if excess is None:
        return Step(rule, share.queue.name, holds_within)
    resource, amount, bound = excess
    return Step(rule, share.queue.name, not holds_within, resource, ((said, amount), ("bound", bound)))


def priority_step(level: Level, *, holds: bool) -> Step:
    values = (
        ("priority", level.reclaimer_side.queue.priority),
        ("victim's side", level.victim_side.queue.name),
        ("its priority", level.victim_side.queue.priority),
    )
    return Step(Rule.IN_QUOTA_PRIORITY, level.reclaimer_side.queue.name, holds, values=values)
