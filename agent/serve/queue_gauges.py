"""The gauges of every queue as text, kept: after a change only the lines of queues that have changed are written anew.

Names and labels of KAI's: queue controller of KAI-Scheduler 0.18; CPU in cores, memory in bytes, unlimited as -1. A thousand
queues are 31,000 samples, so they are written as text at once: one object for each sample costs ten times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.model.queue import RESOURCES, UNLIMITED, Queue, QueueShare, QueueShares
from agent.queues.accountant_view import AccountantView
from agent.queues.resize_growth import NOTHING, CPUMemory
from agent.queues.totals import QueueTotals
from agent.serve.exposition import family_head, label_text, sample_text

_UNIT = "cores, bytes, GPUs"


class _Row(NamedTuple):
    """What the lines of one queue follow from. stale: None where nothing of it comes from silent nodes."""

    share: QueueShare
    reserved: CPUMemory
    stale: QueueTotals | None


class _Labels(NamedTuple):
    """Label texts: KAI's, and ours for each resource."""

    kai: str
    ours: tuple[str, ...]


@dataclass(slots=True)
class _Gauge:
    """One family. amounts: of one queue, for each of its labels. cells: the lines by queue name. text: all of it."""

    name: str
    help: str
    amounts: Callable[[_Row], Sequence[float]]
    kai: bool = False
    cells: dict[str, str] = field(default_factory=dict)
    text: bytes = b""

    def write(self, labels: _Labels, row: _Row) -> bool:
        """The lines of one queue anew. Whether they are other ones now."""
        of = (labels.kai,) if self.kai else labels.ours
        samples = zip(of, self.amounts(row), strict=False)  # some know fewer resources, or none
        cell = "".join([sample_text(self.name, label, amount) for label, amount in samples])
        queue = row.share.queue.name
        if self.cells.get(queue) == cell:
            return False
        self.cells[queue] = cell
        return True

    def join(self) -> None:
        """Write the text anew."""
        self.text = (family_head(self.name, "gauge", self.help) + "".join(self.cells.values())).encode()


class QueueGauges:
    """Not for several threads at once."""

    def __init__(self) -> None:
        self._gauges = (*_kai(), *_ours())
        self._shares: QueueShares = {}  # as written
        self._reserved: Mapping[str, CPUMemory] = {}
        self._stale: Mapping[str, QueueTotals] = {}
        self._labels: dict[str, tuple[str, _Labels]] = {}  # with the display name that they were made of

    def text(self, view: AccountantView) -> list[bytes]:
        """The gauges of a view, family by family. Costs what is different from the view before."""
        if list(self._shares) != list(view.shares):
            self._forget()
        changed = {name for name, share in view.shares.items() if self._shares.get(name) is not share}
        changed |= _different(self._reserved, view.reserved) | _different(self._stale, view.stale)
        rows = [(self._label(view.shares[name].queue), _row(view, name)) for name in view.shares if name in changed]
        for gauge in self._gauges:
            others = [gauge.write(labels, row) for labels, row in rows]
            if any(others) or not gauge.text:
                gauge.join()
        self._shares, self._reserved, self._stale = view.shares, view.reserved, view.stale
        return [gauge.text for gauge in self._gauges]

    def _forget(self) -> None:
        """Other queues, or another order: everything anew."""
        self._shares, self._labels = {}, {}
        for gauge in self._gauges:
            gauge.cells, gauge.text = {}, b""

    def _label(self, queue: Queue) -> _Labels:
        display_name, labels = self._labels.get(queue.name, (None, None))
        if labels is None or display_name != queue.display_name:
            labels = _labels_of(queue)
            self._labels[queue.name] = queue.display_name, labels
        return labels


def _row(view: AccountantView, name: str) -> _Row:
    return _Row(view.shares[name], view.reserved.get(name, NOTHING), view.stale.get(name))


def _different(before: Mapping[str, object], now: Mapping[str, object]) -> set[str]:
    return {name for name in before.keys() | now.keys() if before.get(name) != now.get(name)}


def _labels_of(queue: Queue) -> _Labels:
    names = {
        "queue_name": queue.name,
        "queue_metadata_name": queue.name,
        "queue_display_name": queue.display_name or queue.name,
    }
    ours = tuple(label_text({"queue": queue.name, "resource": resource.value}) for resource in RESOURCES)
    return _Labels(label_text(names), ours)


def _kai() -> Iterator[_Gauge]:
    def gauge(name: str, text: str, value: Callable[[QueueShare], float]) -> _Gauge:
        return _Gauge(name, text, lambda row: (value(row.share),), kai=True)

    quota = "Deserved quota of {}; -1 is unlimited."
    yield gauge("queue_info", "Queues that exist.", lambda _: 1.0)
    yield gauge("queue_deserved_gpus", quota.format("GPUs"), lambda each: each.queue.deserved.gpu)
    yield gauge("queue_quota_cpu_cores", quota.format("CPU in cores"), lambda each: _cores(each.queue.deserved.cpu))
    yield gauge("queue_quota_memory_bytes", quota.format("memory in bytes"), lambda each: each.queue.deserved.memory)
    yield gauge("queue_allocated_gpus", "GPUs that are allocated.", lambda each: each.allocated.gpu)
    yield gauge("queue_allocated_cpu_cores", "CPU allocated, in cores.", lambda each: _cores(each.allocated.cpu))
    yield gauge("queue_allocated_memory_bytes", "Memory allocated, in bytes.", lambda each: each.allocated.memory)


def _ours() -> Iterator[_Gauge]:
    def gauge(name: str, text: str, amounts: Callable[[_Row], Sequence[float]]) -> _Gauge:
        def in_cores(row: _Row) -> Sequence[float]:
            found = amounts(row)
            return (_cores(found[0]), *found[1:]) if found else ()  # CPU is the first resource

        return _Gauge(f"pinfold_queue_{name}", f"{text}: {_UNIT}.", in_cores)

    yield gauge(
        "allocated", "Allocated: what the pods of the queue and below it occupy", lambda row: row.share.allocated
    )
    text = "Allocated to work that cannot be preempted"
    yield gauge("allocated_non_preemptible", text, lambda row: row.share.allocated_non_preemptible)
    yield gauge("requested", "Requested by running and waiting pods", lambda row: row.share.request)
    yield gauge("quota", "Deserved quota, -1 is unlimited", lambda row: row.share.queue.deserved)
    yield gauge("limit", "Limit, -1 is unlimited", lambda row: row.share.queue.limit)
    yield gauge("fair_share", "Fair share", lambda row: row.share.fair_share)
    yield gauge("reserved", "Reserved: growth of admitted resizes that no report shows yet", lambda row: row.reserved)
    yield gauge(
        "stale",
        "Allocated on silent nodes",
        lambda row: () if row.stale is None else row.stale.allocated.quantities(),
    )


def _cores(millis: float) -> float:
    return millis if millis == UNLIMITED else millis / 1000
