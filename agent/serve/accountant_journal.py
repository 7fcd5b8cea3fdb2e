"""Group commit for the reservation ledger: many admissions share one fsync, and none is told before it is on disk.

One thread writes. Whatever has been queued while it wrote is its next write, so a hundred racing resizes cost a handful of
fsyncs.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue

from agent.queues.ledger import Reservation
from agent.serve.accountant_store import AccountantStore, StoreError

Entries = Mapping[str, Reservation | None]  # by pod UID; None: it has ended


class LedgerJournal:
    """The only writer of a store's journal between `start` and `stop`."""

    def __init__(self, store: AccountantStore) -> None:
        self._store = store
        self._guard = threading.RLock()  # `write_ledger` writes
        self._queued: SimpleQueue[tuple[Entries, Future[None]] | None] = SimpleQueue()  # None: the end
        self._kept: dict[str, Reservation] = dict(
            store.reservations
        )  # what is on disk once all that is queued is written
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued and end."""
        with self._guard:
            self._stopping = True
            self._queued.put(None)
        self._thread.join()

    def write(self, entries: Entries) -> Future[None]:
        """Done once the entries are on disk; fails with StoreError where they are not. Later entries of a pod win."""
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()  # who waits may be gone before it is done, and cannot take the write back
        with self._guard:
            if self._stopping:
                done.set_exception(StoreError(self._store.directory, "the accountant is ending"))
                return done
            for uid, each in entries.items():
                if each is None:
                    self._kept.pop(uid, None)
                else:
                    self._kept[uid] = each
            self._queued.put((entries, done))
        return done

    def write_ledger(self, reservations: Mapping[str, Reservation]) -> Future[None] | None:
        """Whatever is different from this ledger; None where nothing is."""
        with self._guard:
            changed: dict[str, Reservation | None] = {
                uid: each for uid, each in reservations.items() if self._kept.get(uid) is not each
            }
            changed.update(dict.fromkeys(self._kept.keys() - reservations.keys()))
            return self.write(changed) if changed else None

    def _run(self) -> None:
        while batch := self._next():
            together = {uid: each for entries, _ in batch for uid, each in entries.items()}
            try:
                self._store.save(together)
            except Exception as error:  # noqa: BLE001 - whatever it was, somebody waits to be told
                with self._guard:
                    self._kept = dict(self._store.reservations)  # the next whole ledger brings what is missing
                for _, done in batch:
                    done.set_exception(error)
            else:
                for _, done in batch:
                    done.set_result(None)

    def _next(self) -> list[tuple[Entries, Future[None]]]:
        """Everything that is queued, at least one; empty at the end."""
        if (first := self._queued.get()) is None:
            return []
        batch = [first]
        with suppress(Empty):
            while (more := self._queued.get_nowait()) is not None:
                batch.append(more)
            self._queued.put(None)  # the end comes after this batch, and nothing after it
        return batch
