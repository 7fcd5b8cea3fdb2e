"""Queue rules: pinfold against a straightforward reference of our own, same inputs, same process.

usage: python -m benchmarks.bench_queues [--seconds S] [--json]

Fair share: one flat group of N queues, three resources, four priorities, finite quotas, no limits, weights 1-4, usage;
there is twice what the quotas add up to. Reclaim: 1,000 queues (10 departments, 90 teams, 900 leaves), 50 victims on 50
leaves, answer yes. Accounting: 1,000 queues of depth 4, 2,000 nodes, 50,000 pods. One change: with 5,000 and with 50,000
pods, which must cost the same. Figures are process CPU time of the fastest call, in microseconds; `go` are constants (see
GO). Without a reference the ratio is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import count, cycle

from agent.formats.pods import decode_pod
from agent.formats.queue_objects import QueueObjects
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.queue import QUEUE_LABEL, UNLIMITED, ClusterNode, PodGroup, Queue, QueueShare, ResourceQuantities
from agent.model.state import Epoch
from agent.queues.accountant import Accountant, AccountantOptions
from agent.queues.accountant_view import capture
from agent.queues.accounting import Accounting, Taken
from agent.queues.charge import NANO, Amounts, PodCharge
from agent.queues.fair_share import divide_cluster
from agent.queues.ledger import Ledger, LedgerOptions, Reservation, admit
from agent.queues.node_report import NodeReport, ReportedPod
from agent.queues.object_changes import compare as compare_objects
from agent.queues.options import QueueOptions
from agent.queues.order import Contender, compare
from agent.queues.reclaim import can_reclaim, reclaimable
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.resize_admission import ResizeOptions, decide_resize
from agent.queues.resize_growth import CPUMemory
from agent.queues.status_watch import accounted_charge
from agent.queues.tree import build
from agent.queues.workloads import Directory
from tests.queues.reference import reference_fair_shares, reference_reclaimable

# KAI-Scheduler 0.18.0, its `proportion` plugin in one Go process: CPU microseconds per operation, garbage collection included,
# median of three runs on 2 logical CPUs of an Intel Xeon with a load of 10-28. Constants of that run, not measured here.
GO = {
    "fair share 10": 53.6,
    "fair share 100": 503.8,
    "fair share 1000": 7628.7,
    "reclaimable off": 394.8,
    "reclaimable on": 396.0,
    "can reclaim": 0.9,
    "queue order": 7.6,
}
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
        return f"{self.what:52}{self.pinfold:14,.1f}{reference:>14}{ratio:>8}{go:>12}"


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
    for size in (10, 100, 1000):
        shares, total = flat_group(size)
        tree, _ = build(share.queue for share in shares.values())
        if divide_cluster(tree, shares, total, options).shares != reference_fair_shares(shares, total, options):
            raise SystemExit(f"fair share of {size} queues: the two disagree")
        ours = fastest(partial(divide_cluster, tree, shares, total, options), seconds)
        theirs = fastest(partial(reference_fair_shares, shares, total, options), seconds)
        yield Row(f"fair share, {size:,} queues x 3 resources", ours, theirs, GO[f"fair share {size}"])


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
    for flag in (False, True):
        switch = "on" if flag else "off"
        options = QueueOptions(queue_priority_in_quota_reclaim=flag)
        if not reclaimable(shares, reclaimer, victims, options).allowed:
            raise SystemExit("reclaim: the answer should be yes")
        ours = fastest(partial(reclaimable, shares, reclaimer, victims, options), seconds)
        theirs = fastest(partial(reference_reclaimable, shares, reclaimer, victims, options), seconds)
        yield Row(f"reclaimable, 50 victims, flag {switch}", ours, theirs, GO[f"reclaimable {switch}"])
    options = QueueOptions()
    yield Row("can reclaim", fastest(lambda: can_reclaim(shares, reclaimer, options), seconds), None, GO["can reclaim"])
    left, right = Contender(shares["l1"], one), Contender(shares["l2"], one)
    order = fastest(lambda: compare(left, right, one, options), seconds)
    yield Row("queue order, one comparison", order, None, GO["queue order"])


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


def change_rows(seconds: float) -> Iterator[Row]:
    """What one change costs, by what there is."""
    for pods in (5_000, 50_000):
        found = known(pods)
        generations, sizes = count(2), cycle("23")

        def report(found: Accountant = found, generations: Iterator[int] = generations) -> None:
            number = next(generations)
            cost = Amounts((1 + number % 3) * NANO, 2**30 * NANO)
            pod = ReportedPod("ns", "p0", "d0", "", None, cost, cost)
            changed = NodeReport("n0", (EPOCH, number), (EPOCH, number - 1), {"u0": pod})
            if found.take_report(changed, 0.0) is not Taken.APPLIED:
                raise SystemExit("a difference was not taken")

        def follow(found: Accountant = found, sizes: Iterator[str] = sizes) -> None:
            found.take_objects(compare_objects(found.known, found.known.objects), 0.0, {"u1": seen(1, next(sizes))})

        yield Row(f"accountant of {pods:,} pods: a node reports one", fastest(report, seconds))
        yield Row(f"accountant of {pods:,} pods: one of the API server", fastest(follow, seconds))
        yield Row(
            f"accountant of {pods:,} pods: a moment of all queues", fastest(partial(capture, found, 0.0), seconds)
        )
        yield Row(f"accountant of {pods:,} pods: a tick", fastest(partial(found.tick, 0.0), seconds))


def known(pods: int, nodes: int = 2000) -> Accountant:
    """An accountant with the tree of depth 4 to which every pod was reported and shown by the API server."""
    found = Accountant(AccountantOptions(), 0.0)
    cores = {"cpu": Quantity.parse("256")}
    objects = QueueObjects(tuple(deep_tree()), nodes=tuple(ClusterNode(f"n{node}", cores) for node in range(nodes)))
    found.take_objects(objects, 0.0, {f"u{number}": seen(number, "1") for number in range(pods)})
    cost = Amounts(NANO, 2**30 * NANO)
    for node in range(nodes):
        reported = {
            f"u{number}": ReportedPod("ns", f"p{number}", f"d{number % 800}", "", None, cost, cost)
            for number in range(node, pods, nodes)
        }
        found.take_report(NodeReport(f"n{node}", (EPOCH, 1), pods=reported, allocatable=cores), 0.0)
    return found


def seen(number: int, cpu: str) -> Pod:
    pod = pod_of(cpu)
    labels = {QUEUE_LABEL: f"d{number % 800}"}
    return replace(
        pod, uid=f"u{number}", name=f"p{number}", node_name=f"n{number % 2000}", labels=labels, annotations={}
    )


@cache
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
        print("load average: " + " ".join(f"{load:.1f}" for load in os.getloadavg()))
        print(f"{'what, µs':52}{'pinfold':>14}{'reference':>14}{'ratio':>8}{'go':>12}")
    for rows in (fair_share_rows, reclaim_rows, accounting_rows, change_rows):
        for row in rows(arguments.seconds):
            print(json.dumps(asdict(row)) if arguments.json else row, flush=True)


if __name__ == "__main__":
    main()
