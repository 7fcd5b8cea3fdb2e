"""One YAML document -> plain values with their line numbers.

Only plain data: no tags that construct objects. A key given twice is an error, as one of the two would be lost without a word.
What aliases unfold to counts against the bounds, and nothing here recurses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import yaml

from agent.formats.documents import MAX_DEPTH, MAX_NODES, Document, DocumentError, Lines, Value
from agent.formats.scalars import resolve

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + name for name in ("int", "float", "bool", "null", "map", "seq")}


def read_yaml(text: str, first_line: int = 1) -> Document:
    """Read one YAML document. Raises DocumentError naming the line."""
    builder = _Builder(first_line)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        line = first_line if mark is None else first_line + mark.line
        raise DocumentError(line, f"not YAML: {error.problem or 'broken'}") from error
    except yaml.YAMLError as error:
        raise DocumentError(first_line, f"not YAML: {str(error).splitlines()[0]}") from error
    return builder.document()


@dataclass(slots=True)
class _Part:
    """A finished value: its places, how many values it unfolds to, how deep it is."""

    value: Value
    lines: Lines
    size: int = 1
    depth: int = 1


@dataclass(slots=True)
class _Open:
    """A mapping or list that is being read. key: waiting for its value; merged: values of `<<`."""

    anchor: str | None
    lines: Lines
    is_mapping: bool
    mapping: dict[str, Value] = field(default_factory=dict)
    items: list[Value] = field(default_factory=list)
    merged: list[_Part] = field(default_factory=list)
    key: str | None = None
    key_merges: bool = False
    size: int = 1
    depth: int = 1


class _Builder:
    """Takes the parser's events one by one and puts the value together without recursion."""

    def __init__(self, first_line: int) -> None:
        self._first_line = first_line
        self._open: list[_Open] = []
        self._anchors: dict[str, _Part] = {}
        self._roots: list[_Part] = []

    def document(self) -> Document:
        if len(self._roots) != 1:
            raise DocumentError(self._first_line, f"{len(self._roots)} documents where one is expected")
        return Document(self._roots[0].value, self._roots[0].lines)

    def take(self, event: yaml.Event) -> None:
        line = self._first_line if event.start_mark is None else self._first_line + event.start_mark.line
        match event:
            case yaml.ScalarEvent():
                if self._awaits_key():
                    self._open_key(event, line)
                else:
                    self._attach(_Part(_scalar(event, line), Lines(line)), event.anchor, line)
            case yaml.AliasEvent():
                if event.anchor not in self._anchors:
                    raise DocumentError(line, f"alias *{event.anchor} of something that is not there, or contains it")
                known = self._anchors[event.anchor]
                self._attach(known, None, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                _refuse_tag(event, line)
                if self._awaits_key():
                    raise DocumentError(line, "a key must be a string")
                if len(self._open) >= MAX_DEPTH:
                    raise DocumentError(line, f"nested more than {MAX_DEPTH} deep")
                self._open.append(_Open(event.anchor, Lines(line), isinstance(event, yaml.MappingStartEvent)))
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._open.pop()
                self._attach(_finish(done, line), done.anchor, line)

    def _awaits_key(self) -> bool:
        return bool(self._open) and self._open[-1].is_mapping and self._open[-1].key is None

    def _open_key(self, event: yaml.ScalarEvent, line: int) -> None:
        parent = self._open[-1]
        parent.key = event.value
        parent.key_merges = event.value == "<<" and event.implicit[0]
        if event.value in parent.mapping or (parent.key_merges and parent.merged):
            raise DocumentError(line, f"the key {event.value[:80]!r} is given twice")

    def _attach(self, part: _Part, anchor: str | None, line: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = part
        if not self._open:
            self._roots.append(part)
            return
        parent = self._open[-1]
        parent.size += part.size
        parent.depth = max(parent.depth, part.depth + 1)
        if parent.size > MAX_NODES:
            raise DocumentError(line, f"unfolds to more than {MAX_NODES} values")
        if len(self._open) + part.depth > MAX_DEPTH:
            raise DocumentError(line, f"nested more than {MAX_DEPTH} deep")
        if not parent.is_mapping:
            parent.lines.members[str(len(parent.items))] = part.lines
            parent.items.append(part.value)
        elif parent.key_merges:
            parent.merged.append(part)
            parent.key, parent.key_merges = None, False
        elif parent.key is not None:
            parent.lines.members[parent.key] = part.lines
            parent.mapping[parent.key] = part.value
            parent.key = None


def _finish(done: _Open, line: int) -> _Part:
    if not done.is_mapping:
        return _Part(done.items, done.lines, done.size, done.depth)
    for part in done.merged:  # own keys win, then the first mapping that has the key
        sources = [part.value] if isinstance(part.value, Mapping) else part.value
        if not isinstance(sources, list) or not all(isinstance(each, Mapping) for each in sources):
            raise DocumentError(line, "<< merges mappings only")
        for source in sources:
            if isinstance(source, Mapping):
                done.mapping = {**source, **done.mapping}
    return _Part(done.mapping, done.lines, done.size, done.depth)


def _refuse_tag(event: yaml.ScalarEvent | yaml.CollectionStartEvent, line: int) -> None:
    if event.tag not in (None, "!", _TAG + "str") and event.tag not in _PLAIN_TAGS:
        raise DocumentError(line, f"the tag {event.tag[:80]!r} is not allowed")


def _scalar(event: yaml.ScalarEvent, line: int) -> Value:
    _refuse_tag(event, line)
    text: str = event.value
    if event.tag in ("!", _TAG + "str") or (event.tag is None and not event.implicit[0]):
        return text
    return resolve(text)
