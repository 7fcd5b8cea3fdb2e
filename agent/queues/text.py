"""Answers of the queue rules as text for a terminal: a tree that reads at a glance, and derivations line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, QueueShares, ResourceName, ResourceQuantities
from agent.queues.derivation import Step
from agent.queues.fair_share import FairShares
from agent.queues.quantities import format_amount
from agent.queues.reclaim_search import ReclaimProposal
from agent.queues.resize_admission import ResizeAnswer
from agent.queues.resize_growth import NOTHING, CPUMemory
from agent.queues.simulation import Event, EventKind, Outcome
from agent.queues.snapshot import Snapshot
from agent.queues.tree import QueueTree
from agent.queues.violations import Violation

_BAR = 20  # cells of a bar
_HEAD = ("QUEUE", "PRIORITY", "RESOURCE", "")
_AMOUNTS = ("ALLOCATED", "NON-PREEMPTIBLE", "REQUESTED", "QUOTA", "FAIR SHARE", "LIMIT")


def status_lines(snapshot: Snapshot, found: Iterable[Violation]) -> Iterator[str]:
    """The queue tree, then what needs attention."""
    yield from overview_lines(snapshot)
    yield from trouble_lines(snapshot, found)


def overview_lines(snapshot: Snapshot, reserved: Mapping[str, CPUMemory] | None = None) -> Iterator[str]:
    """What there is to divide, and the queue tree. reserved: by queue, by an accountant's admitted resizes."""
    total = ", ".join(
        f"{resource} {format_amount(resource, amount)}"
        for resource, amount in zip(RESOURCES, snapshot.total, strict=True)
    )
    yield f"to divide: {total}" + ("; charges as Queue.status says, no pods given" if snapshot.from_status else "")
    yield "bars: # allocated, | fair share; NON-PREEMPTIBLE: what of the allocated cannot be preempted" + (
        "; RESERVED: growth of admitted resizes that no report shows yet" if reserved else ""
    )
    yield ""
    yield from tree_lines(snapshot.tree, snapshot.shares, reserved)


def trouble_lines(snapshot: Snapshot, found: Iterable[Violation]) -> Iterator[str]:
    """What is not as it should be."""
    for violation in found:
        yield f"over: {violation}"
    for name, totals in snapshot.unknown.items():
        where = f"queue {name}, which does not exist" if name else "no queue"
        yield f"uncharged: {totals.pods} {'pod' if totals.pods == 1 else 'pods'} of {where}"
    for problem in snapshot.problems:
        yield f"refused: {problem}"


def fair_share_lines(tree: QueueTree, shares: QueueShares, fair: FairShares, name: str) -> Iterator[str]:
    """How the fair share of a queue came about: its path from the top, what each phase gave, and what was asked for."""
    for queue in reversed(tree.path(name)):
        share, divided = shares[queue.name], f"that {queue.parent} divides" if queue.parent else "of the cluster"
        for position, (resource, steps) in enumerate(zip(RESOURCES, fair.phases(tree, queue.name), strict=True)):

            def amount(number: float, of: ResourceName = resource) -> str:
                return format_amount(of, number)

            given = [dict(step.amounts) for step in steps]
            quota, over_quota, left_over = (amount(each["given"]) for each in given)
            fair_share, of = (amount(given[0][key]) for key in ("fair share", "of"))
            yield (
                f"queue {queue.name}, {resource}: fair share {fair_share} of {of} {divided}"
                f" = quota {quota} + over-quota {over_quota} + left-over {left_over}"
                f" (requested {amount(share.request[position])}, quota {amount(queue.deserved[position])},"
                f" limit {amount(queue.limit[position])}, over-quota weight {queue.over_quota_weight[position]:g})"
            )


def tree_lines(tree: QueueTree, shares: QueueShares, reserved: Mapping[str, CPUMemory] | None = None) -> Iterator[str]:
    """A line for each queue and resource that is used, asked for or bounded. A column for what is reserved, where anything is."""
    amounts = (*_AMOUNTS[:2], "RESERVED", *_AMOUNTS[2:]) if reserved else _AMOUNTS
    rows: list[tuple[str, ...]] = [(*_HEAD, *amounts)]
    for name, depth in _by_branch(tree, "", 0):
        share, first = shares[name], True
        for position, resource in enumerate(RESOURCES):
            if not _matters(share, position):
                continue
            label = ("  " * depth + name, str(share.queue.priority)) if first else ("", "")
            cells = _cells(share, resource, position)
            if reserved:
                cells = (*cells[:2], _reserved(reserved.get(name, NOTHING), resource, position), *cells[2:])
            rows.append((*label, resource.value, _bar(share, position), *cells))
            first = False
        if first:
            rows.append(("  " * depth + name, str(share.queue.priority), *[""] * (len(rows[0]) - 2)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _by_branch(tree: QueueTree, parent: str, depth: int) -> Iterator[tuple[str, int]]:
    """Every queue under its parent. A stack, since a tree from strangers may be deep."""
    stack = [(name, depth) for name in reversed(tree.children.get(parent, ()))]
    while stack:
        name, level = stack.pop()
        yield name, level
        stack += [(child, level + 1) for child in reversed(tree.children.get(name, ()))]


def _matters(share: QueueShare, position: int) -> bool:
    if share.allocated[position] > 0 or share.request[position] > 0 or share.fair_share[position] > 0:
        return True
    return share.queue.deserved[position] > 0 or share.queue.limit[position] > 0


def _cells(share: QueueShare, resource: ResourceName, position: int) -> tuple[str, ...]:
    columns = (
        share.allocated,
        share.allocated_non_preemptible,
        share.request,
        share.queue.deserved,
        share.fair_share,
        share.queue.limit,
    )
    return tuple(format_amount(resource, amounts[position]) for amounts in columns)


def _reserved(amounts: CPUMemory, resource: ResourceName, position: int) -> str:
    """Resizes change CPU and memory alone."""
    return format_amount(resource, amounts[position]) if position < len(amounts) else ""


def _bar(share: QueueShare, position: int) -> str:
    """Allocated against whatever is largest of what may be held."""
    held, fair = share.allocated[position], share.fair_share[position]
    bounds = [amount for amount in (share.queue.deserved[position], share.queue.limit[position]) if amount != UNLIMITED]
    full = max(held, fair, *bounds, 0.0)
    if full <= 0:
        return "." * _BAR
    cells = round(held / full * _BAR)
    drawn = ["#"] * cells + ["."] * (_BAR - cells)
    if fair > 0:
        drawn[min(_BAR - 1, round(fair / full * _BAR))] = "|"
    return "".join(drawn)


def resize_lines(answer: ResizeAnswer) -> Iterator[str]:
    """The answer to a resize, and every bound compared."""
    yield ("admitted: " if answer.allowed else "") + answer.message
    if answer.delta:
        yield "  growth: " + ", ".join(f"{name} {amount}" for name, amount in sorted(answer.delta.items()))
    if answer.group is not None:
        kind = "preemptible" if answer.preemptible else "not preemptible"
        yield f"  pod group {answer.group.name}, queue {answer.group.queue or '(none)'}, {kind}"
    yield from _steps(answer.steps)


def reclaim_lines(job: str, proposal: ReclaimProposal) -> Iterator[str]:
    """Who could be reclaimed for a job, why not the others, and the decision."""
    reclaimer = proposal.reclaimer
    yield f"{job} in queue {reclaimer.queue} asks for {_amounts(reclaimer.resources) or 'nothing'}"
    yield "may it reclaim at all: " + ("yes" if proposal.decision.gate.allowed else "no")
    yield from _steps(proposal.decision.gate.steps)
    for name, verdict in proposal.candidates.items():
        yield f"queue {name}: " + ("could give" if verdict.allowed else "gives nothing")
        yield from _steps(verdict.steps)
    for piece in proposal.pieces:
        yield f"victim: {piece.job.name} of queue {piece.job.queue}, {_amounts(piece.resources)}"
    yield from _steps(proposal.decision.steps[len(proposal.decision.gate.steps) :])
    for back in proposal.decision.take_backs:
        yield f"warning: queue {back.queue} could take back at once ({back.kind}, by {', '.join(dict.fromkeys(back.by))})"
    if proposal.possible:
        yield "decision: it fits without victims" if not proposal.pieces else "decision: reclaim"
    else:
        missing = _amounts(proposal.lacking)
        yield "decision: no" + (f"; still missing: {missing}" if missing else "")


def _amounts(amounts: ResourceQuantities) -> str:
    """Amounts by resource in words; resources of which there is none are left out."""
    given = [(name, amount) for name, amount in zip(RESOURCES, amounts, strict=True) if amount]
    return ", ".join(f"{name} {format_amount(name, amount)}" for name, amount in given)


def simulation_lines(tree: QueueTree, outcome: Outcome, take_backs: Mapping[str, int]) -> Iterator[str]:
    """Every event, how it ended, and the tree at the end."""
    for event in outcome.events:
        yield _event(event)
    yield f"{outcome.rounds} rounds: " + ("it goes round in circles" if outcome.looped else "nothing moves any more")
    for kind, count in take_backs.items():
        yield f"could be taken back at once: {count} x {kind}"
    waiting = [job.name for job in outcome.jobs if any(job.pending)]
    if waiting:
        yield f"still waiting: {', '.join(waiting)}"
    yield ""
    yield from tree_lines(tree, outcome.shares)


def _event(event: Event) -> str:
    if event.kind is EventKind.ALLOCATED:
        return f"round {event.round}: {event.job} starts (queue {event.queue})"
    return (
        f"round {event.round}: {event.job} starts (queue {event.queue}), taken from {', '.join(event.victims)} "
        f"by {', '.join(event.strategies)}"
    )


def _steps(steps: Iterable[Step]) -> Iterator[str]:
    for step in steps:
        yield f"  {step}"
