"""Group commit for the reservation ledger: many admissions share one fsync, and none is told before it is on disk.

One thread writes. Whatever is entered while it writes, or before it is woken, is its next write, so a hundred racing resizes
cost a handful of fsyncs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

from agent.queues.ledger import Reservation
from agent.serve.accountant_store import AccountantStore, StoreError

Entries = Mapping[str, Reservation | None]  # by pod UID; None: it has ended


@dataclass(frozen=True, slots=True)
class _Batch:
    """What goes to the disk together, and whom that is told."""

    entries: dict[str, Reservation | None] = field(default_factory=dict)
    done: Future[None] = field(default_factory=Future)


class LedgerJournal:
    """The only writer of a store's journal between `start` and `stop`."""

    def __init__(self, store: AccountantStore) -> None:
        self._store = store
        self._guard = threading.RLock()  # `write_ledger` writes
        self._batch: _Batch | None = None  # the next one
        self._wanted = threading.Event()
        # what is on disk once all that is entered is written
        self._kept: dict[str, Reservation] = dict(store.reservations)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is entered and end."""
        with self._guard:
            self._stopping = True
        self._wanted.set()
        self._thread.join()

    def write(self, entries: Entries, *, wake: bool = True) -> Future[None]:
        """Done once the entries are on disk; fails with StoreError where they are not. Later entries of a pod win.

        Those of one write share one future. wake: False leaves the writer asleep until `wake`, as more may come.
        """
        with self._guard:
            if self._stopping:
                refused: Future[None] = Future()
                refused.set_exception(StoreError(self._store.directory, "the accountant is ending"))
                return refused
            for uid, each in entries.items():
                if each is None:
                    self._kept.pop(uid, None)
                else:
                    self._kept[uid] = each
            if (batch := self._batch) is None:
                batch = self._batch = _Batch()
                batch.done.set_running_or_notify_cancel()  # who waits may be gone, and cannot take the write back
            batch.entries.update(entries)
        if wake:
            self.wake()
        return batch.done

    def wake(self) -> None:
        """Let everything be written that was entered so far."""
        self._wanted.set()

    def write_ledger(self, reservations: Mapping[str, Reservation]) -> Future[None] | None:
        """Whatever is different from this ledger; None where nothing is."""
        with self._guard:
            changed: dict[str, Reservation | None] = {
                uid: each for uid, each in reservations.items() if self._kept.get(uid) is not each
            }
            changed.update(dict.fromkeys(self._kept.keys() - reservations.keys()))
            return self.write(changed) if changed else None

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            try:
                self._store.save(batch.entries)
            except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits to be told
                with self._guard:
                    self._kept = dict(self._store.reservations)  # the next whole ledger brings what is missing
                batch.done.set_exception(error)
            else:
                batch.done.set_result(None)

    def _next(self) -> _Batch | None:
        """Everything that is entered, once it is wanted; None at the end."""
        while True:
            self._wanted.wait()
            with self._guard:
                if not self._stopping:
                    self._wanted.clear()
                if (batch := self._batch) is not None or self._stopping:
                    self._batch = None
                    return batch
