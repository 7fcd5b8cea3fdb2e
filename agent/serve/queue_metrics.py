"""The accountant's metrics: KAI's queue series under their own names and units, and `pinfold_queue_*`.

Names and labels of KAI's: queue controller of KAI-Scheduler 0.18; CPU in cores, memory in bytes, unlimited as -1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, ResourceName
from agent.queues.accountant_view import AccountantView
from agent.queues.resize_admission import NOTHING
from agent.serve.accountant import AccountantService
from agent.serve.metrics import tallied
from agent.serve.series import Tally

_KAI_LABELS = ["queue_name", "queue_metadata_name", "queue_display_name"]


class QueueCollector(Collector):
    """Computed from one view of the accountant at every scrape.

    standby: why another replica answers, "" where this one does. One that does not knows less: its amounts would only mislead.
    """

    def __init__(self, service: AccountantService, tally: Tally, standby: Callable[[], str] = lambda: "") -> None:
        self._service = service
        self._tally = tally
        self._standby = standby

    def collect(self) -> Iterator[Metric]:
        answers = not self._standby()
        yield _one("pinfold_queue_answers", "1 where this replica answers, 0 where another one does, or none.", answers)
        if answers:
            view = self._service.view()
            yield from _kai(view)
            yield from _amounts(view)
            yield from _state(view)
        yield from tallied(self._tally)


def _kai(view: AccountantView) -> Iterator[Metric]:
    shares = list(view.shares.values())

    def gauge(name: str, text: str, values: Iterable[float]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_KAI_LABELS)
        for share, value in zip(shares, values, strict=True):
            queue = share.queue
            family.add_metric([queue.name, queue.name, queue.display_name or queue.name], value)
        return family

    yield gauge("queue_info", "Queues that exist.", (1 for _ in shares))
    yield gauge("queue_deserved_gpus", "Quota of GPUs.", (each.queue.deserved.gpu for each in shares))
    yield gauge("queue_quota_cpu_cores", "Quota of CPU.", (_cores(each.queue.deserved.cpu) for each in shares))
    yield gauge("queue_quota_memory_bytes", "Quota of memory.", (each.queue.deserved.memory for each in shares))
    yield gauge("queue_allocated_gpus", "GPUs in use.", (each.allocated.gpu for each in shares))
    yield gauge("queue_allocated_cpu_cores", "CPU in use.", (_cores(each.allocated.cpu) for each in shares))
    yield gauge("queue_allocated_memory_bytes", "Memory in use.", (each.allocated.memory for each in shares))


def _cores(millis: float) -> float:
    return millis if millis == UNLIMITED else millis / 1000


def _amounts(view: AccountantView) -> Iterator[Metric]:
    shares = view.shares.values()
    columns: tuple[tuple[str, str, Iterable[tuple[QueueShare, Iterable[float]]]], ...] = (
        ("allocated", "What the queue's pods occupy", ((each, each.allocated) for each in shares)),
        (
            "allocated_non_preemptible",
            "What of it cannot be preempted",
            ((each, each.allocated_non_preemptible) for each in shares),
        ),
        ("requested", "What running and waiting pods ask for", ((each, each.request) for each in shares)),
        ("quota", "Deserved quota", ((each, each.queue.deserved) for each in shares)),
        ("limit", "Limit", ((each, each.queue.limit) for each in shares)),
        ("fair_share", "Fair share", ((each, each.fair_share) for each in shares)),
        (
            "reserved",
            "Growth admitted that no report shows yet",
            ((each, view.reserved.get(each.queue.name, NOTHING)) for each in shares),
        ),
        (
            "stale",
            "What of the allocated comes from silent nodes",
            ((view.shares[name], totals.allocated.quantities()) for name, totals in view.stale.items()),
        ),
    )
    for name, text, rows in columns:
        family = GaugeMetricFamily(
            f"pinfold_queue_{name}", f"{text}: cores, bytes, GPUs; -1 is unlimited.", labels=["queue", "resource"]
        )
        for share, amounts in rows:
            for resource, amount in zip(RESOURCES, amounts, strict=False):
                value = _cores(amount) if resource is ResourceName.CPU else amount
                family.add_metric([share.queue.name, resource.value], value)
        yield family


def _state(view: AccountantView) -> Iterator[Metric]:
    taken = view.capture
    over = GaugeMetricFamily(
        "pinfold_queue_over_bound",
        "1 where a queue holds more than a bound allows.",
        labels=["queue", "resource", "bound"],
    )
    for each in view.violations:
        over.add_metric([each.queue, each.resource.value, each.bound_kind.value], 1)
    yield over
    stale = len(taken.stale_since)
    nodes = GaugeMetricFamily("pinfold_queue_nodes", "Nodes by what is known of them.", labels=["state"])
    nodes.add_metric(["counted"], len(taken.nodes) - stale)
    nodes.add_metric(["stale"], stale)
    nodes.add_metric(["missing"], len(taken.missing))
    yield nodes
    yield _one("pinfold_queue_in_sync", "1 where every node is accounted for.", taken.complete)
    yield _one("pinfold_queue_reservations", "Admitted resizes that are waited for.", len(taken.ledger.reservations))
    yield _one("pinfold_queue_disagreements", "Pods on which two sources differ.", len(taken.disagreements))
    yield _one("pinfold_queue_refused_objects", "Objects that could not be used.", len(taken.problems))
    unknown = sum(totals.pods for totals in view.unknown.values())
    yield _one("pinfold_queue_uncharged_pods", "Pods whose queue does not exist, or that name none.", unknown)


def _one(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))
