"""The queue accountant as a process: what `benchmarks.bench_queue_server` measures, in the one table.

1,000 queues of depth 4, 2,000 nodes, 50,000 pods. Times are the client's, over unix sockets and https; it shares the CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks import bench_queue_server
from benchmarks.figure import Figure, Scale
from benchmarks.row import Row, Target

REVIEWS, QUICK_REVIEWS = 1000, 80
QUICK_NODES = 500  # as many as get a delta each
LIMIT_MS = 5.0  # design section 13: p99 of a review
BUDGETS = ("review, ledger off, one connection", "review, ledger on, one connection")


def rows(scale: Scale) -> Iterator[Row]:
    if scale.quick:
        bench_queue_server.NODES = QUICK_NODES
    for found in bench_queue_server.rows(scale.pick(REVIEWS, QUICK_REVIEWS)):
        target = Target("p99 < 5 ms", "p99", LIMIT_MS) if found.what in BUDGETS else None
        figure = Figure(found.p50, found.p50, found.p99, found.most, scale.pick(REVIEWS, QUICK_REVIEWS))
        yield Row(found.what, figure, target=target)
        yield Row("  CPU time of the server for one of these", Figure.of([found.cpu]))
