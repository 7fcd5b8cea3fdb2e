"""Reclaim: may a pending job (the reclaimer) have the resources of running pods of other queues (the victims).

Three separate questions, as upstream: can the reclaimer reclaim at all, is a victim queue worth looking at, is a whole
scenario valid. A reclaim happens only if all three say yes. Victims are taken in the order given, which is documented:
where upstream walks a hash map its answer can depend on that order. Source: KAI-Scheduler
plugins/proportion/reclaimable, and the design document of in-quota reclaim by queue priority.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import NamedTuple

from agent.errors import BadInputError
from agent.model.cpuset import bits
from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, QueueShares, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.quantities import allocatable_share, first_excess, fits, minus, plus
from agent.queues.tree import ancestry


class Strategy(StrEnum):
    """Why a victim may be taken."""

    MAINTAIN_FAIR_SHARE = "MaintainFairShare"
    GUARANTEE_DESERVED_QUOTA = "GuaranteeDeservedQuota"
    IN_QUOTA_QUEUE_PRIORITY = "InQuotaQueuePriority"


@dataclass(frozen=True, slots=True)
class Reclaimer:
    """A pending job: its queue, what it asks for, and whether it may itself be preempted later."""

    queue: str
    resources: ResourceQuantities
    preemptible: bool = True


@dataclass(frozen=True, slots=True)
class Victims:
    """Preemptible pods of one queue, in the order they would go: one amount per gang core or elastic pod."""

    queue: str
    resources: tuple[ResourceQuantities, ...]


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
    return _part(ancestry(shares, reclaimer_queue), ancestry(shares, victim_queue))


def _part(reclaimer_path: Sequence[QueueShare], victim_path: Sequence[QueueShare]) -> Level | None:
    """`level_queues` on paths from leaf to root."""
    ours = theirs = None
    for ours, theirs in zip(reversed(reclaimer_path), reversed(victim_path), strict=False):
        if ours is not theirs:
            break
    return None if ours is None or theirs is None else Level(ours, theirs)


def can_reclaim(shares: QueueShares, reclaimer: Reclaimer, options: QueueOptions) -> Verdict:
    """Whether the reclaimer may reclaim at all: with its request its own queue stays within its fair share and, for a
    non-preemptible job, within its quota. Ancestors are not looked at. The in-quota flag changes nothing here.
    """
    share = _known(shares, reclaimer.queue)
    steps = [
        _fit_step(
            Rule.CAN_RECLAIM_FAIR_SHARE, share, plus(share.allocated, reclaimer.resources), share.fair_share, options
        )
    ]
    if steps[0].holds and not reclaimer.preemptible:
        held = plus(share.allocated_non_preemptible, reclaimer.resources)
        steps.append(_fit_step(Rule.CAN_RECLAIM_QUOTA, share, held, share.queue.deserved, options))
    return Verdict(steps[-1].holds, tuple(steps))


def keeps_victim(shares: QueueShares, reclaimer: Reclaimer, victim_queue: str, options: QueueOptions) -> Verdict:
    """The victim filter: whether pods of this queue are worth considering. Unknown queues are kept, as upstream."""
    level = level_queues(shares, reclaimer.queue, victim_queue)
    if level is None:
        return Verdict(True, ())
    ours, theirs = level.reclaimer_side, level.victim_side
    under_quota = _fit_step(
        Rule.UNDER_QUOTA, ours, plus(ours.allocated, reclaimer.resources), ours.queue.deserved, options
    )
    if not under_quota.holds:
        over = _over_step(Rule.MAINTAIN_FAIR_SHARE, theirs, theirs.allocated, allocatable_share(theirs), options)
        return Verdict(over.holds, (under_quota, over))
    if options.queue_priority_in_quota_reclaim and ours.queue.priority > theirs.queue.priority:
        return Verdict(True, (under_quota, _priority_step(level, holds=True)))
    candidate = _quota_candidate(theirs, reclaimer.resources)
    return Verdict(candidate.holds, (under_quota, candidate))


def _quota_candidate(victim: QueueShare, wanted: ResourceQuantities) -> Step:
    """Over quota in a requested resource with a finite quota; or at least not under it in any of them. Exact in every
    profile.
    """
    under: Step | None = None
    for resource, more, held, quota in zip(RESOURCES, wanted, victim.allocated, victim.queue.deserved, strict=True):
        if more <= 0 or quota == UNLIMITED or held == quota:
            continue
        step = Step(
            Rule.QUOTA_CANDIDATE, victim.queue.name, held > quota, resource, (("allocated", held), ("quota", quota))
        )
        if step.holds:
            return step
        under = under or step
    return under or Step(Rule.QUOTA_CANDIDATE, victim.queue.name, True)


def reclaimable(
    shares: QueueShares, reclaimer: Reclaimer, victims: Iterable[Victims], options: QueueOptions
) -> Verdict:
    """Whether the reclaimer may take exactly these victims.

    For every victim in order: some strategy must allow it with what its side still holds before it goes. Then, from the
    reclaimer's queue up: no level may become more saturated than a sibling that loses (times the multiplier), and
    non-preemptible work must stay within quota. One refusal refuses the whole scenario.
    """
    _known(shares, reclaimer.queue)
    scenario = _Scenario(shares, reclaimer, options)
    refusal = next((step for group in victims if (step := scenario.take(group)) is not None), None)
    refusal = refusal or scenario.out_of_bounds()
    return Verdict(refusal is None, () if refusal is None else (refusal,), tuple(scenario.taken))


def explain(taken: Taken, options: QueueOptions) -> Step:
    """The numbers behind a strategy's yes."""
    theirs = taken.level.victim_side
    match taken.strategy:
        case Strategy.MAINTAIN_FAIR_SHARE:
            return _over_step(Rule.MAINTAIN_FAIR_SHARE, theirs, taken.remaining, allocatable_share(theirs), options)
        case Strategy.GUARANTEE_DESERVED_QUOTA:
            return _over_step(Rule.GUARANTEE_QUOTA, theirs, taken.remaining, theirs.queue.deserved, options)
        case Strategy.IN_QUOTA_QUEUE_PRIORITY:
            return _priority_step(taken.level, holds=True)


class _Scenario:
    """One scenario while it is examined: what every touched queue still holds, and which resources it gave."""

    def __init__(self, shares: QueueShares, reclaimer: Reclaimer, options: QueueOptions) -> None:
        self.taken: list[Taken] = []
        self._shares = shares
        self._reclaimer = reclaimer
        self._options = options
        self._tolerance = options.profile.tolerance
        self._path = ancestry(shares, reclaimer.queue)
        self._remaining: dict[str, ResourceQuantities] = {}
        self._involved: dict[str, int] = {}  # by touched queue, bit n is resource n
        self._under_quota: dict[str, Step] = {}

    def take(self, group: Victims) -> Step | None:
        """Take the victims of one queue; the step that refuses one of them, or None."""
        path = ancestry(self._shares, group.queue)
        level = _part(self._path, path)
        if level is None:
            raise BadInputError(
                f"victims in queue {group.queue!r}, which does not exist", hint="name a queue of the snapshot"
            )
        remaining, involved = self._remaining, self._involved
        side = level.victim_side.queue.name
        held = remaining.setdefault(side, level.victim_side.allocated)
        allocatable = allocatable_share(level.victim_side)
        for resources in group.resources:
            if not fits(held, allocatable, self._tolerance):
                strategy = Strategy.MAINTAIN_FAIR_SHARE
            else:
                found = self._quota_strategy(level, held)
                if isinstance(found, Step):
                    return found
                strategy = found
            self.taken.append(Taken(group.queue, strategy, level, held))
            gives = _mask(resources)
            for share in path:
                name = share.queue.name
                remaining[name] = minus(remaining.get(name, share.allocated), resources)
                involved[name] = involved.get(name, 0) | gives
            held = remaining[side]
        return None

    def _quota_strategy(self, level: Level, held: ResourceQuantities) -> Strategy | Step:
        """The strategy of those that need the reclaimer to stay in quota; or the step that explains why none applies."""
        theirs = level.victim_side
        under_quota = self._reclaimer_under_quota(level.reclaimer_side)
        if not under_quota.holds:
            return under_quota
        over_quota = _over_step(Rule.GUARANTEE_QUOTA, theirs, held, theirs.queue.deserved, self._options)
        if over_quota.holds:
            return Strategy.GUARANTEE_DESERVED_QUOTA
        if not self._options.queue_priority_in_quota_reclaim:
            return over_quota
        if level.reclaimer_side.queue.priority > theirs.queue.priority:
            return Strategy.IN_QUOTA_QUEUE_PRIORITY
        return _priority_step(level, holds=False)

    def _reclaimer_under_quota(self, side: QueueShare) -> Step:
        name = side.queue.name
        if name not in self._under_quota:
            held = plus(side.allocated, self._reclaimer.resources)
            self._under_quota[name] = _fit_step(Rule.UNDER_QUOTA, side, held, side.queue.deserved, self._options)
        return self._under_quota[name]

    def out_of_bounds(self) -> Step | None:
        """The step that forbids the reclaimer what it would then hold, level by level upwards; or None."""
        request = self._reclaimer.resources
        wanted = _mask(request)
        losers: dict[str, list[QueueShare]] = {}
        for name in self._remaining:
            share = self._shares[name]
            losers.setdefault(share.queue.parent, []).append(share)
        for ours in self._path:
            name = ours.queue.name
            held = plus(self._remaining.get(name, ours.allocated), request)
            for sibling in losers.get(ours.queue.parent, ()):
                if sibling is ours:
                    continue
                involved = wanted | self._involved.get(sibling.queue.name, 0)
                if (refusal := self._oversaturated(ours, held, sibling, involved)) is not None:
                    return refusal
            if not self._reclaimer.preemptible:
                non_preemptible = plus(ours.allocated_non_preemptible, request)
                step = _fit_step(Rule.NON_PREEMPTIBLE_QUOTA, ours, non_preemptible, ours.queue.deserved, self._options)
                if not step.holds:
                    return step
        return None

    def _oversaturated(
        self, ours: QueueShare, held: ResourceQuantities, sibling: QueueShare, involved: int
    ) -> Step | None:
        left = self._remaining[sibling.queue.name]
        for position in bits(involved):
            our_share, their_share = ours.fair_share[position], sibling.fair_share[position]
            if their_share <= 0:  # nothing, or unlimited: upstream never fails such a comparison
                continue
            our_saturation = _saturation(held[position], our_share)
            their_saturation = left[position] / their_share
            if our_saturation > 1 and our_saturation * self._options.saturation_multiplier >= their_saturation:
                return Step(
                    Rule.SATURATION,
                    ours.queue.name,
                    False,
                    RESOURCES[position],
                    (("held", held[position]), ("fair share", our_share)),
                    (
                        ("saturation", our_saturation),
                        ("times", self._options.saturation_multiplier),
                        ("sibling", sibling.queue.name),
                        ("sibling saturation", their_saturation),
                    ),
                )
        return None


def _mask(amounts: ResourceQuantities) -> int:
    """The resources with an amount above 0; bit n is resource n."""
    return (amounts[0] > 0) | (amounts[1] > 0) << 1 | (amounts[2] > 0) << 2


def _saturation(held: float, fair_share: float) -> float:
    if fair_share == 0:
        return inf if held > 0 else 0.0
    return 0.0 if fair_share == UNLIMITED else held / fair_share


def _known(shares: QueueShares, name: str) -> QueueShare:
    if (share := shares.get(name)) is None:
        raise BadInputError(f"the reclaimer's queue {name!r} does not exist", hint="name a queue of the snapshot")
    return share


def _fit_step(
    rule: Rule, share: QueueShare, held: ResourceQuantities, bounds: ResourceQuantities, options: QueueOptions
) -> Step:
    """Holds where everything fits; names the first resource that does not."""
    excess = first_excess(held, bounds, options.profile.tolerance)
    if excess is None:
        return Step(rule, share.queue.name, True)
    resource, amount, bound = excess
    return Step(rule, share.queue.name, False, resource, (("would be", amount), ("bound", bound)))


def _over_step(
    rule: Rule, share: QueueShare, held: ResourceQuantities, bounds: ResourceQuantities, options: QueueOptions
) -> Step:
    """Holds where something does not fit, and names it."""
    excess = first_excess(held, bounds, options.profile.tolerance)
    if excess is None:
        return Step(rule, share.queue.name, False)
    resource, amount, bound = excess
    return Step(rule, share.queue.name, True, resource, (("held", amount), ("bound", bound)))


def _priority_step(level: Level, *, holds: bool) -> Step:
    values = (
        ("priority", level.reclaimer_side.queue.priority),
        ("victim's side", level.victim_side.queue.name),
        ("its priority", level.victim_side.queue.priority),
    )
    return Step(Rule.IN_QUOTA_PRIORITY, level.reclaimer_side.queue.name, holds, values=values)
