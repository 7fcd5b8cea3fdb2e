"""What would happen: rounds of allocation and reclaim over a snapshot, until nothing moves or a state comes back.

A model of the scheduler's order of decisions, not of its placement: the cluster counts as one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from agent.model.queue import ZERO, QueueShare, QueueShares, ResourceQuantities
from agent.queues.capacity import job_over_capacity
from agent.queues.fair_share import divide_cluster
from agent.queues.jobs import Job, by_queue
from agent.queues.options import QueueOptions
from agent.queues.order import Contender, in_order
from agent.queues.quantities import fits, plus, summed
from agent.queues.reclaim_search import ReclaimProposal, VictimPiece, propose
from agent.queues.reclaim_verdict import Strategy
from agent.queues.snapshot import unallocated
from agent.queues.take_back import TakeBack
from agent.queues.tree import QueueTree, ancestry


class EventKind(StrEnum):
    """How a job came to run."""

    ALLOCATED = "allocated"
    RECLAIMED = "reclaimed"


@dataclass(frozen=True, slots=True)
class Event:
    """A job that starts to run. victims: the jobs that gave pieces for it. take_backs: how they could undo it at once."""

    round: int
    kind: EventKind
    job: str
    queue: str
    victims: tuple[str, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    take_backs: tuple[TakeBack, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """events: in order. jobs: as they stand at the end. looped: a state came back, so it would go on for ever."""

    events: tuple[Event, ...]
    jobs: tuple[Job, ...]
    shares: QueueShares
    looped: bool
    rounds: int


def simulate(
    tree: QueueTree, jobs: Iterable[Job], total: ResourceQuantities, options: QueueOptions, max_rounds: int = 100
) -> Outcome:
    """Rounds until nothing moves. In each, every queue in order starts what fits, then one job may reclaim; as
    upstream's actions.
    """
    state = {job.name: job for job in jobs}
    events: list[Event] = []
    seen: set[tuple[Job, ...]] = set()
    for number in range(1, max_rounds + 1):
        look = tuple(replace(job, running=tuple(sorted(job.running))) for job in state.values())
        if look in seen:
            return _outcome(tree, state, events, total, options, looped=True, rounds=number - 1)
        seen.add(look)
        before = len(events)
        events.extend(_allocate(tree, state, total, options, number))
        events.extend(_reclaim(tree, state, total, options, number))
        if len(events) == before:
            break
    return _outcome(tree, state, events, total, options, looped=False, rounds=number)


def _outcome(
    tree: QueueTree,
    state: dict[str, Job],
    events: Sequence[Event],
    total: ResourceQuantities,
    options: QueueOptions,
    *,
    looped: bool,
    rounds: int,
) -> Outcome:
    jobs = tuple(state.values())
    return Outcome(tuple(events), jobs, charged(tree, jobs, total, options), looped, rounds)


def charged(tree: QueueTree, jobs: Iterable[Job], total: ResourceQuantities, options: QueueOptions) -> QueueShares:
    """The shares of every queue with these jobs, fair shares divided."""
    shares = {name: QueueShare(queue) for name, queue in tree.queues.items()}
    for job in jobs:
        held = summed(job.running)
        fixed = ZERO if job.preemptible else held
        for share in ancestry(shares, job.queue):
            shares[share.queue.name] = replace(
                share,
                allocated=plus(share.allocated, held),
                allocated_non_preemptible=plus(share.allocated_non_preemptible, fixed),
                request=plus(share.request, plus(held, job.pending)),
            )
    fair = divide_cluster(tree, shares, total, options).shares
    return {name: replace(share, fair_share=fair[name]) for name, share in shares.items()}


def _waiting(
    state: dict[str, Job], shares: QueueShares, total: ResourceQuantities, options: QueueOptions
) -> Iterator[Job]:
    """The first pending job of every queue, the queue that is served first in front."""
    pending = by_queue(job for job in state.values() if any(job.pending) and job.queue in shares)
    contenders = [Contender(shares[name], jobs[0].pending) for name, jobs in sorted(pending.items())]
    for contender in in_order(contenders, total, options):
        yield pending[contender.share.queue.name][0]


def _allocate(
    tree: QueueTree, state: dict[str, Job], total: ResourceQuantities, options: QueueOptions, number: int
) -> Iterator[Event]:
    """Start one job after the other, the order looked up anew after each, until none fits."""
    moved = True
    while moved:
        moved = False
        shares = charged(tree, state.values(), total, options)
        free = unallocated(shares, total)
        for job in _waiting(state, shares, total, options):
            capacity = job_over_capacity(shares, job.queue, job.pending, preemptible=job.preemptible, options=options)
            if capacity.schedulable and _has_room(job.pending, free, options):
                state[job.name] = _started(job)
                yield Event(number, EventKind.ALLOCATED, job.name, job.queue)
                moved = True
                break


def _has_room(wanted: ResourceQuantities, free: ResourceQuantities, options: QueueOptions) -> bool:
    asked = ResourceQuantities(*(more if want > 0 else 0.0 for want, more in zip(wanted, free, strict=True)))
    return all(amount >= 0 for amount in asked) and fits(wanted, asked, options.profile.tolerance)


def _reclaim(
    tree: QueueTree, state: dict[str, Job], total: ResourceQuantities, options: QueueOptions, number: int
) -> Iterator[Event]:
    """One reclaim, for the first job in order that may have one."""
    shares = charged(tree, state.values(), total, options)
    free = unallocated(shares, total)
    for job in _waiting(state, shares, total, options):
        capacity = job_over_capacity(shares, job.queue, job.pending, preemptible=job.preemptible, options=options)
        if not capacity.schedulable:
            continue
        proposal = propose(job, state.values(), shares, total, free, options)
        if proposal.possible and proposal.pieces:
            _evict(state, proposal.pieces)
            state[job.name] = _started(job)
            yield _reclaimed(number, job, proposal)
            return


def _started(job: Job) -> Job:
    return replace(job, pending=ZERO, running=(*job.running, job.pending))


def _evict(state: dict[str, Job], pieces: Sequence[VictimPiece]) -> None:
    """Every piece stops and waits again."""
    for piece in pieces:
        job = state[piece.job.name]
        rest = list(job.running)
        rest.remove(piece.resources)
        state[job.name] = replace(job, pending=plus(job.pending, piece.resources), running=tuple(rest))


def _reclaimed(number: int, job: Job, proposal: ReclaimProposal) -> Event:
    scenario = proposal.decision.scenario
    strategies = dict.fromkeys(taken.strategy for taken in scenario.taken) if scenario is not None else {}
    victims = dict.fromkeys(piece.job.name for piece in proposal.pieces)
    return Event(
        number,
        EventKind.RECLAIMED,
        job.name,
        job.queue,
        tuple(victims),
        tuple(strategies),
        proposal.decision.take_backs,
    )
