"""The accountant that threads share: one lock, one clock, and what must be on disk before it is told.

The lock is held for what takes microseconds; decoding, comparing, writing, fair shares and pages are outside.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from agent.formats.queue_objects import QueueObjects
from agent.model.pod import Pod
from agent.model.queue import ResourceQuantities
from agent.queues.accountant import Accountant, AccountantOptions
from agent.queues.accountant_resize import Unready, decide
from agent.queues.accountant_view import AccountantView, capture, captured_jobs, jobs_of_capture, view_of
from agent.queues.accounting import Taken
from agent.queues.jobs import Job
from agent.queues.ledger import Reservation
from agent.queues.node_report import NodeReport
from agent.queues.object_changes import compare
from agent.queues.observed_pods import PodChanges, uid_of
from agent.queues.resize_admission import ResizeAnswer
from agent.serve.accountant_journal import LedgerJournal
from agent.serve.accountant_store import AccountantStore, Kept, StoreError

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
        self._taking = threading.Lock()  # objects are read one after another
        self._accountant = Accountant(options, clock())
        self._keeping = threading.Lock()
        self._changes = 0
        self._viewing = threading.Lock()
        self._view: tuple[int, AccountantView] | None = None
        self._journal: LedgerJournal | None = None
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
        return self._accountant.has_objects

    def close(self) -> None:
        """Write what is still to be written. Nothing is reserved any more after it."""
        if self._journal is not None:
            self._journal.stop()

    def _resume(self, store: AccountantStore) -> None:
        now = self._clock()
        if self.options.ledger is not None:
            self._accountant.ledger, kept = store.load_ledger()
            if kept is not Kept.WHOLE:
                self._accountant.rebuild_ledger(now)
            if kept is Kept.NONE:
                self._accountant.ledger_watch.begin_empty()
            self._journal = LedgerJournal(store)
            self._journal.start()
        for report in store.load_reports():  # which may end a reservation
            self._accountant.resume(report, now)

    def take_over(self) -> bool:
        """Another replica has answered until now, and this one does from here on: a Lease has come to it.

        Whatever the API server's pods ask for beyond what reports show is reserved anew. False: those pods are not known, and
        growth cannot be judged until they are or every reservation has ended.
        """
        with self._lock:
            done = self._accountant.rebuild_ledger(self._clock())
            self._changed()
        return done

    def take_objects(self, objects: QueueObjects, pods: PodChanges | None = None) -> None:
        """Queues, pod groups and the rest as they are now. pods: what is new of an API server's pods, besides theirs."""
        with self._taking:
            changes = compare(self._accountant.known, objects)  # which nobody else sets
            with self._lock:
                gone = self._accountant.take_objects(changes, self._clock(), pods)
                self._changed()
            for node in gone:
                self._keep_node(node)

    def take_report(self, report: NodeReport) -> Taken:
        """A node's report. What was taken is kept before it is told."""
        with self._lock:
            taken = self._accountant.take_report(report, self._clock())
            self._changed()
        if taken is Taken.APPLIED:
            self._keep_node(report.node)
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
        self._keep_node(node)
        return known

    def _keep_node(self, node: str) -> None:
        """Write what the node says by now, or that it is gone."""
        with self._keeping:  # one after another, or an older state could come to lie over a newer one
            with self._lock:
                whole = self._accountant.report_of(node)
            self._keep(lambda store: store.forget(node) if whole is None else store.save_report(whole))

    def tick(self) -> int:
        """To be called every few seconds; says how many pods are kept."""
        with self._lock:
            gone = self._accountant.tick(self._clock())
            self._changed()
            done = self._journal.write_ledger(self._accountant.ledger.reservations) if self._journal else None
            pods = len(self._accountant.groups)
        if done is not None:
            self._keep(lambda _: done.result())
        for node in gone:
            self._keep_node(node)
        return pods

    def begin_resize(self, old: Pod, new: Pod, *, reserve: bool = True) -> tuple[ResizeVerdict, Future[None] | None]:
        """May the pod be resized; and, with a ledger, what to wait for before it is told: the growth is reserved, not yet
        durably, and is written once `commit` is called. Where that fails, with StoreError, the reservation is taken back and the
        resize must be refused. Resizes that are written together share what they wait for.
        """
        with self._lock:
            accountant = self._accountant
            before = accountant.ledger
            answer, unready, ledger = decide(accountant, old, new, self._clock(), reserve=reserve)
            verdict = ResizeVerdict(answer, unready)
            if ledger is before:
                return verdict, None
            accountant.ledger = ledger
            self._changed()
            uid = uid_of(old)
            reservation = ledger.reservations.get(uid)
            if self._journal is None or reservation is None or reservation is before.reservations.get(uid):
                return verdict, None  # some that have ended, which `tick` writes
            done = self._journal.write({uid: reservation}, wake=False)
        kept, written = before.reservations.get(uid), reservation
        done.add_done_callback(lambda future: self._written(future, uid, written, kept))
        return verdict, done

    def commit(self) -> None:
        """Let what resizes have reserved so far be written."""
        if self._journal is not None:
            self._journal.wake()

    def _written(self, done: Future[None], uid: str, reservation: Reservation, before: Reservation | None) -> None:
        """Where it was not, the growth was not admitted after all. What was decided meanwhile counted it in: too careful only."""
        if done.exception() is None:
            return
        with self._lock:
            ledger = self._accountant.ledger
            if ledger.reservations.get(uid) is reservation:
                self._accountant.ledger = ledger.changed({uid: before})
                self._changed()

    def resize(self, old: Pod, new: Pod, *, reserve: bool = True) -> ResizeVerdict:
        """`begin_resize`, and wait until it may be told. Raises StoreError."""
        verdict, done = self.begin_resize(old, new, reserve=reserve)
        if done is not None:
            self.commit()
            done.result()
        return verdict

    def view(self) -> AccountantView:
        """Everything at this moment."""
        with self._viewing:  # one computes, the others wait and share
            with self._lock:
                if self._view is not None and self._view[0] == self._changes:
                    return self._view[1]
                number, taken = self._changes, capture(self._accountant, self._clock())
            view = view_of(taken, self._total, None if self._view is None else self._view[1])
            self._view = (number, view)
        return view

    def jobs(self) -> list[Job]:
        """The pod groups with what they hold and wait for."""
        with self._lock:
            taken = captured_jobs(self._accountant)
        return jobs_of_capture(taken)

    def pod(self, namespace: str, name: str) -> Pod | None:
        """A pod of the objects; None where reports alone tell of it."""
        with self._lock:
            return self._accountant.observed.named(namespace, name)

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
