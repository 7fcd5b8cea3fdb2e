"""What the kernel says of a thread of this process."""

from __future__ import annotations

import threading
import time
from pathlib import Path

_SETTLED_SECONDS = 0.2  # what a thread still had to do before it sleeps


def woken(name: str, seconds: float) -> int:
    """How often the one thread of this name, left alone, was woken in so many seconds."""
    (thread,) = (each for each in threading.enumerate() if each.name == name)
    time.sleep(_SETTLED_SECONDS)
    before = _voluntary_switches(thread)
    time.sleep(seconds)
    return _voluntary_switches(thread) - before


def _voluntary_switches(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
    return int(line.split()[1])
