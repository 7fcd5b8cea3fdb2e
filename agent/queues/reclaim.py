"""Reclaim: may a pending job (the reclaimer) have the resources of running pods of other queues (the victims).

Three separate questions, as upstream: can the reclaimer reclaim at all, is a victim queue worth looking at, is a whole
scenario valid. A reclaim happens only if all three say yes. Victims are taken in the order given, which is documented:
where upstream walks a hash map its answer can depend on that order. Source: KAI-Scheduler
plugins/proportion/reclaimable, and the design document of in-quota reclaim by queue priority.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.errors import BadInputError
from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, QueueShares, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.quantities import allocatable_share, plus
from agent.queues.reclaim_scenario import Reclaimer, Scenario, Victims
from agent.queues.reclaim_verdict import Verdict, fit_step, level_queues, over_step, priority_step


def can_reclaim(shares: QueueShares, reclaimer: Reclaimer, options: QueueOptions) -> Verdict:
    """Whether the reclaimer may reclaim at all: with its request its own queue stays within its fair share and, for a
    non-preemptible job, within its quota. Ancestors are not looked at. The in-quota flag changes nothing here.
    """
    share = _known(shares, reclaimer.queue)
    steps = [
        fit_step(
            Rule.CAN_RECLAIM_FAIR_SHARE, share, plus(share.allocated, reclaimer.resources), share.fair_share, options
        )
    ]
    if steps[0].holds and not reclaimer.preemptible:
        held = plus(share.allocated_non_preemptible, reclaimer.resources)
        steps.append(fit_step(Rule.CAN_RECLAIM_QUOTA, share, held, share.queue.deserved, options))
    return Verdict(steps[-1].holds, tuple(steps))


def keeps_victim(shares: QueueShares, reclaimer: Reclaimer, victim_queue: str, options: QueueOptions) -> Verdict:
    """The victim filter: whether pods of this queue are worth considering. Unknown queues are kept, as upstream."""
    level = level_queues(shares, reclaimer.queue, victim_queue)
    if level is None:
        return Verdict(True, ())
    ours, theirs = level.reclaimer_side, level.victim_side
    under_quota = fit_step(
        Rule.UNDER_QUOTA, ours, plus(ours.allocated, reclaimer.resources), ours.queue.deserved, options
    )
    if not under_quota.holds:
        over = over_step(Rule.MAINTAIN_FAIR_SHARE, theirs, theirs.allocated, allocatable_share(theirs), options)
        return Verdict(over.holds, (under_quota, over))
    if options.queue_priority_in_quota_reclaim and ours.queue.priority > theirs.queue.priority:
        return Verdict(True, (under_quota, priority_step(level, holds=True)))
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
    scenario = Scenario(shares, reclaimer, options)
    refusal = next((step for group in victims if (step := scenario.take(group)) is not None), None)
    refusal = refusal or scenario.out_of_bounds()
    return Verdict(refusal is None, () if refusal is None else (refusal,), tuple(scenario.taken))


def _known(shares: QueueShares, name: str) -> QueueShare:
    if (share := shares.get(name)) is None:
        raise BadInputError(f"the reclaimer's queue {name!r} does not exist", hint="name a queue of the snapshot")
    return share
