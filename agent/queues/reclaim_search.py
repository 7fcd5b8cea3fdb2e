"""Whom would a pending job reclaim: victims in reverse queue order until enough is free, then the whole decision.

Upstream builds its scenarios node by node; without nodes this is the same question for the cluster as one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from agent.model.queue import QueueShares, ResourceQuantities
from agent.queues.jobs import Job
from agent.queues.options import QueueOptions
from agent.queues.order import Contender, in_order
from agent.queues.quantities import minus, plus
from agent.queues.reclaim import reclaimable
from agent.queues.reclaim_decision import ReclaimDecision, decide_reclaim, filter_victims
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.reclaim_verdict import Verdict


@dataclass(frozen=True, slots=True)
class VictimPiece:
    """A piece of a running job: an elastic pod, or the core of a gang."""

    job: Job
    resources: ResourceQuantities


@dataclass(frozen=True, slots=True)
class ReclaimProposal:
    """What reclaim could do for a job.

    candidates: the filter's word on every queue with preemptible work. pieces: the victims proposed, in order. lacking:
    what would still be missing after all of them (0 where it is enough). decision: on exactly these victims.
    """

    reclaimer: Reclaimer
    candidates: Mapping[str, Verdict]
    pieces: tuple[VictimPiece, ...]
    lacking: ResourceQuantities
    decision: ReclaimDecision

    @property
    def possible(self) -> bool:
        """Whether the job would start."""
        return self.decision.allowed and not any(self.lacking)


def propose(
    job: Job,
    jobs: Iterable[Job],
    shares: QueueShares,
    total: ResourceQuantities,
    free: ResourceQuantities,
    options: QueueOptions,
) -> ReclaimProposal:
    """Victims for a pending job: from the queue that is served last, until what is free and what they give suffices.

    A queue whose next piece no strategy allows gives no more. free: what nobody holds now.
    """
    reclaimer = Reclaimer(job.queue, job.pending, job.preemptible)
    preemptible = [each for each in jobs if each.preemptible and each.running and each.queue not in (job.queue, "")]
    queues = [name for name in _last_served_first(preemptible, shares, total, options) if name != job.queue]
    candidates = filter_victims(shares, reclaimer, queues, options)
    available, pieces = free, list[VictimPiece]()
    for name in queues:
        if not candidates[name].allowed:
            continue
        for piece in _pieces(name, preemptible):
            if not any(_lacking(reclaimer.resources, available)):
                break
            if not reclaimable(shares, reclaimer, grouped([*pieces, piece]), options).allowed:
                break
            pieces.append(piece)
            available = plus(available, piece.resources)
    decision = decide_reclaim(shares, reclaimer, grouped(pieces), options)
    return ReclaimProposal(reclaimer, candidates, tuple(pieces), _lacking(reclaimer.resources, available), decision)


def grouped(pieces: Sequence[VictimPiece]) -> list[Victims]:
    """The pieces by queue, queues in the order of their first piece."""
    groups: dict[str, list[ResourceQuantities]] = {}
    for piece in pieces:
        groups.setdefault(piece.job.queue, []).append(piece.resources)
    return [Victims(name, tuple(resources)) for name, resources in groups.items()]


def _last_served_first(
    jobs: Iterable[Job], shares: QueueShares, total: ResourceQuantities, options: QueueOptions
) -> list[str]:
    names = {job.queue for job in jobs if job.queue in shares}
    ordered = in_order([Contender(shares[name]) for name in sorted(names)], total, options)
    return [contender.share.queue.name for contender in reversed(ordered)]


def _pieces(queue: str, jobs: Iterable[Job]) -> Iterator[VictimPiece]:
    for job in jobs:
        if job.queue == queue:
            for resources in job.running:
                yield VictimPiece(job, resources)


def _lacking(wanted: ResourceQuantities, available: ResourceQuantities) -> ResourceQuantities:
    """What is wanted beyond what is available, per resource; resources that nobody asks for are never lacking."""
    missing = minus(wanted, available)
    return ResourceQuantities(*(max(0.0, gap) if want > 0 else 0.0 for gap, want in zip(missing, wanted, strict=True)))
