"""How the queue accountant grows with its queues: a tree of depth 4, five pods for every queue, 25 pods a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from agent.formats.pods import decode_pod
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.queues.accountant import AccountantOptions
from agent.queues.fair_share import divide_cluster
from agent.queues.node_report import NodeReport
from agent.queues.options import QueueOptions
from agent.queues.tree import build
from agent.serve.accountant import AccountantService
from agent.serve.queue_metrics import QueueMetrics
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.series import Tally
from benchmarks.bench_queues import flat_group
from benchmarks.curve import Curve, Series
from benchmarks.figure import Scale, least_cpu
from benchmarks.problems import WrongResultError
from tests.serve import accountants

SIZES = (10, 30, 100, 300, 1000, 3000, 10_000)
PODS_PER_QUEUE, PODS_PER_NODE = 5, 25
SHARES = (0.02, 0.08, 0.3, 0.6)  # of the queues on each level


@dataclass(frozen=True)
class Cluster:
    """Queues of four levels, a pod group for each of the lowest, and the nodes' full reports."""

    leaves: Sequence[str]
    objects: QueueObjects
    nodes: int

    def report(self, node: int, generation: int = 1, cores: float = 2) -> NodeReport:
        pods = {}
        for number in range(node * PODS_PER_NODE, (node + 1) * PODS_PER_NODE):
            name = f"u-{number}"
            pods[name] = accountants.reported(name, cores, self.leaves[number % len(self.leaves)])
        stamp = (accountants.EPOCH, generation)
        return NodeReport(f"n{node}", stamp, None, pods, allocatable=accountants.CORES)


def cluster(queues: int) -> Cluster:
    objects, above = list[dict[str, object]](), [""]
    for level, share in enumerate(SHARES):
        names = [f"q{level}-{number}" for number in range(max(1, round(queues * share)))]
        objects += [accountants.queue(name, above[number % len(above)]) for number, name in enumerate(names)]
        above = names
    nodes = max(1, queues * PODS_PER_QUEUE // PODS_PER_NODE)
    objects += [accountants.pod_group(name, name) for name in above]
    objects += [accountants.node(f"n{number}") for number in range(nodes)]
    return Cluster(above, decode_objects(objects), nodes)


def rebuilt(here: Cluster, reports: Sequence[NodeReport]) -> AccountantService:
    """An accountant that begins: it reads the objects and is told everything."""
    found = accountants.service(AccountantOptions(), objects=here.objects)
    for report in reports:
        found.take_report(report)
    return found


def curves(scale: Scale) -> Iterator[Curve]:
    lines = dict[str, list[tuple[float, float]]]()
    for queues in scale.pick(SIZES, (10, 30)):
        for name, value in measured(queues, scale).items():
            lines.setdefault(name, []).append((float(queues), value))
    series = tuple(Series(name, tuple(points)) for name, points in lines.items())
    yield Curve(
        "queues", "The queue accountant, by queues (CPU time)", "queues (depth 4, five pods each)", "ms", series
    )


def measured(queues: int, scale: Scale) -> dict[str, float]:
    """Milliseconds of CPU time, by what is done."""
    shares, total = flat_group(queues)
    tree, _ = build(share.queue for share in shares.values())
    here = cluster(queues)
    reports = [here.report(node) for node in range(here.nodes)]
    service = rebuilt(here, reports)
    metrics, generations = QueueMetrics(service, Tally(QUEUE_SERIES)), count(2)
    group = here.leaves[0]
    old, new = (decode_pod(accountants.pod("u-0", cpu, group=group)) for cpu in ("2", "3"))
    if not service.resize(old, new, reserve=False).answer.allowed:
        raise WrongResultError("the resize is refused")

    def change() -> None:
        generation = next(generations)
        service.take_report(here.report(0, generation, 2 + generation % 2))

    def scrape() -> None:
        change()  # what is the same as before is not computed anew
        metrics.text()

    def rebuild() -> None:
        rebuilt(here, reports)

    seconds = scale.seconds
    return {
        "fair share of one flat group": least_cpu(
            partial(divide_cluster, tree, shares, total, QueueOptions()), seconds
        ),
        "resize admission": least_cpu(lambda: service.resize(old, new, reserve=False), seconds),
        "a node's full report (25 pods)": least_cpu(change, seconds),
        "scrape after a change": least_cpu(scrape, 0.0, least=2),
        "rebuild from all reports": least_cpu(rebuild, 0.0, least=2),
    }
