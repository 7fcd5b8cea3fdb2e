"""This machine as a captured tree: the files that `pinfold topology --sysroot` reads, and no others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from agent.node.archive import WANTED
from agent.node.sysfs import MAX_FILE_BYTES

_BELOW = ("sys/devices/system/cpu", "sys/devices/system/node", "sys/kernel/mm/hugepages", "sys/devices")
# directories that can lead to a wanted file; the rest of sysfs is large
_ENTERED = re.compile(
    r"cpu\d+|cpu_\w+|topology|cache|index\d+|node\d+|hugepages(?:-\w+)?|access\d+|initiators", re.ASCII
)


def capture(root: Path) -> Iterator[tuple[str, bytes]]:
    """Name relative to the root, and content, of every wanted file below `root`; of a link that matters its name alone.

    What cannot be read is left out, as a reader without permission would not see it either.
    """
    seen: set[str] = set()
    for top in _BELOW:
        for directory, names, files in os.walk(root / top):
            names[:] = sorted(name for name in names if _ENTERED.fullmatch(name))
            links = [name for name in names if Path(directory, name).is_symlink()]
            for name in sorted((*files, *links)):
                path = Path(directory, name)
                relative = path.relative_to(root).as_posix()
                if relative not in seen and WANTED.fullmatch(relative):
                    seen.add(relative)
                    content = b"" if path.is_symlink() else _read(path)
                    if content is not None:
                        yield relative, content
    content = _read(root / "proc/meminfo")
    if content is not None:
        yield "proc/meminfo", content


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(MAX_FILE_BYTES)
    except OSError:
        return None
