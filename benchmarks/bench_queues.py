"""Queue rules: pinfold against a straightforward reference of our own, same inputs, same process.

usage: python benchmarks/bench_queues.py [--seconds S] [--json]

Fair share: one flat group of N queues, three resources, four priorities, finite quotas, no limits, weights 1-4, usage;
there is twice what the quotas add up to. Reclaim: 1,000 queues (10 departments, 90 teams, 900 leaves), 50 victims on 50
leaves, answer yes. Accounting: 1,000 queues of depth 4, 2,000 nodes, 50,000 pods. Figures are process CPU time of the
fastest call, in microseconds; `go` is KAI-Scheduler 0.18 in Go as far as it is known (another run, another load).
Without a reference the ratio is left out.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from agent.formats.pods import decode_pod
from agent.model.pod import Pod
from agent.model.queue import UNLIMITED, PodGroup, Queue, QueueShare, ResourceQuantities
from agent.model.state import Epoch
from agent.queues.accounting import Accounting
from agent.queues.charge import NANO, Amounts, PodCharge
from agent.queues.fair_share import divide_cluster
from agent.queues.ledger import Ledger, LedgerOptions, Reservation, admit
from agent.queues.options import QueueOptions
from agent.queues.order import Contender, compare
from agent.queues.reclaim import Reclaimer, Victims, can_reclaim, reclaimable
from agent.queues.resize_admission import CPUMemory, ResizeOptions, decide_resize
from agent.queues.status_watch import accounted_charge
from agent.queues.tree import build
from agent.queues.workloads import Directory
from tests.queues.reference import reference_fair_shares, reference_reclaimable

NO_LIMIT = ResourceQuantities(UNLIMITED, UNLIMITED, UNLIMITED)
EPOCH = Epoch(1, "0" * 16)


@dataclass(frozen=True)
class Row:
    """One figure, in microseconds."""

    what: str
    pinfold: float
    reference: float | None = None
    go: float | None = None

    def __str__(self) -> str:
        ratio = f"{self.reference / self.pinfold:.1f}x" if self.reference is not None else ""
        reference, go = (f"{figure:,.1f}" if figure is not None else "-" for figure in (self.reference, self.go))
        return f"{self.what:44}{self.pinfold:14,.1f}{reference:>14}{ratio:>8}{go:>12}"


def fastest(call: Callable[[], object], seconds: float) -> float:
    """Microseconds of CPU time of the fastest of the calls that fit into so many seconds, at least three."""
    best, calls, until = float("inf"), 0, time.perf_counter() + seconds
    while calls < 3 or time.perf_counter() < until:
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
        calls += 1
    return best * 1e6


def flat_group(size: int) -> tuple[dict[str, QueueShare], ResourceQuantities]:
    """The workload of the Go figures for fair share."""
    chance, shares = random.Random(1), dict[str, QueueShare]()
    for number in range(size):
        deserved = ResourceQuantities(
            float(chance.randint(0, 8000)), float(chance.randint(0, 32) * 10**9), float(chance.randint(0, 8))
        )
        weight = float(chance.randint(1, 4))
        queue = Queue(
            f"q{number:04}", "", chance.choice((50, 100, 150, 200)), number, deserved, NO_LIMIT,
            ResourceQuantities(weight, weight, weight),
        )  # fmt: skip
        request = ResourceQuantities(*(float(int(amount * chance.uniform(0, 3))) for amount in deserved))
        usage = ResourceQuantities(*(chance.random() * 2 / size for _ in range(3)))
        shares[queue.name] = QueueShare(queue, request=request, usage=usage)
    total = ResourceQuantities(*(2 * sum(share.queue.deserved[each] for share in shares.values()) for each in range(3)))
    return shares, total


def fair_share_rows(seconds: float) -> Iterator[Row]:
    options = QueueOptions()
    for size, go in ((10, 53.6), (100, 503.8), (1000, 7628.7)):
        shares, total = flat_group(size)
        tree, _ = build(share.queue for share in shares.values())
        if divide_cluster(tree, shares, total, options).shares != reference_fair_shares(shares, total, options):
            raise SystemExit(f"fair share of {size} queues: the two disagree")
        ours = fastest(partial(divide_cluster, tree, shares, total, options), seconds)
        theirs = fastest(partial(reference_fair_shares, shares, total, options), seconds)
        yield Row(f"fair share, {size:,} queues x 3 resources", ours, theirs, go)


def three_levels() -> dict[str, QueueShare]:
    """The workload of the Go figures for reclaim: every leaf but the reclaimer's is over its fair share."""
    shares: dict[str, QueueShare] = {}

    def add(name: str, parent: str, held: float, due: float) -> None:
        amounts, deserved = (ResourceQuantities(1000 * gpus, 1e10 * gpus, gpus) for gpus in (held, due))
        queue = Queue(name, parent, deserved=deserved, limit=NO_LIMIT)
        shares[name] = QueueShare(queue, allocated=amounts, fair_share=deserved)

    for number in range(10):
        add(f"d{number}", "", 360.0 if number else 0.0, 90.0)
    for number in range(90):
        add(f"t{number}", f"d{number % 10}", 40.0 if number else 0.0, 10.0)
    for number in range(900):
        add(f"l{number}", f"t{number % 90}", 4.0 if number else 0.0, 1.0)
    return shares


def reclaim_rows(seconds: float) -> Iterator[Row]:
    shares = three_levels()
    one = ResourceQuantities(1000.0, 1e10, 1.0)
    reclaimer = Reclaimer("l0", one)
    victims = [Victims(f"l{number * 7 + 1}", (ResourceQuantities(100.0, 1e9, 0.5),)) for number in range(50)]
    for flag, go in ((False, 394.8), (True, 396.0)):
        options = QueueOptions(queue_priority_in_quota_reclaim=flag)
        if not reclaimable(shares, reclaimer, victims, options).allowed:
            raise SystemExit("reclaim: the answer should be yes")
        ours = fastest(partial(reclaimable, shares, reclaimer, victims, options), seconds)
        theirs = fastest(partial(reference_reclaimable, shares, reclaimer, victims, options), seconds)
        yield Row(f"reclaimable, 50 victims, flag {'on' if flag else 'off'}", ours, theirs, go)
    options = QueueOptions()
    yield Row("can reclaim", fastest(lambda: can_reclaim(shares, reclaimer, options), seconds), None, 0.9)
    left, right = Contender(shares["l1"], one), Contender(shares["l2"], one)
    yield Row("queue order, one comparison", fastest(lambda: compare(left, right, one, options), seconds), None, 7.6)


def deep_tree() -> list[Queue]:
    """1,000 queues of depth 4."""
    queues = [Queue(f"a{number}", "", deserved=NO_LIMIT, limit=NO_LIMIT) for number in range(10)]
    queues += [Queue(f"b{number}", f"a{number % 10}", deserved=NO_LIMIT, limit=NO_LIMIT) for number in range(40)]
    queues += [Queue(f"c{number}", f"b{number % 40}", deserved=NO_LIMIT, limit=NO_LIMIT) for number in range(150)]
    queues += [Queue(f"d{number}", f"c{number % 150}", deserved=NO_LIMIT, limit=NO_LIMIT) for number in range(800)]
    return queues


def accounting_rows(seconds: float) -> Iterator[Row]:
    tree, _ = build(deep_tree())

    def charge(number: int) -> PodCharge:
        cost = Amounts((1 + number % 4) * NANO, (number % 7) * 2**30 * NANO, number % 3 * NANO)
        return PodCharge(f"ns/p{number}", f"d{number % 800}", number % 2 == 0, cost, cost)

    reports = {
        f"n{node}": {f"u{number}": charge(number) for number in range(node * 25, node * 25 + 25)}
        for node in range(2000)
    }

    def rebuild() -> Accounting:
        found = Accounting(tree)
        for node, pods in reports.items():
            found.take_report(node, (EPOCH, 1), pods, 0.0)
        return found

    yield Row("accounting, rebuild from 2,000 full reports", fastest(rebuild, seconds))
    found, generation = rebuild(), 1

    def change() -> None:
        nonlocal generation
        generation += 1
        grown = {"u0": charge(generation)}
        found.take_changes("n0", (EPOCH, generation - 1), (EPOCH, generation), grown, (), 0.0)

    yield Row("accounting, one pod changes", fastest(change, seconds))
    yield Row("accounting, all queues as shares", fastest(found.totals.shares, seconds))
    shares, total = found.totals.shares(), ResourceQuantities(4e8, 1e15, 1e5)
    yield Row(
        "fair share, 1,000 queues of depth 4",
        fastest(lambda: divide_cluster(tree, shares, total, QueueOptions()), seconds),
    )
    yield from resize_rows(found, seconds)


def pod_of(cpu: str) -> Pod:
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}],
    }
    metadata = {"name": "p", "namespace": "ns", "uid": "u", "annotations": {"pod-group-name": "pg"}}
    return decode_pod({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})


def resize_rows(found: Accounting, seconds: float) -> Iterator[Row]:
    tree, old, new = found.totals.tree, pod_of("1"), pod_of("2")
    directory, options = Directory.of(tree.queues.values(), [PodGroup("ns", "pg", "d5")]), ResizeOptions()
    charges = {name: accounted_charge(found.totals.of(name)) for name in tree.queues}
    yield Row("resize check, depth 4", fastest(lambda: decide_resize(old, new, directory, options, charges), seconds))
    waiting = Reservation("ns/x", "d7", True, CPUMemory(2000, 0), CPUMemory(1000, 0), 1e9)
    ledger = Ledger({f"r{number}": waiting for number in range(200)})

    def reserve() -> None:
        admit(ledger, old, new, directory, options, LedgerOptions(), charges, CPUMemory(1000, 2**30), 0.0)

    yield Row("resize check, ledger with 200 reservations", fastest(reserve, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="how long to repeat each call (default: %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="rows as JSON lines")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'what, µs':44}{'pinfold':>14}{'reference':>14}{'ratio':>8}{'go':>12}")
    for rows in (fair_share_rows, reclaim_rows, accounting_rows):
        for row in rows(arguments.seconds):
            print(json.dumps(asdict(row)) if arguments.json else row, flush=True)


if __name__ == "__main__":
    main()
