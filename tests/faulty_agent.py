"""The agent with a disk that does as a file says: `python -m tests.faulty_agent FAULTS run ...`.

FAULTS holds nothing, "OPERATION ERRNO" (this operation fails, every time) or "kill N" (SIGKILL before the N-th operation from
when the file says so). Everything else is the real command.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from functools import partial
from pathlib import Path

from agent import assembly
from agent.cli import main
from agent.node.state_store import StateStore
from tests.faults import Strike, StruckOps


def as_told(path: Path) -> Strike:
    counted = 0

    def strike(name: str, number: int) -> None:
        nonlocal counted
        what, _, value = (path.read_text() if path.exists() else "").partition(" ")
        if what == "kill":
            if counted == int(value):
                os.kill(os.getpid(), signal.SIGKILL)
            counted += 1
        elif what == name:
            number = getattr(errno, value)
            raise OSError(number, os.strerror(number))

    return strike


if __name__ == "__main__":
    told = Path(sys.argv[1])
    vars(assembly)["StateStore"] = partial(StateStore, files=StruckOps(as_told(told)))
    main(sys.argv[2:])
