"""The documents of a text file from strangers: plain values with their line numbers, bounded in size and depth.

`agent.formats.yaml_reader` and `agent.formats.json_reader` read one document each; a file is split here first, so that a
broken document does not take the others with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from agent.errors import BadInputError

MAX_BYTES = 512 * 1024  # real pod files have a few KiB; reading this much takes about a second
MAX_DEPTH = 60  # core/v1 needs about 15
MAX_NODES = 100_000  # values in one document, YAML aliases unfolded
MAX_NUMBER = 64  # characters; a longer number stays text

Value: TypeAlias = bool | int | float | str | Sequence["Value"] | Mapping[str, "Value"] | None

_MARKER = re.compile(r"(---|\.\.\.)(?=\s|\Z)")  # at the start of a line, where YAML lets nothing else begin so
_NOTHING = re.compile(r"\s*(#.*)?|%.*")  # a line without content: blank, comment, directive


class DocumentError(BadInputError):
    """A text that cannot be read. `line` counts from 1 in the whole file."""

    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line
        self.why = why


@dataclass(slots=True)
class Lines:
    """Where a value and its members stand in the file."""

    line: int
    members: dict[str, Lines] = field(default_factory=dict)

    def find(self, path: str) -> int:
        """The line of a field such as "spec.containers[0].name", or of the nearest thing around it that is there."""
        found = self
        for bracketed, name in re.findall(r"\[([^\]]*)\]|([^.\[]+)", path):
            if (bracketed or name) not in found.members:
                break
            found = found.members[bracketed or name]
        return found.line


@dataclass(frozen=True, slots=True)
class Document:
    """One document and its places."""

    value: Value
    lines: Lines


def decode_text(data: bytes) -> str:
    """The text of a file. Raises DocumentError where it is too long or not UTF-8."""
    if len(data) > MAX_BYTES:
        raise DocumentError(1, f"has {len(data)} bytes, at most {MAX_BYTES} are read")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(data.count(b"\n", 0, error.start) + 1, "not UTF-8 text") from error


def split_documents(text: str) -> Iterator[tuple[int, str]]:
    """The documents of a file that have content, each with the number of its first line."""
    first, lines = 1, list[str]()
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if _MARKER.match(line):
            yield from _with_content(first, lines)
            first, lines = number, ["   " + line[3:]]  # content may follow on the marker's line
        else:
            lines.append(line)
    yield from _with_content(first, lines)


def _with_content(first: int, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    if not all(_NOTHING.fullmatch(line.rstrip("\r\n")) for line in lines):
        yield first, "".join(lines)
