"""File operations that keep their promise over a power cut, and the system calls that they are made of: one method each, so that
a test can fail or kill at any of them.
"""

from __future__ import annotations

import os
from pathlib import Path


class FileOps:
    """The real operations. Every method raises OSError as the system call does."""

    def open(self, path: Path, flags: int, mode: int = 0o600) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def read(self, fd: int, size: int) -> bytes:
        return os.read(fd, size)

    def write(self, fd: int, data: memoryview) -> int:
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)  # noqa: PTH104 - the system call, which replaces the target

    def unlink(self, path: Path) -> None:
        os.unlink(path)  # noqa: PTH108 - the system call

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)


def write_all(files: FileOps, fd: int, data: bytes) -> None:
    """Write everything: write(2) may take only a part, on a disk that is nearly full for one."""
    rest = memoryview(data)
    while rest:
        rest = rest[files.write(fd, rest) :]


def write_durably(files: FileOps, path: Path, data: bytes, mode: int = 0o600) -> None:
    """Make a file with this content, which is on the disk on return; its name is after `sync_directory` only. Raises OSError,
    ELOOP for a symbolic link.
    """
    fd = files.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
    try:
        write_all(files, fd, data)
        files.fsync(fd)
    finally:
        files.close(fd)


def sync_directory(files: FileOps, directory: Path) -> None:
    """Put the names in a directory on the disk: what was made, renamed or removed in it. Raises OSError."""
    fd = files.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


def read_up_to(files: FileOps, path: Path, limit: int) -> bytes:
    """The first `limit` bytes of a file. Raises OSError, ELOOP for a symbolic link."""
    fd = files.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        parts: list[bytes] = []
        while limit > 0 and (part := files.read(fd, min(limit, 1 << 20))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        files.close(fd)
