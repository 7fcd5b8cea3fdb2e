"""`Queue.status` beside our own sums: what counts where some node is unknown, or where the two differ for long.

KAI's controller writes the status from the API server's pods. It is all there is where a node has neither report nor
pods; and where it stays larger than our sums, the larger counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from agent.model.queue import Queue, QueueShare, ResourceQuantities
from agent.queues.resize_bounds import QueueCharge, status_charge
from agent.queues.resize_growth import CPUMemory
from agent.queues.totals import QueueTotals, Totals


class StatusWatch:
    """Remembers since when each queue's status differs from our sums. Time is an argument."""

    def __init__(self, *, patience_seconds: float = 60.0) -> None:
        self._patience = patience_seconds
        self._since: dict[str, float] = {}

    def look(self, totals: Totals, now: float) -> None:
        """Compare every queue of the tree."""
        self._since = {
            name: self._since.get(name, now)
            for name, queue in totals.tree.queues.items()
            if _has_status(queue) and status_charge(queue) != accounted_charge(totals.of(name))
        }

    def differing(self) -> Mapping[str, float]:
        """Queues whose status differs, and since when."""
        return dict(self._since)

    def charge(self, queue: Queue, totals: QueueTotals, *, complete: bool, now: float) -> QueueCharge:
        """What the resize check is to count. complete: every node of the cluster is accounted for."""
        ours = accounted_charge(totals)
        since = self._since.get(queue.name)
        if complete and (since is None or now - since < self._patience):
            return ours
        theirs = status_charge(queue)
        return QueueCharge(
            _larger(ours.allocated, theirs.allocated),
            _larger(ours.allocated_non_preemptible, theirs.allocated_non_preemptible),
        )


def accounted_charge(totals: QueueTotals) -> QueueCharge:
    """Our own sums in the units of the resize check."""
    return QueueCharge(totals.allocated.cpu_memory(), totals.allocated_non_preemptible.cpu_memory())


def share_charge(share: QueueShare) -> QueueCharge:
    """A share of a snapshot in the units of the resize check."""

    def whole(amounts: ResourceQuantities) -> CPUMemory:
        return CPUMemory(ceil(amounts.cpu), ceil(amounts.memory))

    return QueueCharge(whole(share.allocated), whole(share.allocated_non_preemptible))


def _has_status(queue: Queue) -> bool:
    return bool(queue.status.allocated or queue.status.allocated_non_preemptible or queue.status.requested)


def _larger(a: CPUMemory, b: CPUMemory) -> CPUMemory:
    return CPUMemory(max(a.cpu_millis, b.cpu_millis), max(a.memory_bytes, b.memory_bytes))
