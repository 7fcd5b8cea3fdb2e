"""systemd drop-ins as files: what is there, what would change, and each changed whole or not at all.

Only files that begin with our own mark are replaced or removed; a file of the same name without it is somebody else's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from agent.errors import AgentError
from agent.node.file_ops import FileOps, read_up_to, sync_directory, write_durably

_MAX_BYTES = 64 * 1024


class DropInError(AgentError):
    """A drop-in cannot be read or written."""

    hint = "run as root, with /etc/systemd writable"


class Verb(StrEnum):
    """What becomes of one file."""

    WRITE = "write"
    REPLACE = "replace"
    REMOVE = "remove"
    KEEP = "keep"  # it says what it shall


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file. content: what it shall say; "" where it is removed."""

    path: Path
    verb: Verb
    content: str = ""


def plan(
    directory: Path, wanted: Mapping[PurePosixPath, str], every_path: Iterable[PurePosixPath], mark: str
) -> tuple[FileChange, ...]:
    """What has to change so that of `every_path` exactly `wanted` is there. directory: /etc/systemd. Raises DropInError."""
    changes: list[FileChange] = []
    for name in sorted({*every_path, *wanted}):
        path = directory / name
        here, content = _read(path, mark), wanted.get(name)
        if content is None:
            if here is not None:
                changes.append(FileChange(path, Verb.REMOVE))
        elif here is None:
            changes.append(FileChange(path, Verb.WRITE, content))
        else:
            changes.append(FileChange(path, Verb.KEEP if here == content else Verb.REPLACE, content))
    return tuple(changes)


def apply(changes: Iterable[FileChange], files: FileOps | None = None) -> None:
    """Make the changes, durable when it returns; one that was cut off can be done again. Raises DropInError."""
    files = files or FileOps()
    for change in changes:
        try:
            if change.verb is Verb.REMOVE:
                _remove(change.path, files)
            elif change.verb is not Verb.KEEP:
                _write(change.path, change.content, files)
        except OSError as error:
            raise DropInError(f"{change.path}: {error.strerror}") from error


def _read(path: Path, mark: str) -> str | None:
    try:
        text = read_up_to(FileOps(), path, _MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DropInError(f"{path}: {error.strerror}", hint="expected a plain file, or none") from error
    if not text.startswith(mark):
        raise DropInError(f"{path}: not written by pinfold", hint="move it away, or give it another name, first")
    return text


def _write(path: Path, content: str, files: FileOps) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")  # systemd reads *.conf only
    write_durably(files, new, content.encode(), 0o644)
    files.rename(new, path)
    sync_directory(files, path.parent)


def _remove(path: Path, files: FileOps) -> None:
    files.unlink(path)
    sync_directory(files, path.parent)
    with contextlib.suppress(OSError):  # other drop-ins are in it
        path.parent.rmdir()
