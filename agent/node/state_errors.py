"""What can be wrong with the state directory, and what to do about it."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

from agent.errors import AgentError
from agent.formats.state import NewerStateError

_ADVICE = {
    errno.ENOSPC: "free some space on this file system; the agent tries again by itself",
    errno.EDQUOT: "raise the disk quota; the agent tries again by itself",
    errno.EROFS: "the file system is mounted read-only: see dmesg for the reason, then mount it read-write again",
    errno.EIO: "the disk reports errors: see dmesg; the agent tries again by itself",
    errno.EACCES: "give the agent's user write permission on the state directory",
    errno.EPERM: "give the agent's user write permission on the state directory",
    errno.ENOENT: "create the state directory again; the agent then writes its state into it by itself",
    errno.ENOTDIR: "state.directory must name a directory",
}


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, "mend what the system reports; the agent tries again by itself")


class StateWriteError(AgentError):
    """The state could not be made durable: what was to be saved has not happened.

    path, errno: where and how it failed. undone: False only where the disk failed the way back too, so that the next start may
    find the refused state in place.
    """

    def __init__(self, path: Path, doing: str, error: OSError) -> None:
        name = errno.errorcode.get(error.errno or 0, "unknown error")
        super().__init__(f"{path}: cannot {doing}: {error.strerror} ({name})", hint=_advice(error))
        self.path = path
        self.errno = error.errno
        self.undone = True


class StateReadError(AgentError):
    """The state file is there, but the system does not let us read it."""

    def __init__(self, path: Path, error: OSError) -> None:
        super().__init__(f"{path}: cannot read: {error.strerror}", hint=_advice(error))
        self.path = path
        self.errno = error.errno


class StateLockedError(AgentError):
    """Another agent holds the state directory."""

    def __init__(self, directory: Path, pid: int | None) -> None:
        super().__init__(f"{directory}: held by another pinfold{f', pid {pid}' if pid else ''}")
        self.pid = pid
        self.hint = "stop the other agent, or give this one its own state.directory"


class NewerStateFileError(AgentError):
    """A newer pinfold wrote the state file; it stays untouched. `state`: what can be read of it, or None."""

    def __init__(self, path: Path, newer: NewerStateError) -> None:
        super().__init__(f"{path}: {newer}", hint=newer.hint)
        self.path = path
        self.schema = newer.schema
        self.state = newer.state


@contextlib.contextmanager
def step(path: Path, doing: str) -> Iterator[None]:
    """One step of making a state durable, in words: an OSError becomes a StateWriteError that names it."""
    try:
        yield
    except OSError as error:
        raise StateWriteError(path, doing, error) from error
