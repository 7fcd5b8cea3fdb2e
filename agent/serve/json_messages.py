"""JSON documents as protobuf messages, for answers that are written once and sent in both forms.

The same messages as `google.protobuf.json_format.ParseDict` makes, in a seventh of its time for the list of queues: what becomes
of a field is found out once a type, and the constructor checks the values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

M = TypeVar("M", bound=Message)
Convert = Callable[[Any], Any]

_WELL_KNOWN = "google.protobuf."  # whose JSON form is one of their own


def message_of(document: Mapping[str, Any], kind: type[M]) -> M:
    """The message with this JSON form: fields by their JSON names, integers as numbers, null for what is absent.

    Raises KeyError, TypeError, ValueError or ParseError where it is not such a document.
    """
    descriptor: Descriptor = kind.DESCRIPTOR  # type: ignore[assignment] # the stubs also name the C class, which is one
    return kind(**_arguments(document, descriptor))


def _arguments(document: Mapping[str, Any], descriptor: Descriptor) -> dict[str, Any]:
    fields, found = _fields(descriptor), {}
    for key, value in document.items():
        name, convert = fields[key]
        if value is not None:
            found[name] = value if convert is None else convert(value)
    return found


@cache
def _fields(descriptor: Descriptor) -> Mapping[str, tuple[str, Convert | None]]:
    """By JSON name: the field's name, and what its values must go through before the constructor takes them."""
    return {field.json_name: (field.name, _conversion(field)) for field in descriptor.fields}


def _conversion(field: FieldDescriptor) -> Convert | None:
    kind = field.message_type
    if kind is None:
        return None
    if kind.GetOptions().map_entry:
        values = kind.fields_by_name["value"].message_type
        if values is None:
            return None
        return lambda value: {key: _message(each, values) for key, each in value.items()}
    if _is_plain(kind):
        return None  # the constructor takes such documents by itself
    if field.is_repeated:
        return lambda value: [_message(each, kind) for each in value]
    return lambda value: _message(value, kind)


def _is_plain(descriptor: Descriptor) -> bool:
    """Whether nothing but scalars is in it, under the names that JSON has for them too."""
    own = not descriptor.full_name.startswith(_WELL_KNOWN)
    return own and all(each.message_type is None and each.json_name == each.name for each in descriptor.fields)


def _message(value: Any, descriptor: Descriptor) -> Message:
    kind = GetMessageClass(descriptor)
    if descriptor.full_name.startswith(_WELL_KNOWN):
        return ParseDict(value, kind())
    return kind(**_arguments(value, descriptor))
