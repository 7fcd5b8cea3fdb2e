"""The lines of the reservation ledger's journal, each with a checksum, so that no changed bit passes for a reservation.

    <CRC-32 of the rest, 8 hex digits> {"schema":2,"lines":N}                     first; N lines were written with it at once
    <CRC-32 of the rest, 8 hex digits> {"uid":"...","reservation":{...}|null}     null: it has ended; later lines of a pod win

Schema 1 had neither head nor checksums, and is still read. A journal cut short in lines that were added one by one reads as the
ledger at that time: that is also what a crash leaves.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import AgentError
from agent.formats.fields import FieldError, Fields
from agent.queues.ledger import Reservation
from agent.queues.ledger_format import decode_reservation, encode_reservation

SCHEMA = 2
_MAX_LINE = 16 * 1024
_CHECKSUM = 9  # bytes: the digits and a blank


class _DamageError(AgentError):
    """Why a line cannot be what was written."""


@dataclass(frozen=True, slots=True)
class JournalContent:
    """found: by pod UID, what the lines that can be read say. damage: what is wrong, by line. torn: the last one is cut short."""

    found: Mapping[str, Reservation]
    damage: tuple[str, ...]
    torn: bool


def encode_head(lines: int) -> bytes:
    """The first line of a journal that begins with so many others."""
    return _checked({"schema": SCHEMA, "lines": lines})


def encode_line(uid: str, reservation: Reservation | None) -> bytes:
    """A pod's reservation, or its end."""
    return _checked({"uid": uid, "reservation": None if reservation is None else encode_reservation(reservation)})


def _checked(value: Mapping[str, object]) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read_journal(data: bytes) -> JournalContent:
    """Everything that can be read, and whether that is all that was written."""
    found, damage = dict[str, Reservation](), list[str]()
    checked = not data.startswith(b"{")
    *lines, last = data.split(b"\n")
    if checked and _is_whole(last):  # nothing but its end is missing
        lines.append(last)
        last = b""
    promised = 0
    for number, line in enumerate(lines, 1):
        try:
            text = _text(line, checked=checked)
            if checked and number == 1:
                promised = _lines_of_head(text)
            else:
                _apply(text, found)
        except (_DamageError, FieldError, ValueError, RecursionError) as error:
            damage.append(f"line {number}: {error}")
    if checked and _is_whole(last[:-1]):
        damage.append(f"line {len(lines) + 1}: has another end than was written")
    elif len(lines) < 1 + promised:
        damage.append(f"line {len(lines) + 1}: is missing or cut short")
    return JournalContent(found, tuple(damage), bool(last))


def _text(line: bytes, *, checked: bool) -> bytes:
    """The JSON of a line."""
    if len(line) > _MAX_LINE:
        raise _DamageError(f"is longer than {_MAX_LINE} bytes")
    if not checked:
        return line
    text = line[_CHECKSUM:]
    if line[:_CHECKSUM] != b"%08x " % zlib.crc32(text):
        raise _DamageError("its checksum is that of something else")
    return text


def _is_whole(line: bytes) -> bool:
    try:
        _text(line, checked=True)
    except _DamageError:
        return False
    return True


def _lines_of_head(text: bytes) -> int:
    """The number of lines that were written with the head."""
    fields = Fields(json.loads(text), "")
    if (schema := fields.integer("schema")) != SCHEMA:
        raise _DamageError(f"schema {schema} is not known to this version, {SCHEMA} is")
    return fields.integer("lines")


def _apply(text: bytes, found: dict[str, Reservation]) -> None:
    fields = Fields(json.loads(text), "")
    fields.only({"uid", "reservation"})
    uid, reservation = fields.text("uid"), fields.value("reservation", _reservation)
    if reservation is None:
        found.pop(uid, None)
    else:
        found[uid] = reservation


def _reservation(value: object, path: str) -> Reservation | None:
    return None if value is None else decode_reservation(value, path)
