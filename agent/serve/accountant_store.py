"""What an accountant keeps on disk: its reservations, durable before they are told, and the last report of every node.

`ledger.jsonl` is a journal, one reservation (or its end) a line with its checksum, each fsynced. `nodes/` has one file a node,
replaced whole and not fsynced: a lost one costs its node one full report. One process at a time has the directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.errors import AgentError
from agent.queues.ledger import Ledger, Reservation
from agent.queues.ledger_lines import encode_head, encode_line, read_journal
from agent.queues.node_report import NodeReport
from agent.queues.node_report_format import ReportError, decode_report, encode_report

log = logging.getLogger(__name__)

_MAX_JOURNAL = 64 * 1024 * 1024
_TOLD = 3  # damaged lines that are named
_MIN_LINES = 1000  # a journal shorter than this is never written anew


class StoreError(AgentError):
    """The accountant's directory cannot be used."""

    def __init__(self, path: Path, error: OSError | str, hint: str = "make the directory writable, with room") -> None:
        why = error if isinstance(error, str) else error.strerror
        super().__init__(f"{path}: {why}", hint=hint)


class Kept(StrEnum):
    """What was found of a journal. DAMAGED: other than by a last line that a crash has cut short."""

    WHOLE = "whole"
    DAMAGED = "damaged"
    NONE = "none"


class AccountantStore:
    """One directory. Use as a context manager; raises StoreError where another process has it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._journal = directory / "ledger.jsonl"
        self._nodes = directory / "nodes"
        self._lock = -1
        self._descriptor = -1
        self._lines = 0
        self._written: dict[str, Reservation] = {}

    def __enter__(self) -> Self:
        try:
            self._nodes.mkdir(mode=0o750, parents=True, exist_ok=True)
            self._lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = "with the reservation ledger one accountant answers; give each its own directory only without it"
            raise StoreError(self.directory, "another accountant has this directory", hint) from error
        except OSError as error:
            raise StoreError(self.directory, error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for descriptor in (self._descriptor, self._lock):
            if descriptor >= 0:
                os.close(descriptor)

    def load_ledger(self) -> tuple[Ledger, Kept]:
        """The reservations, and whether they are all. Raises StoreError where the journal cannot be read or written."""
        found, damage, new = dict[str, Reservation](), list[str](), True
        try:
            if self._journal.exists():
                new = False
                with self._journal.open("rb") as stream:
                    data = stream.read(_MAX_JOURNAL + 1)
                content = read_journal(data[:_MAX_JOURNAL])
                found, damage = dict(content.found), list(content.damage)
                if len(data) > _MAX_JOURNAL:
                    damage.append(f"there is more than {_MAX_JOURNAL} bytes")
                if content.torn and not damage:  # the write that a crash cut short was never told to anybody
                    log.warning("%s: the last line is cut short and passed over", self._journal)
            if damage:
                aside = self._journal.with_name("ledger.jsonl.damaged")
                self._journal.rename(aside)
                more = f", and {len(damage) - _TOLD} more" if len(damage) > _TOLD else ""
                log.error("%s: damaged: %s%s; kept as %s", self._journal, "; ".join(damage[:_TOLD]), more, aside)
            self._written = dict(found)
            self._rewrite()
        except OSError as error:
            raise StoreError(self._journal, error) from error
        return Ledger(found), Kept.NONE if new else Kept.DAMAGED if damage else Kept.WHOLE

    @property
    def reservations(self) -> Mapping[str, Reservation]:
        """What is on disk."""
        return self._written

    def save(self, changed: Mapping[str, Reservation | None]) -> None:
        """Make reservations, or the end of some, durable together. Raises StoreError; then none of them is on disk."""
        if not changed:
            return
        try:
            text = b"".join(encode_line(uid, each) for uid, each in changed.items())
            before = os.fstat(self._descriptor).st_size
            try:
                if os.write(self._descriptor, text) != len(text):
                    raise StoreError(self._journal, "cut short: the disk is full")
                os.fdatasync(self._descriptor)
            except (OSError, StoreError):
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, before)  # or the next line would be glued to half of this one
                raise
        except OSError as error:
            raise StoreError(self._journal, error) from error
        self._lines += len(changed)
        for uid, each in changed.items():
            if each is None:
                self._written.pop(uid, None)
            else:
                self._written[uid] = each
        if self._lines > _MIN_LINES + 4 * len(self._written):
            self._shorten()

    def _shorten(self) -> None:
        """Write the journal anew. It need not be shorter: where that fails it is tried again after some more lines."""
        try:
            self._rewrite()
        except OSError as error:
            log.warning("%s: not shortened: %s", self._journal, error.strerror)

    def _rewrite(self) -> None:
        new = self._journal.with_name("ledger.jsonl.new")
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)
        try:
            with open(descriptor, "wb", closefd=False) as stream:
                stream.write(encode_head(len(self._written)))
                stream.writelines(encode_line(uid, each) for uid, each in self._written.items())
            os.fsync(descriptor)
            new.rename(self._journal)
            _sync_directory(self.directory)
        except OSError:
            os.close(descriptor)
            raise
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor, self._lines = descriptor, len(self._written)

    def save_report(self, report: NodeReport) -> None:
        """Keep a node's full report. Raises StoreError."""
        path = self._path(report.node)
        try:
            new = path.with_suffix(".new")
            new.write_bytes(encode_report(report))
            new.rename(path)
        except OSError as error:
            raise StoreError(path, error) from error

    def forget(self, node: str) -> None:
        """The node is gone. Raises StoreError."""
        try:
            self._path(node).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(self._path(node), error) from error

    def load_reports(self) -> Iterator[NodeReport]:
        """Every node's report that can be read; the others are logged, their nodes will send full ones."""
        for path in sorted(self._nodes.glob("*.json")):
            try:
                yield decode_report(path.read_bytes())
            except (OSError, ReportError) as error:
                log.warning("%s: passed over: %s", path, error)

    def _path(self, node: str) -> Path:
        """Nothing that somebody else has named becomes a path."""
        return self._nodes / f"{hashlib.sha256(node.encode()).hexdigest()[:32]}.json"


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
