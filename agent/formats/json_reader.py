"""One JSON document -> plain values. A key given twice is an error, as one of the two would be lost without a word."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from agent.formats.documents import MAX_DEPTH, MAX_NODES, Document, DocumentError, Lines, Value
from agent.formats.scalars import resolve


def read_json(text: str, first_line: int = 1) -> Document:
    """Read one JSON object or list. `lines` knows the first line only.

    Raises DocumentError naming a line where it is broken, too large or nested too deep.
    """
    try:
        value: Value = json.loads(
            text, object_pairs_hook=_members_once, parse_int=resolve, parse_float=resolve, parse_constant=str
        )
    except json.JSONDecodeError as error:
        raise DocumentError(first_line + error.lineno - 1, f"not JSON: {error.msg}") from error
    except RecursionError as error:
        raise DocumentError(first_line, f"nested more than {MAX_DEPTH} deep") from error
    except _GivenTwiceError as error:
        raise DocumentError(first_line, f"the key {error.key[:80]!r} is given twice") from error
    _check_size(value, first_line)
    return Document(value, Lines(first_line))


class _GivenTwiceError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _members_once(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    members: dict[str, Value] = {}
    for key, value in pairs:
        if key in members:
            raise _GivenTwiceError(key)
        members[key] = value
    return members


def _check_size(value: Value, line: int) -> None:
    level, seen = [value], 0
    for _ in range(MAX_DEPTH):
        seen += len(level)
        if seen > MAX_NODES:
            raise DocumentError(line, f"has more than {MAX_NODES} values")
        level = [member for each in level for member in _members(each)]
        if not level:
            return
    raise DocumentError(line, f"nested more than {MAX_DEPTH} deep")


def _members(value: Value) -> Iterable[Value]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()
