"""The accountant that threads share: one lock, one clock, and what must be on disk before it is told.

The lock is held for what takes microseconds; decoding, encoding, fair shares and pages are outside.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from agent.formats.queue_objects import QueueObjects
from agent.model.pod import Pod
from agent.model.queue import ResourceQuantities
from agent.queues.accountant import Accountant, AccountantOptions, Unready
from agent.queues.accountant_view import AccountantView, capture, captured_jobs, jobs_of_capture, view_of
from agent.queues.accounting import Taken
from agent.queues.jobs import Job
from agent.queues.node_report import NodeReport
from agent.queues.resize_admission import ResizeAnswer
from agent.serve.accountant_store import AccountantStore, StoreError

log = logging.getLogger(__name__)

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class ResizeVerdict:
    """unready: why the answer may be another one once more is known."""

    answer: ResizeAnswer
    unready: Unready | None


class AccountantService:
    """clock: Unix seconds, since reservations outlive a restart. store: None keeps nothing.

    total: what there is to divide, instead of what the nodes have.
    """

    def __init__(
        self,
        options: AccountantOptions,
        clock: Clock,
        store: AccountantStore | None = None,
        total: ResourceQuantities | None = None,
    ) -> None:
        self._clock = clock
        self._store = store
        self._total = total
        self._lock = threading.Lock()
        self._accountant = Accountant(options, clock())
        self._changes = 0
        self._viewing = threading.Lock()
        self._view: tuple[int, AccountantView] | None = None
        self.store_problem = ""
        if store is not None:
            self._resume(store)

    @property
    def options(self) -> AccountantOptions:
        """What it was started with."""
        return self._accountant.options

    @property
    def has_objects(self) -> bool:
        """Whether queues and pod groups were read ever."""
        return self._accountant.objects is not None

    def _resume(self, store: AccountantStore) -> None:
        now = self._clock()
        if self.options.ledger is not None:
            self._accountant.ledger, lost = store.load_ledger()
            if lost:
                self._accountant.ledger_lost_until = now + self.options.ledger.ttl_seconds
        for report in store.load_reports():  # which may end a reservation
            self._accountant.resume(report, now)

    def take_objects(self, objects: QueueObjects) -> None:
        """Queues, pod groups and the rest as they are now."""
        with self._lock:
            self._accountant.take_objects(objects, self._clock())
            self._changed()

    def take_report(self, report: NodeReport) -> Taken:
        """A node's report. What was taken is kept before it is told."""
        with self._lock:
            taken = self._accountant.take_report(report, self._clock())
            whole = self._accountant.report_of(report.node) if taken is Taken.APPLIED else None
            self._changed()
            if whole is not None:
                self._keep(lambda store: store.save_report(whole))
        return taken

    def hear(self, node: str) -> None:
        """The node lives, though it has nothing new to say."""
        with self._lock:
            self._accountant.hear(node, self._clock())

    def release(self, node: str) -> bool:
        """The node is gone for good. False where it is not known."""
        with self._lock:
            known = self._accountant.release(node, self._clock())
            self._changed()
            self._keep(lambda store: store.forget(node))
        return known

    def tick(self) -> int:
        """To be called every few seconds; says how many pods are kept."""
        with self._lock:
            self._accountant.tick(self._clock())
            self._changed()
            if self.options.ledger is not None:
                self._keep(lambda store: store.save_ledger(self._accountant.ledger))
            return len(self._accountant.groups)

    def resize(self, old: Pod, new: Pod, *, reserve: bool = True) -> ResizeVerdict:
        """May the pod be resized. With a ledger the growth is reserved, durably, before this returns. Raises StoreError."""
        with self._lock:
            answer, unready, ledger = self._accountant.decide(old, new, self._clock(), reserve=reserve)
            if ledger is not self._accountant.ledger:
                reservation = ledger.reservations.get(old.uid)
                if self._store is not None and reservation is not None:
                    self._store.save_reservation(old.uid, reservation)  # others that have ended are written by `tick`
                self._accountant.ledger = ledger
                self._changed()
        return ResizeVerdict(answer, unready)

    def view(self) -> AccountantView:
        """Everything at this moment."""
        with self._viewing:  # one computes, the others wait and share
            with self._lock:
                if self._view is not None and self._view[0] == self._changes:
                    return self._view[1]
                number, taken = self._changes, capture(self._accountant, self._clock())
            view = view_of(taken, self._total)
            self._view = (number, view)
        return view

    def jobs(self) -> list[Job]:
        """The pod groups with what they hold and wait for."""
        with self._lock:
            pods, min_members = captured_jobs(self._accountant)
        return jobs_of_capture(pods, min_members)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod of the objects; None where reports alone tell of it."""
        objects = self._accountant.objects
        wanted = (namespace, name)
        pods = () if objects is None else objects.pods
        return next((pod for pod in pods if (pod.namespace, pod.name) == wanted), None)

    def _changed(self) -> None:
        self._changes += 1

    def _keep(self, write: Callable[[AccountantStore], None]) -> None:
        """Write what a lost write of would only cost a full report."""
        if self._store is None:
            return
        try:
            write(self._store)
        except StoreError as error:
            if str(error) != self.store_problem:
                log.error("not kept: %s", error)
            self.store_problem = str(error)
        else:
            self.store_problem = ""
