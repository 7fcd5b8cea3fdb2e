from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.proto import queues_v1_pb2 as v1
from agent.serve.json_messages import message_of

Documents = st.SearchStrategy[Any]

TYPES = sorted(v1.DESCRIPTOR.message_types_by_name)
SCALARS: dict[int, Documents] = {
    FieldDescriptor.CPPTYPE_STRING: st.text(max_size=4),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_DOUBLE: st.integers(-1, 2**60) | st.floats(allow_nan=False, allow_infinity=False),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
}
WELL_KNOWN: dict[str, Documents] = {
    "google.protobuf.Timestamp": st.sampled_from(["2026-11-30T01:02:03.456Z", "1970-01-01T00:00:00Z"]),
    "google.protobuf.Value": st.none() | st.integers(0, 99) | st.text(max_size=3) | st.lists(st.booleans(), max_size=2),
    "google.protobuf.Struct": st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2),
}


def documents(descriptor: Descriptor) -> Documents:
    """Documents in the JSON form of a message, some fields absent and some null."""
    if descriptor.full_name in WELL_KNOWN:
        return WELL_KNOWN[descriptor.full_name]
    fields = {field.json_name: st.none() | values(field) for field in descriptor.fields}
    return st.fixed_dictionaries({}, optional=fields)


def values(field: FieldDescriptor) -> Documents:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        return st.dictionaries(st.text(max_size=3), one(kind.fields_by_name["value"]), max_size=2)
    return st.lists(one(field), max_size=2) if field.is_repeated else one(field)


def one(field: FieldDescriptor) -> Documents:
    return SCALARS[field.cpp_type] if field.message_type is None else documents(field.message_type)


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=25)
@given(data=st.data())
def test_a_document_becomes_the_message_that_protobufs_own_reader_makes(name: str, data: st.DataObject) -> None:
    descriptor = v1.DESCRIPTOR.message_types_by_name[name]
    kind, document = GetMessageClass(descriptor), data.draw(documents(descriptor))
    assert message_of(document, kind) == ParseDict(document, kind())


@pytest.mark.parametrize(
    "document",
    [
        {"totl": {}},
        {"missing_nodes": []},
        {"total": {"cpus": 1}},
        {"total": {"cpu": "1"}},
        {"total": 3},
        {"complete": "yes"},
        {"queues": [{"priority": 1.5}]},
        {"queues": [{"priority": 2**63}]},
        {"statusDiffers": {"leaf": "yesterday"}},
    ],
)
def test_what_is_no_such_document_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError, ParseError)):
        message_of(document, v1.ListQueuesResponse)
