"""A cgroup's own note of whose it is: an extended attribute, which lives exactly as long as the cgroup does.

With it a pod is known again by its name after the state was lost. Kernels without user attributes on cgroups (before 5.7) go
without.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

_POD = "user.pinfold.pod"


def write_label(directories: Iterable[Path], text: str) -> None:
    """Note `text` on a group, which has one directory on cgroup v2 and one per controller on v1."""
    for directory in directories:
        with contextlib.suppress(OSError):  # a kernel or file system without them: a log line then names the group only
            os.setxattr(directory, _POD, text.encode())


def read_label(directories: Iterable[Path]) -> str:
    """What was noted on a group; "" where nothing was."""
    for directory in directories:
        with contextlib.suppress(OSError, UnicodeDecodeError):  # none there, or not ours
            return os.getxattr(directory, _POD).decode()
    return ""
