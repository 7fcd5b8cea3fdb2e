"""The few system calls that a cgroup hierarchy is made of, so that a test can answer them as a scripted kernel would.

Plain os calls on text paths: a look at a hundred containers is a thousand of them, and pathlib would cost more than the kernel.
"""

from __future__ import annotations

import os
from typing import Protocol

MAX_FILE_BYTES = 1 << 20  # cgroup.procs of a cgroup with 100,000 tasks

_HALF_A_PAGE = 2048


class CgroupFiles(Protocol):
    """Every method raises OSError with the kernel's errno."""

    def read(self, path: str) -> str:
        """The whole text without the newline at its end."""

    def write(self, path: str, text: str) -> None:
        """One write(2): the kernel takes a setting in one piece or not at all."""

    def mkdir(self, path: str) -> None: ...

    def rmdir(self, path: str) -> None: ...

    def children(self, path: str) -> list[str]:
        """The names of the cgroups directly below, sorted."""


class KernelFiles:
    """The real system calls."""

    def read(self, path: str) -> str:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            parts: list[bytes] = []
            size = 0
            while size < MAX_FILE_BYTES and (part := os.read(fd, 1 << 16)):
                parts.append(part)
                size += len(part)
                if len(part) < _HALF_A_PAGE:  # the kernel fills a page before it stops short: that was the end
                    break
        finally:
            os.close(fd)
        return b"".join(parts).decode("ascii", "replace").strip()

    def write(self, path: str, text: str) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(fd, text.encode("ascii"))
        finally:
            os.close(fd)

    def mkdir(self, path: str) -> None:
        os.mkdir(path, 0o755)  # noqa: PTH102 - one system call

    def rmdir(self, path: str) -> None:
        os.rmdir(path)  # noqa: PTH106 - one system call

    def children(self, path: str) -> list[str]:
        with os.scandir(path) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
