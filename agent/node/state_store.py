"""Where `pinfold_state` lives: locked, loaded with a fallback, saved in one transaction. What the bytes say: agent.formats.state.

Files in the state directory:
    pinfold_state                         the truth
    pinfold_state.previous                the generation before, a hard link to the old file
    pinfold_state.damaged-<time>[-<n>]    files that could not be trusted, for people; never deleted
    pinfold_state.pid                     who holds the directory
    .pinfold_state.new                    a save under way, or the rest of one that was cut off

Saving: write the new file beside, fsync it, make the old one `previous`, rename, fsync the directory. Until the rename the
old state is in place, from then on the new one; a kill between any two calls leaves one of the two.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.formats.state import (
    MAX_BYTES,
    DamagedStateError,
    NewerStateError,
    StateEncoder,
    UnreadableStateError,
    decode,
)
from agent.model.state import State
from agent.node.file_ops import FileOps, read_up_to, write_all
from agent.node.state_errors import NewerStateFileError, StateLockedError, StateReadError, StateWriteError, step

NAME = "pinfold_state"

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


class Origin(StrEnum):
    """Which file a loaded state came from."""

    CURRENT = "current"
    PREVIOUS = "previous"  # a fallback: begin a new epoch
    LOST = "lost"  # files were there, none could be trusted: begin a new epoch, ask the cgroups
    FRESH = "fresh"  # no file: the first start in this directory


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that could not be trusted. kept_as: where it is now; its own path where it could not be moved yet."""

    path: Path
    kept_as: Path
    why: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer of `StateStore.load`. state: None for LOST and FRESH."""

    state: State | None
    origin: Origin
    set_aside: tuple[SetAside, ...] = ()


def check_directory(directory: Path) -> None:
    """Whether the directory is there or can be made, as far as that shows without making it. Raises StateWriteError."""
    there = next(each for each in (directory, *directory.parents) if os.path.lexists(each))
    if not there.is_dir():
        raise StateWriteError(
            directory, "open the state directory", NotADirectoryError(errno.ENOTDIR, f"{there} is not a directory")
        )


class StateStore:
    """The state directory, held by this process for as long as the store is open.

    One thread at a time. Files are reached through `files`; everything else is the real thing.
    """

    def __init__(self, directory: Path, files: FileOps | None = None) -> None:
        """Take hold of the directory, which is made (0700) where it is absent.

        Raises StateLockedError where another process has it and StateWriteError where it cannot be had.
        """
        self._directory = directory
        self._files = files or FileOps()
        self._encoder = StateEncoder()
        self._newer: NewerStateFileError | None = None
        self._loaded = False
        self._damaged: dict[Path, datetime] = {}  # still in place, since moving them failed: file -> when it was found
        self._lock: int | None = None
        check_directory(directory)
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = self._hold()
        except OSError as error:
            raise StateWriteError(directory, "open the state directory", error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the directory."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def path(self) -> Path:
        """The state file."""
        return self._directory / NAME

    @property
    def previous_path(self) -> Path:
        """The generation before."""
        return self._directory / f"{NAME}.previous"

    def load(self, now: datetime) -> Loaded:
        """The newest state that can be trusted. Files that cannot are moved aside under the time `now`.

        Raises NewerStateFileError, after which `save` refuses too, and StateReadError where permission is lacking.
        """
        aside: list[SetAside] = []
        for path, origin in ((self.path, Origin.CURRENT), (self.previous_path, Origin.PREVIOUS)):
            try:
                state = decode(read_up_to(self._files, path, MAX_BYTES + 1))
            except FileNotFoundError:
                continue
            except NewerStateError as newer:
                self._newer = NewerStateFileError(path, newer)
                raise self._newer from newer
            except (DamagedStateError, UnreadableStateError) as error:
                aside.append(self._set_aside(path, str(error), now))
            except OSError as error:
                if error.errno not in (errno.EIO, errno.ELOOP, errno.EISDIR):
                    raise StateReadError(path, error) from error
                aside.append(self._set_aside(path, error.strerror or "cannot be read", now))
            else:
                self._loaded = True
                return Loaded(state, origin, tuple(aside))
        self._loaded = True
        return Loaded(None, Origin.LOST if aside else Origin.FRESH, tuple(aside))

    def save(self, state: State) -> None:
        """Make this state the truth, durably, or raise and leave the one before in place.

        Raises StateWriteError (the caller rolls back; the next save is a new try) and what `load` raised for a newer file.
        """
        if self._newer is not None:
            raise self._newer
        if not self._loaded:
            raise RuntimeError("save before load could overwrite a state that nobody has looked at")
        data = self._encoder.encode(state)
        with step(self._directory, "open the state directory"):
            directory = self._files.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            self._hold_again(directory)
            self._write_new(data)
            self._replace(directory)
        except StateWriteError:
            with contextlib.suppress(OSError):
                self._files.unlink(self._new_path)  # half a file takes room on a disk that may be full
            raise
        finally:
            with contextlib.suppress(OSError):  # nothing was written through this one
                self._files.close(directory)

    @property
    def _new_path(self) -> Path:
        return self._directory / f".{NAME}.new"

    def _hold(self) -> int:
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        pid_file = self._directory / f"{NAME}.pid"
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(fd)
            raise StateLockedError(self._directory, _read_pid(pid_file)) from error
        with contextlib.suppress(OSError):  # the lock is what counts; a read-only directory can be held too
            pid_file.write_text(f"{os.getpid()}\n", encoding="ascii")
        return fd

    def _hold_again(self, directory: int) -> None:
        """Where the directory was deleted and made again, hold the new one."""
        if self._lock is not None and os.path.samestat(os.fstat(self._lock), os.fstat(directory)):
            return
        self.close()
        with step(self._directory, "lock the state directory"):
            self._lock = self._hold()

    def _set_aside(self, path: Path, why: str, now: datetime) -> SetAside:
        try:
            return SetAside(path, self._move_aside(path, now), why)
        except OSError:
            self._damaged[path] = now  # a read-only disk: `save` moves it before it would become `previous`
            return SetAside(path, path, why)

    def _move_aside(self, path: Path, now: datetime) -> Path:
        stem = f"{NAME}.damaged-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        target = self._directory / stem
        number = 1
        while self._files.exists(target):
            number += 1
            target = self._directory / f"{stem}-{number}"
        self._files.rename(path, target)
        return target

    def _write_new(self, data: bytes) -> None:
        new = self._new_path
        with step(new, "write the new state"):
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(new)  # what a save that was cut off has left; it may be anything
            fd = self._files.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            try:
                write_all(self._files, fd, data)
                self._files.fsync(fd)
            finally:
                self._files.close(fd)

    def _replace(self, directory: int) -> None:
        for path, time in list(self._damaged.items()):
            with step(path, "move the damaged state aside"), contextlib.suppress(FileNotFoundError):
                self._move_aside(path, time)
            del self._damaged[path]
        with step(self.previous_path, "keep the previous state"):
            had_current = self._keep_previous()
        try:
            with step(self.path, "put the new state in place"):
                self._files.rename(self._new_path, self.path)
            with step(self._directory, "flush the state directory"):
                self._files.fsync(directory)
        except StateWriteError as error:
            error.undone = self._undo(had_current)
            raise

    def _keep_previous(self) -> bool:
        """Give the current file its second name; False where there is no current file.

        The current file stays in place at every moment, except on file systems without hard links, where `previous` is
        valid meanwhile. If a save failed after this step, both names are one file already: rename(2) then does nothing.
        """
        link = self._directory / f".{NAME}.previous"
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(link)
        try:
            self._files.link(self.path, link)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            link = self.path
        self._files.rename(link, self.previous_path)
        return True

    def _undo(self, had_current: bool) -> bool:
        """After a failed rename or flush: the old state in its place again, as the caller's memory has it."""
        try:
            if had_current:
                self._files.rename(self.previous_path, self.path)
            elif self._files.exists(self.path):
                self._files.unlink(self.path)
        except OSError:
            return False
        return True


def _read_pid(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
