"""The agent under observation: `python -m ... ARGUMENTS`. Its threads are named in the kernel, which Python does itself only from
3.14 on, and it says how many blocks of memory Python holds when it is asked by a signal.

Resident memory moves by what the C library happens to keep; blocks are exact, and show a leak of a few hundred bytes per pod.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from agent.cli import main

BLOCKS_FILE = "PINFOLD_SOAK_BLOCKS_FILE"  # in the environment: the file that the number is written into
_COMM_LENGTH = 15  # TASK_COMM_LEN, less its zero
_WIDTH = 20  # of the number, so that each overwrites the one before


def name_threads() -> None:
    """Every thread that begins from now on has its name in /proc."""
    bootstrap: Any = vars(threading.Thread)["_set_native_id"]

    def named(thread: threading.Thread) -> None:
        bootstrap(thread)
        with contextlib.suppress(OSError):
            Path(f"/proc/self/task/{thread.native_id}/comm").write_text(thread.name[-_COMM_LENGTH:])

    vars(threading)["Thread"]._set_native_id = named


def answer_blocks(path: Path) -> None:
    """From now on SIGUSR2 has the number written there."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)

    def answer(number: int, frame: object) -> None:
        os.pwrite(file, str(sys.getallocatedblocks()).rjust(_WIDTH).encode(), 0)

    signal.signal(signal.SIGUSR2, answer)


def asked_blocks(pid: int, path: Path) -> int | None:
    """Ask a process for its number; the one that it said when it was asked before, None where it has not said any yet.

    Raises OSError where there is no such process.
    """
    text = path.read_text()
    os.kill(pid, signal.SIGUSR2)
    return int(text) if text else None


if __name__ == "__main__":
    name_threads()
    answer_blocks(Path(os.environ[BLOCKS_FILE]))
    main(sys.argv[1:])
