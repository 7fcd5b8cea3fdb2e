"""Places to write to: memory and a disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_TMPFS = Path("/dev/shm")


@contextmanager
def disks() -> Iterator[Mapping[str, Path]]:
    """A directory on tmpfs and one where temporary files go (a disk, unless /tmp is a tmpfs too), removed at the end."""
    with (
        tempfile.TemporaryDirectory(dir=_TMPFS if _TMPFS.is_dir() else None) as memory,
        tempfile.TemporaryDirectory() as disk,
    ):
        yield {"tmpfs": Path(memory), "disk": Path(disk)}
