"""The kubelet's state files beside ours (`state.kubeletFiles`), for exporters that watch them: never read, never the truth."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from agent.node.file_ops import FileOps, write_all


class KubeletFiles:
    """Files in one directory, each replaced whole by a rename and only where its content differs.

    They are not flushed to the disk: after a power cut the next decision or start writes them again.
    """

    def __init__(self, directory: Path, files: FileOps | None = None) -> None:
        self._directory = directory
        self._files = files or FileOps()
        self._written: dict[str, bytes] = {}

    def write(self, contents: Mapping[str, bytes]) -> str:
        """Bring them up to date; why one could not be written, "" where all were. The next call tries again."""
        for name, data in contents.items():
            if self._written.get(name) == data:
                continue
            try:
                self._replace(self._directory / name, data)
            except OSError as error:
                self._written.pop(name, None)
                return f"{self._directory / name}: {error.strerror}"
            self._written[name] = data
        return ""

    def _replace(self, path: Path, data: bytes) -> None:
        new = path.with_name(f".{path.name}.pinfold")
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(new)
        fd = self._files.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
        try:
            write_all(self._files, fd, data)
        finally:
            self._files.close(fd)
        self._files.rename(new, path)
