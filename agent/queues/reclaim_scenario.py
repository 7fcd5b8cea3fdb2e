"""One scenario of a reclaim: these victims, in this order, for this job. They are taken one after another from what the touched
queues still hold.

Source: as `agent.queues.reclaim`, which asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from agent.errors import BadInputError
from agent.model.cpuset import bits
from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, QueueShares, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.quantities import allocatable_share, fits, minus, plus
from agent.queues.reclaim_verdict import (
    Level,
    Strategy,
    Taken,
    deepest_level,
    fit_step,
    over_step,
    priority_step,
)
from agent.queues.tree import ancestry


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


class Scenario:
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
        level = deepest_level(self._path, path)
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
        over_quota = over_step(Rule.GUARANTEE_QUOTA, theirs, held, theirs.queue.deserved, self._options)
        if over_quota.holds:
            return Strategy.GUARANTEE_DESERVED_QUOTA
        if not self._options.queue_priority_in_quota_reclaim:
            return over_quota
        if level.reclaimer_side.queue.priority > theirs.queue.priority:
            return Strategy.IN_QUOTA_QUEUE_PRIORITY
        return priority_step(level, holds=False)

    def _reclaimer_under_quota(self, side: QueueShare) -> Step:
        name = side.queue.name
        if name not in self._under_quota:
            held = plus(side.allocated, self._reclaimer.resources)
            self._under_quota[name] = fit_step(Rule.UNDER_QUOTA, side, held, side.queue.deserved, self._options)
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
                step = fit_step(Rule.NON_PREEMPTIBLE_QUOTA, ours, non_preemptible, ours.queue.deserved, self._options)
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
