"""Whether the agent gives anything exclusive: what an operator said with `pinfold pause` and `release` holds over restarts."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from agent.errors import AgentError
from agent.node.file_ops import FileOps, read_up_to, sync_directory, write_durably


class Mode(StrEnum):
    """How far the agent acts."""

    RUNNING = "running"
    PAUSED = "paused"  # nothing exclusive is given; what is held is held to
    RELEASED = "released"  # paused, and every cgroup is as wide as without the agent


class ModeFileError(AgentError):
    """The mode cannot be kept."""

    hint = "see the state directory's permissions and free space; nothing has changed"


class ModeFile:
    """A file of one word beside the state; absent while the agent runs as usual."""

    def __init__(self, path: Path, files: FileOps | None = None) -> None:
        self._path = path
        self._files = files or FileOps()
        self.mode = self._read()

    def set(self, mode: Mode) -> None:
        """Durable when it returns. Raises ModeFileError; then the mode is the old one."""
        try:
            if mode is Mode.RUNNING:
                self._path.unlink(missing_ok=True)
            else:
                self._write(mode)
            sync_directory(self._files, self._path.parent)
        except OSError as error:
            raise ModeFileError(f"{self._path}: {error.strerror}") from error
        self.mode = mode

    def _read(self) -> Mode:
        """Anything but a word that is known means paused: somebody wanted less than usual."""
        try:
            text = read_up_to(self._files, self._path, 64).decode("ascii", "replace").strip()
        except FileNotFoundError:
            return Mode.RUNNING
        except OSError:
            return Mode.PAUSED
        return Mode(text) if text in list(Mode) else Mode.PAUSED

    def _write(self, mode: Mode) -> None:
        new = self._path.with_name(f".{self._path.name}.new")
        write_durably(self._files, new, f"{mode}\n".encode())
        self._files.rename(new, self._path)
