"""The queue rules beside a plain reference and KAI-Scheduler: what `benchmarks.bench_queues` measures, in the one table.

CPU time of the fastest call.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import bench_queues
from benchmarks.figure import Figure, Scale
from benchmarks.problems import WrongResultError
from benchmarks.row import KAI, Recorded, Reference, Row, Target

BUDGET = "fair share, 1,000 queues x 3 resources"  # of design section 13


def rows(scale: Scale) -> Iterator[Row]:
    try:
        for part in (
            bench_queues.fair_share_rows,
            bench_queues.reclaim_rows,
            bench_queues.accounting_rows,
            bench_queues.change_rows,
        ):
            yield from map(_row, part(scale.seconds))
    except SystemExit as error:
        raise WrongResultError(str(error)) from error


def _row(found: bench_queues.Row) -> Row:
    """found: in microseconds."""
    return Row(
        found.what,
        Figure.of([found.pinfold / 1000]),
        reference=None if found.reference is None else Reference("plain rules", Figure.of([found.reference / 1000])),
        recorded=None if found.go is None else Recorded(found.go / 1000, KAI),
        target=Target("not above Go's", "least", found.go / 1000) if found.what == BUDGET and found.go else None,
    )
