"""The accountant's metrics: KAI's queue series under their own names and units, and `pinfold_queue_*`.

Names and labels of KAI's: queue controller of KAI-Scheduler 0.18; CPU in cores, memory in bytes, unlimited as -1. A thousand
queues are 31,000 samples, so they are written as text at once: one object for each sample costs ten times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from agent.model.queue import RESOURCES, UNLIMITED, Queue, QueueShare
from agent.queues.accountant_view import AccountantView
from agent.queues.resize_growth import NOTHING
from agent.serve.accountant import AccountantService
from agent.serve.exposition import CONTENT_TYPE, family_text, label_text, write_metrics
from agent.serve.http_messages import Request, Response
from agent.serve.metrics import tallied
from agent.serve.series import Tally

_GAUGE = "gauge"


class QueueMetrics:
    """Written from one view of the accountant; while nothing changes, once.

    standby: why another replica answers, "" where this one does. One that does not knows less: its amounts would only mislead.
    """

    def __init__(self, service: AccountantService, tally: Tally, standby: Callable[[], str] = lambda: "") -> None:
        self._service = service
        self._tally = tally
        self._standby = standby
        self._labels = _Labels()
        self._written: tuple[AccountantView, str] | None = None

    def answer(self, _: Request) -> Response:
        """For an HTTPServer."""
        return Response(self.text(), CONTENT_TYPE)

    def text(self) -> str:
        """Everything there is to tell now."""
        answers = not self._standby()
        told = "1 where this replica answers, 0 where another one does, or none."
        head = family_text("pinfold_queue_answers", _GAUGE, told, [("", float(answers))])
        return head + (self._of(self._service.view()) if answers else "") + write_metrics(tallied(self._tally))

    def _of(self, view: AccountantView) -> str:
        written = self._written
        if written is None or written[0] is not view:
            written = self._written = (view, view_text(view, self._labels))
        return written[1]


class _Labels:
    """The label texts of queues, each made once."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}

    def of(self, queues: Iterable[Queue]) -> list[tuple[str, tuple[str, ...]]]:
        """KAI's labels of every queue, and ours for each resource. Those of queues that are gone are forgotten."""
        known, self._made = self._made, {}
        for queue in queues:
            key = queue.name, queue.display_name
            self._made[key] = known.get(key) or _labels_of(queue)
        return list(self._made.values())


def _labels_of(queue: Queue) -> tuple[str, tuple[str, ...]]:
    names = {
        "queue_name": queue.name,
        "queue_metadata_name": queue.name,
        "queue_display_name": queue.display_name or queue.name,
    }
    ours = tuple(label_text({"queue": queue.name, "resource": resource.value}) for resource in RESOURCES)
    return label_text(names), ours


def view_text(view: AccountantView, labels: _Labels | None = None) -> str:
    """The gauges of a view."""
    shares = list(view.shares.values())
    made = (labels or _Labels()).of(share.queue for share in shares)
    return "".join(
        [*_kai(shares, [each for each, _ in made]), *_amounts(view, [each for _, each in made]), *_state(view)]
    )


def _kai(shares: Sequence[QueueShare], labels: Sequence[str]) -> Iterator[str]:
    def gauge(name: str, text: str, values: Iterable[float]) -> str:
        return family_text(name, _GAUGE, text, zip(labels, values, strict=True))

    yield gauge("queue_info", "Queues that exist.", (1.0 for _ in shares))
    yield gauge("queue_deserved_gpus", "Quota of GPUs.", (each.queue.deserved.gpu for each in shares))
    yield gauge("queue_quota_cpu_cores", "Quota of CPU.", (_cores(each.queue.deserved.cpu) for each in shares))
    yield gauge("queue_quota_memory_bytes", "Quota of memory.", (each.queue.deserved.memory for each in shares))
    yield gauge("queue_allocated_gpus", "GPUs in use.", (each.allocated.gpu for each in shares))
    yield gauge("queue_allocated_cpu_cores", "CPU in use.", (_cores(each.allocated.cpu) for each in shares))
    yield gauge("queue_allocated_memory_bytes", "Memory in use.", (each.allocated.memory for each in shares))


def _cores(millis: float) -> float:
    return millis if millis == UNLIMITED else millis / 1000


Rows = Iterable[tuple[Sequence[str], Sequence[float]]]  # labels by resource, amounts by resource


def _amounts(view: AccountantView, labels: Sequence[tuple[str, ...]]) -> Iterator[str]:
    shares = list(view.shares.values())

    def gauge(name: str, text: str, rows: Rows) -> str:
        samples = [
            (label, _cores(amount) if not position else amount)  # CPU is the first resource
            for each, amounts in rows
            for position, (label, amount) in enumerate(zip(each, amounts, strict=False))
        ]
        return family_text(f"pinfold_queue_{name}", _GAUGE, f"{text}: cores, bytes, GPUs; -1 is unlimited.", samples)

    def of(amounts: Iterable[Sequence[float]]) -> Rows:
        return zip(labels, amounts, strict=True)

    yield gauge("allocated", "What the queue's pods occupy", of(each.allocated for each in shares))
    text = "What of it cannot be preempted"
    yield gauge("allocated_non_preemptible", text, of(each.allocated_non_preemptible for each in shares))
    yield gauge("requested", "What running and waiting pods ask for", of(each.request for each in shares))
    yield gauge("quota", "Deserved quota", of(each.queue.deserved for each in shares))
    yield gauge("limit", "Limit", of(each.queue.limit for each in shares))
    yield gauge("fair_share", "Fair share", of(each.fair_share for each in shares))
    reserved = (view.reserved.get(each.queue.name, NOTHING) for each in shares)
    yield gauge("reserved", "Growth admitted that no report shows yet", of(reserved))
    stale = [
        (each, view.stale[share.queue.name].allocated.quantities())
        for each, share in zip(labels, shares, strict=True)
        if share.queue.name in view.stale
    ]
    yield gauge("stale", "What of the allocated comes from silent nodes", stale)


def _state(view: AccountantView) -> Iterator[str]:
    taken = view.capture
    over = [
        (label_text({"queue": each.queue, "resource": each.resource.value, "bound": each.bound_kind.value}), 1.0)
        for each in view.violations
    ]
    yield family_text("pinfold_queue_over_bound", _GAUGE, "1 where a queue holds more than a bound allows.", over)
    stale = len(taken.stale_since)
    states = {"counted": len(taken.nodes) - stale, "stale": stale, "missing": len(taken.missing)}
    nodes = [(label_text({"state": state}), float(count)) for state, count in states.items()]
    yield family_text("pinfold_queue_nodes", _GAUGE, "Nodes by what is known of them.", nodes)
    yield _one("in_sync", "1 where every node is accounted for.", taken.complete)
    yield _one("reservations", "Admitted resizes that are waited for.", len(taken.ledger.reservations))
    yield _one("disagreements", "Pods on which two sources differ.", sum(map(len, taken.disagreements.values())))
    yield _one("refused_objects", "Objects that could not be used.", len(taken.problems))
    unknown = sum(totals.pods for totals in view.unknown.values())
    yield _one("uncharged_pods", "Pods whose queue does not exist, or that name none.", unknown)


def _one(name: str, text: str, value: float) -> str:
    return family_text(f"pinfold_queue_{name}", _GAUGE, text, [("", float(value))])
