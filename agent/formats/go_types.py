"""Go types as values: just enough of them to decode a file as encoding/json does and to hash it as the kubelet does.

What a type holds, as Python values: a string a str, an integer an int, a slice a list or None (nil), a map a dict or None
(nil), a pointer its target or None, a struct a dict by JSON name, a CPU set its text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class GoString:
    """A string type. name: as reflection prints it."""

    name: str = "string"


@dataclass(frozen=True, slots=True)
class GoInteger:
    """A 64-bit integer type."""

    name: str
    signed: bool

    @property
    def range(self) -> range:
        """The numbers that fit."""
        return range(-(1 << 63), 1 << 63) if self.signed else range(1 << 64)


@dataclass(frozen=True, slots=True)
class GoSlice:
    """A slice type."""

    name: str
    item: GoType


@dataclass(frozen=True, slots=True)
class GoMap:
    """A map type, its keys strings or (int_keys) ints."""

    name: str
    value: GoType
    int_keys: bool = False


@dataclass(frozen=True, slots=True)
class GoPointer:
    """A pointer that is the value of a map; the kubelet's files have no others."""

    target: GoStruct


@dataclass(frozen=True, slots=True)
class GoCPUSet:
    """k8s.io/utils/cpuset.CPUSet, a string in JSON and a set of ints in a dump."""

    name: str = "cpuset.CPUSet"


@dataclass(frozen=True, slots=True)
class GoField:
    """A field of a struct. omit_empty: the JSON tag's omitempty."""

    name: str
    json: str
    type: GoType
    omit_empty: bool = False


@dataclass(frozen=True, slots=True)
class GoStruct:
    """A struct type. Its fields in the order of their declaration, which is the order of JSON and dump."""

    name: str
    fields: tuple[GoField, ...]


GoType: TypeAlias = GoString | GoInteger | GoSlice | GoMap | GoPointer | GoCPUSet | GoStruct
GoFields: TypeAlias = dict[str, Any]  # a struct's value, by JSON name; what is in it the struct's type says

STRING = GoString()
INT = GoInteger("int", signed=True)
UINT64 = GoInteger("uint64", signed=False)
CHECKSUM = GoInteger("checksum.Checksum", signed=False)


def zero(kind: GoType) -> Any:
    """Go's zero value of this type."""
    match kind:
        case GoString() | GoCPUSet():
            return ""
        case GoInteger():
            return 0
        case GoStruct():
            return {field.json: zero(field.type) for field in kind.fields}
        case _:
            return None
