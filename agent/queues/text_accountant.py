"""What an accountant knows as text: the queue tree with what is reserved, and what needs attention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from agent.queues.accountant_view import AccountantView
from agent.queues.text import overview_lines, trouble_lines


def accountant_lines(view: AccountantView) -> Iterator[str]:
    """The queue tree as it is shown of files too, then what needs attention."""
    yield from overview_lines(view.snapshot, view.reserved)
    yield from remark_lines(view)
    if not view.capture.complete:
        yield "incomplete: not every node is accounted for, so resizes count what Queue.status says too"


def remark_lines(view: AccountantView) -> Iterator[str]:
    """What is not as it should be, of queues, objects and nodes."""
    taken = view.capture
    yield from trouble_lines(view.snapshot, view.violations)
    for node in sorted(taken.missing):
        yield f"missing: node {node} has not reported"
    for node, since in sorted(taken.stale_since.items()):
        yield f"silent: node {node} since {time_of_day(since)}, its charge is kept"
    for queue, since in taken.status_differs.items():
        yield f"disagreement: Queue.status of {queue} differs since {time_of_day(since)}"


def time_of_day(moment: float) -> str:
    """Unix time as people read it today."""
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S UTC")
