"""A captured machine as an archive: the files that matter are unpacked into a directory that lives as long as it is needed.

Nothing but regular files and directories is ever made, all of them below that directory: no link can lead out of it. Of links
only the names matter to the reader (`node0/cpu3`), so they become empty files.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from agent.errors import BadInputError
from agent.node.sysfs import MAX_FILE_BYTES

# The largest real tree seen (144 CPUs, all files kept) has 24,000 members in 30 MB of tar.
MAX_MEMBERS = 200_000
MAX_UNPACKED_BYTES = 512 << 20

# What the reader looks at, below at most one directory; captures and support archives hold much else.
WANTED = re.compile(
    r"(?P<top>(?:\./)?(?:[^/]+/)?)"
    r"(?P<name>sys/devices/system/(?:cpu|node)/[^/]+"
    r"|sys/devices/system/cpu/cpu\d+/(?:online|cpu_capacity|topology(?:/[^/]+)?)"
    r"|sys/devices/system/cpu/cpu\d+/cache/index\d+/(?:level|type|size|id|shared_cpu_\w+)"
    r"|sys/devices/system/node/node\d+/(?:cpu\w+|meminfo|distance|hugepages/.+|access\d+/initiators/.+)"
    r"|sys/devices/cpu_[^/]+/cpus"
    r"|sys/kernel/mm/hugepages/.+"
    r"|proc/meminfo)"
)


class ArchiveError(BadInputError):
    """A --sysroot that is no usable archive of a machine."""

    hint = "give a directory, or a .tar, .tar.gz, .tar.bz2 or .tar.xz whose members are sys/... and proc/..."


class _Bounded:
    """A stream that refuses to hand out more than MAX_UNPACKED_BYTES: a small file can hold endless zeros."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream = stream
        self._path = path
        self._left = MAX_UNPACKED_BYTES

    def read(self, size: int) -> bytes:
        data = self._stream.read(min(size, self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ArchiveError(f"{self._path}: unpacks to more than {MAX_UNPACKED_BYTES} bytes")
        return data


@contextmanager
def open_sysroot(path: Path) -> Iterator[Path]:
    """The root directory of a machine: `path` itself, or a directory with what the archive `path` holds of one.

    An unpacked tree is removed at the end. Raises ArchiveError where the archive is damaged, too large or holds several machines.
    """
    if path.is_dir():
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="pinfold-sysroot-") as directory:
        try:
            _unpack(path, Path(directory))
        except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError) as error:
            raise ArchiveError(f"{path}: cannot be unpacked: {error}") from error
        yield Path(directory)


def _unpack(path: Path, directory: Path) -> None:
    top: str | None = None
    with _decompressed(path) as stream, _open_tar(stream, path) as tar:
        for count, member in enumerate(tar):
            if count >= MAX_MEMBERS:
                raise ArchiveError(f"{path}: has more than {MAX_MEMBERS} members")
            match = WANTED.fullmatch(member.name)
            if match is None:
                continue
            if ".." in match["name"].split("/"):
                raise ArchiveError(f"{path}: member {member.name!r} leads out of the archive")
            if top is None:
                top = match["top"]
            if match["top"] != top:
                raise ArchiveError(f"{path}: holds several machines, below {top!r} and {match['top']!r}")
            _make(tar, member, directory / match["name"], path)


def _make(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, path: Path) -> None:
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    content = b""
    if member.isfile():
        if member.size > MAX_FILE_BYTES:
            raise ArchiveError(f"{path}: member {member.name!r} has {member.size} bytes, which no file of sysfs has")
        file = tar.extractfile(member)
        content = file.read() if file is not None else b""
    elif member.islnk():
        raise ArchiveError(f"{path}: member {member.name!r} is a hard link", hint="archive with tar --hard-dereference")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _open_tar(stream: IO[bytes], path: Path) -> tarfile.TarFile:
    return tarfile.open(fileobj=cast("IO[bytes]", _Bounded(stream, path)), mode="r|")


def _decompressed(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"\xfd7zXZ\0"):
        return lzma.open(path)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.open(path))
    if magic.startswith(b"BZh"):
        return bz2.open(path)
    return path.open("rb")
