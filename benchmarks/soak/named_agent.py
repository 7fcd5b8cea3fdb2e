"""The agent with its threads named in the kernel, which Python does itself only from 3.14 on: `python -m ... ARGUMENTS`."""

from __future__ import annotations

import contextlib
import sys
import threading
from pathlib import Path
from typing import Any

from agent.cli import main

_COMM_LENGTH = 15  # TASK_COMM_LEN, less its zero


def name_threads() -> None:
    """Every thread that begins from now on has its name in /proc."""
    bootstrap: Any = vars(threading.Thread)["_set_native_id"]

    def named(thread: threading.Thread) -> None:
        bootstrap(thread)
        with contextlib.suppress(OSError):
            Path(f"/proc/self/task/{thread.native_id}/comm").write_text(thread.name[-_COMM_LENGTH:])

    vars(threading)["Thread"]._set_native_id = named


if __name__ == "__main__":
    name_threads()
    main(sys.argv[1:])
