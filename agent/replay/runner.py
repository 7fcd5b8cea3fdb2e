"""One record in, one answer out: never an exception, always in order (design section 12)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agent.errors import AgentError
from agent.replay.context import Context, decode_machine
from agent.replay.kinds import handler

MAX_LINE_BYTES = 64 * 1024 * 1024  # a record larger than that is not a decision
# a field is missing or of the wrong type or size: the record is at fault, and the next one may be fine
BAD_RECORD = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError)

_UNDECODED = re.compile("[\udc80-\udcff]")  # bytes that are not UTF-8, as error handler surrogateescape leaves them


def answer(record: object, context: Context) -> dict[str, Any]:
    """The output line for one decoded record: `{"kind", "id", "output"}`, or `"error"` where the record itself is bad."""
    if not isinstance(record, Mapping):
        return {"kind": None, "id": None, "error": f"a record is a JSON object, not {type(record).__name__}"}
    kind, ident = record.get("kind"), record.get("id")
    line: dict[str, Any] = {"kind": kind, "id": ident}
    decide = handler(kind) if isinstance(kind, str) else None
    if decide is None:
        return {**line, "error": f"unknown kind {kind!r}"}
    record_input = record.get("input")
    if not isinstance(record_input, Mapping):
        return {**line, "error": "input is missing or not an object"}
    try:
        if kind == "topology":
            context.machines[str(ident)] = decode_machine(record_input)
        context.current = str(ident)
        return {**line, "output": decide(record_input, context)}
    except AgentError as error:
        return {**line, "output": {"error": str(error)}}
    except BAD_RECORD as error:
        return {**line, "error": f"bad record: {type(error).__name__}: {error}"}


def answers(lines: Iterable[str], context: Context) -> Iterator[tuple[object, dict[str, Any]]]:
    """Every non-blank line decoded, and its answer. Bytes that are not UTF-8 come as lone surrogates (surrogateescape)."""
    for text in lines:
        if not text.strip():
            continue
        record: object = None
        if len(text) > MAX_LINE_BYTES:
            yield None, {"kind": None, "id": None, "error": f"record longer than {MAX_LINE_BYTES} bytes"}
            continue
        if not text.isascii() and _UNDECODED.search(text):
            yield None, {"kind": None, "id": None, "error": "not UTF-8"}
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield None, {"kind": None, "id": None, "error": f"not JSON: {error}"}
            continue
        yield record, answer(record, context)
