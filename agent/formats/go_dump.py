"""The kubelet's checksum: 32-bit FNV-1a over a dump of the Go value, type names included.

The dump is what spew (davecgh/go-spew v1, format.go, "%#v" with sorted keys) prints: every field is preceded by its type, an
item of a map or slice is not, a pointer in a map is `<*>`, nil is `<nil>`. A nil pointer as the last value of a map makes spew
forget the type of whatever comes next; that is part of the checksum too.
"""

from __future__ import annotations

from typing import Any

from agent.formats.go_cpuset import parse_cpuset
from agent.formats.go_types import GoCPUSet, GoFields, GoInteger, GoMap, GoPointer, GoSlice, GoString, GoStruct, GoType

_OFFSET, _PRIME, _MASK = 0x811C9DC5, 0x01000193, 0xFFFFFFFF  # FNV-1a, 32 bits


def fnv1a(text: str) -> int:
    """32-bit FNV-1a of the UTF-8 bytes."""
    state = _OFFSET
    for byte in text.encode("utf-8"):
        state = (state ^ byte) * _PRIME & _MASK
    return state


def string_checksum(text: str) -> int:
    """The checksum of a Go string: its dump is `(string)` and the text itself."""
    return fnv1a(f"(string){text}")


def dump(kind: GoStruct, value: GoFields) -> str:
    """What follows the type name in the dump of a pointer to this struct. Raises GoCPUSetError for a pod's set that is none."""
    return _Dump().of(kind, value)


def checksum(type_name: str, dumped: str) -> int:
    """The checksum of a pointer to a struct called `type_name` whose dump is `dumped`."""
    return fnv1a(f"(*{type_name}){dumped}")


class _Dump:
    def __init__(self) -> None:
        self._parts: list[str] = []
        self._type_known = True  # the caller writes that of the whole

    def of(self, kind: GoStruct, value: GoFields) -> str:
        self._write(kind, value)
        return "".join(self._parts)

    def _write(self, kind: GoType, value: Any) -> None:
        write = self._parts.append
        if isinstance(kind, GoPointer):
            if value is None:
                write("<nil>")  # and the type of what comes next stays "known"
                return
            write("<*>")
            self._type_known = True
            self._write(kind.target, value)
            return
        if not self._type_known:
            write(f"({kind.name})")
        self._type_known = False
        match kind:
            case GoString() | GoInteger():
                write(str(value))
            case GoCPUSet():
                ids = " ".join(f"{cpu}:{{}}" for cpu in parse_cpuset(value))
                write(f"{{elems:(map[int]struct {{}})map[{ids}]}}")
            case GoStruct():
                self._fields(kind, value)
            case GoSlice() | GoMap() if value is None:
                write("<nil>")
            case GoSlice():
                self._items(kind, value)
            case GoMap():
                self._entries(kind, value)

    def _fields(self, kind: GoStruct, value: GoFields) -> None:
        before = "{"
        for field in kind.fields:
            self._parts.append(f"{before}{field.name}:")
            self._write(field.type, value[field.json])
            before = " "
        self._parts.append("}")

    def _items(self, kind: GoSlice, value: list[Any]) -> None:
        self._parts.append("[")
        for index, item in enumerate(value):
            if index:
                self._parts.append(" ")
            self._type_known = True
            self._write(kind.item, item)
        self._parts.append("]")

    def _entries(self, kind: GoMap, value: dict[Any, Any]) -> None:
        self._parts.append("map[")
        for index, key in enumerate(sorted(value)):
            self._parts.append(f" {key}:" if index else f"{key}:")
            self._type_known = True
            self._write(kind.value, value[key])
        self._parts.append("]")
