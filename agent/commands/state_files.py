"""State files as commands read them: bounded, and what is wrong with one as bad input."""

from __future__ import annotations

from pathlib import Path

from agent.errors import BadInputError
from agent.formats.state import MAX_BYTES, DamagedStateError, NewerStateError, UnreadableStateError, decode
from agent.model.state import State
from agent.node.file_ops import FileOps, read_up_to
from agent.node.state_store import NAME


def read_file(path: Path) -> bytes:
    """A file of at most the size of the largest state; what is longer is read one byte longer. Raises BadInputError."""
    try:
        return read_up_to(FileOps(), path, MAX_BYTES + 1)
    except OSError as error:
        raise BadInputError(f"{path}: {error.strerror}", hint="state files are readable by root only") from error


def read_state(path: Path) -> State:
    """Our state in this file, or in the one of this directory. Raises BadInputError, also for one that is damaged or newer."""
    file = path / NAME if path.is_dir() else path
    try:
        return decode(read_file(file))
    except (DamagedStateError, UnreadableStateError, NewerStateError) as error:
        raise BadInputError(f"{file}: {error}", hint=error.hint) from error
