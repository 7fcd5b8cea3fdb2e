"""File operations that fail or kill at a chosen place, and children in which to be killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.node.file_ops import FileOps

Strike = Callable[[str, int], None]  # the operation's name and its number, from 0; raises, kills, or returns


class StruckOps(FileOps):
    """The real operations; `strike` is called before each that can change something, and may write half of a write."""

    def __init__(self, strike: Strike) -> None:
        self.count = 0
        self._strike = strike

    def _next(self, name: str) -> None:
        number, self.count = self.count, self.count + 1
        self._strike(name, number)

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        self._next("open")
        return super().open(path, flags, mode)

    def write(self, fd: int, data: memoryview) -> int:
        self._next("write")
        half = super().write(fd, data[: len(data) // 2 + 1])  # so that a file can be found cut off in the middle
        self._next("write-rest")
        return half

    def fsync(self, fd: int) -> None:
        self._next("fsync")
        super().fsync(fd)

    def close(self, fd: int) -> None:
        try:
            self._next("close")
        finally:
            super().close(fd)

    def link(self, source: Path, target: Path) -> None:
        self._next("link")
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._next("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._next("unlink")
        super().unlink(path)


def kill_at(place: int) -> Strike:
    """SIGKILL to this process before the operation numbered `place`."""

    def strike(name: str, number: int) -> None:
        if number == place:
            os.kill(os.getpid(), signal.SIGKILL)

    return strike


def fail_at(place: int, error: int) -> Strike:
    """This one operation fails."""

    def strike(name: str, number: int) -> None:
        if number == place:
            raise OSError(error, os.strerror(error))

    return strike


def nothing(name: str, number: int) -> None:
    """No fault."""


@contextmanager
def in_child() -> Iterator[bool]:
    """Runs the body in a forked child (gives True) and, in the parent, waits for it to be killed or to end."""
    pid = os.fork()
    if pid == 0:
        try:
            yield True
        finally:
            os._exit(0)
    yield False
    os.waitpid(pid, 0)
