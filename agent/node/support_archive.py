"""A support archive: a gzipped tar of bounded size with a table of contents, made by `pinfold gather`, read by `replay`.

Layout 1: everything below `pinfold/`; contents.json first. Members that do not fit are left out and named there.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, cast

from agent.errors import AgentError, BadInputError

LAYOUT = 1
TOP = "pinfold"
CONTENTS = "contents.json"
DECISIONS = "decisions.jsonl"
MAX_DECISIONS_BYTES = 1 << 30  # more is no ring of decisions


class SupportArchiveError(BadInputError):
    """Not an archive of `pinfold gather`, or damaged."""

    hint = "give the .tar.gz that `pinfold gather` has written"


class ArchiveExistsError(AgentError):
    """There is a file already."""

    hint = "remove it, or name another one with --output"
    exit_status = 2


class SupportArchive:
    """Collects members in memory up to `max_bytes`, then `write`s them all."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._members: dict[str, bytes] = {}
        self.left_out: dict[str, str] = {}

    @property
    def room(self) -> int:
        """Bytes that still fit."""
        return self._left

    def add(self, name: str, content: bytes) -> None:
        """Take a member in, or note that it does not fit."""
        if len(content) > self._left:
            self.left_out[name] = f"{len(content)} bytes do not fit any more"
            return
        self._left -= len(content)
        self._members[name] = content

    def write(self, path: Path, about: Mapping[str, object], now_seconds: int) -> Mapping[str, object]:
        """Make the file, readable by its owner alone; what its table of contents says. Raises ArchiveExistsError, OSError."""
        files = {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in self._members.items()
        }
        contents = {"layout": LAYOUT, **about, "files": files, "leftOut": self.left_out}
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError as error:
            raise ArchiveExistsError(f"{path}: exists already") from error
        table = json.dumps(contents, indent=1).encode()
        with os.fdopen(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as tar:
            for name, content in ((CONTENTS, table), *self._members.items()):
                member = tarfile.TarInfo(f"{TOP}/{name}")
                member.size, member.mode, member.mtime = len(content), 0o644, now_seconds
                tar.addfile(member, io.BytesIO(content))
        return contents


def is_support_archive(path: Path) -> bool:
    """Whether the file is a gzipped tar that begins as ours do."""
    try:
        with gzip.open(path) as stream:
            return stream.read(len(TOP) + 1 + len(CONTENTS)) == f"{TOP}/{CONTENTS}".encode()
    except (OSError, EOFError):
        return False


def open_decisions(path: Path) -> IO[bytes]:
    """The recorded decisions in an archive. Raises SupportArchiveError."""
    wanted = f"{TOP}/{DECISIONS}"
    try:
        with tarfile.open(path, mode="r|gz") as tar:
            for member in tar:
                if member.name == wanted and member.isfile() and member.size <= MAX_DECISIONS_BYTES:
                    return io.BytesIO(cast(IO[bytes], tar.extractfile(member)).read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise SupportArchiveError(f"{path}: {error}") from error
    raise SupportArchiveError(f"{path}: holds no decisions", hint="the agent that it is from has recorded none")
