"""What the schema says of a dotted key: where its value belongs, whether it is text, and how files lie over each other."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from agent.config_schema import Config
from agent.config_schema_values import Section


def locate(key: str) -> tuple[tuple[str, ...], bool]:
    """The steps to a key's value, and whether it holds text.

    Keys of free maps may have dots: `evictionHard.memory.available` is two steps. An unknown key is split at every dot.
    """
    steps: list[str] = []
    parts = key.split(".")
    schema: Any = Config
    while parts:
        if _is_section(schema) and parts[0] in schema.model_fields:
            schema = _plain(schema.model_fields[parts[0]].annotation)
            steps.append(parts.pop(0))
        elif get_origin(schema) is dict:
            schema = _plain(get_args(schema)[1])
            taken = 1 if _is_section(schema) else len(parts)
            steps.append(".".join(parts[:taken]))
            del parts[:taken]
        else:
            return (*steps, *parts), False
    return tuple(steps), _is_text(schema)


def whole_value(key: str) -> tuple[str, ...]:
    """The steps to the value that a file replaces whole and this key is part of: `systemReserved` of `systemReserved.cpu`."""
    steps: list[str] = []
    schema: Any = Config
    for step in key.split("."):
        steps.append(step)
        field = schema.model_fields.get(step)
        schema = _plain(field.annotation) if field is not None else None
        if not _is_section(schema):
            break
    return tuple(steps)


def nearest(key: str) -> str:
    """The key that an unknown one was probably meant to be, of the same section; "" where none is like it."""
    *sections, name = key.split(".")
    schema: Any = Config
    for step in sections:
        field = schema.model_fields.get(step)
        schema = _plain(field.annotation) if field is not None else None
        if not _is_section(schema):
            return ""
    known = {each.lower(): each for each in schema.model_fields}
    found = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.75)
    return ".".join([*sections, known[found[0]]]) if found else ""


def overlay(below: Mapping[str, Any], above: Mapping[str, Any], schema: Any = Config) -> dict[str, Any]:
    """One file over another: sections key by key, everything else whole (a map such as systemReserved is one value)."""
    result = dict(below)
    for key, value in above.items():
        field = schema.model_fields.get(key)
        inner = _plain(field.annotation) if field is not None else None
        here = result.get(key)
        if _is_section(inner) and isinstance(value, Mapping) and isinstance(here, Mapping):
            result[key] = overlay(here, value, inner)
        else:
            result[key] = value
    return result


def _plain(annotation: Any) -> Any:
    """The type itself, without `| None` and without its constraints."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        kinds = [each for each in get_args(annotation) if each is not NoneType]
        return _plain(kinds[0]) if len(kinds) == 1 else annotation
    return annotation


def _is_section(schema: Any) -> bool:
    return isinstance(schema, type) and issubclass(schema, Section)


def _is_text(schema: Any) -> bool:
    if get_origin(schema) is Literal:
        return all(isinstance(each, str) for each in get_args(schema))
    return schema is str
