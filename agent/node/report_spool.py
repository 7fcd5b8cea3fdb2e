"""Reports as files in a directory: whoever takes one acknowledges it by removing it.

Every file is a whole report under a name that sorts as the states of the node do, written in one step and fsynced. A reader that
missed some goes on from the newest. The number of files is bounded: where nobody takes them the oldest go first, because a
later report says all that an earlier one said.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from agent.errors import AgentError
from agent.node.file_ops import FileOps, sync_directory, write_durably

_SUFFIX = ".json"
_PARTIAL = ".partial"


class ReportSpoolError(AgentError):
    """A report cannot be put into the spool. The next one is tried all the same."""

    hint = "see that reports.spool.directory exists, can be written and has room"


class ReportSpool:
    """directory: made where it is missing. keep: how many files may wait. dropped: told how many went unread."""

    def __init__(
        self,
        directory: Path,
        keep: int,
        files: FileOps | None = None,
        dropped: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.directory = directory
        self._keep = keep
        self._files = files or FileOps()
        self._dropped = dropped

    def put(self, name: str, report: bytes) -> Path:
        """Add a report; one of this name that is there already is the same one. name: sorts like the node's states.

        Durable on return. Raises ReportSpoolError; then nothing of it is there.
        """
        path = self.directory / f"{name}{_SUFFIX}"
        try:
            self.directory.mkdir(mode=0o750, parents=True, exist_ok=True)
            if not self._files.exists(path):
                self._write(path, report)
            self._bound()
        except OSError as error:
            raise ReportSpoolError(f"{self.directory}: {error.strerror or error}") from error
        return path

    def waiting(self) -> list[Path]:
        """The reports that nobody has taken yet, oldest first."""
        try:
            return sorted(self.directory.glob(f"*{_SUFFIX}"))
        except OSError:
            return []

    def _write(self, path: Path, report: bytes) -> None:
        partial = path.with_suffix(_PARTIAL)
        try:
            write_durably(self._files, partial, report, 0o640)
            self._files.rename(partial, path)
        except OSError:
            with contextlib.suppress(OSError):  # half a report only takes room: no reader looks at it
                self._files.unlink(partial)
            raise
        sync_directory(self._files, self.directory)

    def _bound(self) -> None:
        waiting = self.waiting()
        unread = waiting[: max(len(waiting) - self._keep, 0)]
        for path in unread:
            with contextlib.suppress(FileNotFoundError):  # taken just now
                self._files.unlink(path)
        if unread:
            self._dropped(len(unread))
