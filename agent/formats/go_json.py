"""JSON as Go's encoding/json reads and writes it (v1 of the package; its sources are decode.go, encode.go, scanner.go).

Reading is lenient where Go is: keys match without regard to case, later duplicates win (in maps and structs they are merged),
null leaves a string, number or struct as it is and makes a map, slice or pointer nil, bytes that are not UTF-8 and lone
surrogates become U+FFFD, integers must be written as integers. Nesting is limited by Python's recursion limit, far above
any real file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from agent.errors import BadInputError
from agent.formats.go_types import (
    GoCPUSet,
    GoField,
    GoFields,
    GoInteger,
    GoMap,
    GoPointer,
    GoSlice,
    GoString,
    GoStruct,
    GoType,
    zero,
)

_NOT_TEXT = re.compile("[\ud800-\udfff]")
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
_ESCAPED = re.compile("[<>&\u2028\u2029]")
# the letters beyond ASCII that Go folds onto ASCII ones: long s and the Kelvin sign
_FOLDED = str.maketrans({"\u017f": "s", "\u212a": "k"})


class GoJSONError(BadInputError):
    """A text that is not one JSON value, or not of the type that the file has there."""


class Number(str):
    """A JSON number as it is spelled."""

    __slots__ = ()


class Members(tuple[tuple[str, Any], ...]):
    """A JSON object: its members in order, duplicates included."""

    __slots__ = ()


def parse(data: bytes) -> Members:
    """The one JSON object of a file. Raises GoJSONError where it is something else or more."""
    text = data.decode("utf-8", "surrogateescape")  # one escape per bad byte, as Go has one U+FFFD per bad byte
    try:
        parsed = json.loads(
            text, object_pairs_hook=Members, parse_int=Number, parse_float=Number, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise GoJSONError(f"not one JSON value: {error}") from error
    if not isinstance(parsed, Members):
        raise GoJSONError("not a JSON object")
    return parsed


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def has_key(members: Members, name: str) -> bool:
    """Whether an object has this field, by Go's matching of names."""
    return any(_fold(key) == name.lower() for key, _ in members)


def _fold(key: str) -> str:
    return key.translate(_FOLDED).lower() if key.isascii() or key.translate(_FOLDED).isascii() else key


def decode(kind: GoStruct, members: Members, into: GoFields) -> GoFields:
    """A struct of this type, `into` being its value before (a constructor makes maps before it decodes).

    Raises GoJSONError naming the first field of the wrong type. Unknown fields are passed over.
    """
    return _struct(kind, members, into, "")


def _struct(kind: GoStruct, members: Members, old: GoFields, path: str) -> GoFields:
    by_name = {field.json.lower(): field for field in kind.fields}
    value = dict(old)
    for key, item in members:
        field = _field(by_name, key)
        if field is not None:
            value[field.json] = _decode(field.type, item, value[field.json], f"{path}.{field.json}".lstrip("."))
    return value


def _field(by_name: dict[str, GoField], key: str) -> GoField | None:
    return by_name.get(_fold(key))


def _decode(kind: GoType, item: Any, old: Any, path: str) -> Any:
    if item is None:
        return None if isinstance(kind, GoMap | GoSlice | GoPointer) else old
    match kind:
        case GoString() | GoCPUSet() if type(item) is str:
            return as_text(item)
        case GoInteger() if isinstance(item, Number):
            return _integer(kind, item, path)
        case GoSlice() if type(item) is list:
            before = old or []
            return [
                _decode(kind.item, each, before[index] if index < len(before) else zero(kind.item), f"{path}[{index}]")
                for index, each in enumerate(item)
            ]
        case GoMap() if isinstance(item, Members):
            return {**(old or {}), **_entries(kind, item, path)}
        case GoPointer() if isinstance(item, Members):
            return _struct(kind.target, item, old or zero(kind.target), path)
        case GoStruct() if isinstance(item, Members):
            return _struct(kind, item, old, path)
        case _:
            raise GoJSONError(f"{path} has the wrong JSON type")


def _entries(kind: GoMap, members: Members, path: str) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for key, item in members:
        name: str | int = as_text(key)
        if kind.int_keys:
            if not _INTEGER.fullmatch(key) or len(key) > 20 or int(key) not in range(-(1 << 63), 1 << 63):
                raise GoJSONError(f"{path}: the key {key[:30]!r} is not an integer")
            name = int(key)
        found[name] = _decode(kind.value, item, zero(kind.value), f"{path}.{name}")
    return found


def _integer(kind: GoInteger, number: Number, path: str) -> int:
    sign_allowed = kind.signed or not number.startswith("-")
    if _INTEGER.fullmatch(number) and len(number) <= 20 and sign_allowed and (value := int(number)) in kind.range:
        return value
    raise GoJSONError(f"{path}: the number {number[:30]} does not fit into {kind.name}")


def as_text(item: str) -> str:
    """A string as Go holds it after decoding: no lone surrogates."""
    return item if item.isascii() else _NOT_TEXT.sub("\ufffd", item)


def encode(kind: GoType, value: Any) -> str:
    """The compact JSON that Go writes: fields in order, map keys sorted as texts, HTML-sensitive characters escaped."""
    match kind:
        case GoStruct():
            return _object(
                (field.json, encode(field.type, value[field.json]))
                for field in kind.fields
                if value[field.json] or not field.omit_empty
            )
        case _ if value is None:
            return "null"
        case GoPointer():
            return encode(kind.target, value)
        case GoMap():
            texts = sorted((str(key), item) for key, item in value.items())
            return _object((key, encode(kind.value, item)) for key, item in texts)
        case GoSlice():
            return f"[{','.join(encode(kind.item, item) for item in value)}]"
        case GoInteger():
            return str(value)
        case _:
            return quote(value)


def _object(members: Iterable[tuple[str, str]]) -> str:
    return "{%s}" % ",".join(f"{quote(name)}:{text}" for name, text in members)  # noqa: UP031 - braces in braces


def quote(text: str) -> str:
    """A JSON string as Go writes it."""
    return _ESCAPED.sub(lambda match: _HTML[match[0]], json.dumps(as_text(text), ensure_ascii=False))
