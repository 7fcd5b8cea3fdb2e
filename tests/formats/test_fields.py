"""A document's fields by name: what is absent or of another type is named by its path."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.formats.device_facts import decode_devices, encode_devices
from agent.formats.fields import FieldError, Fields, numbered
from agent.formats.grants import decode_blocks, decode_set
from agent.model.devices import PodDevices
from agent.model.numa import MAX_NODES

DOCUMENT = {"n": -1, "flag": 1, "seconds": True, "list": {}, "map": [], "text": 7, "nothing": None}


@pytest.mark.parametrize(
    ("take", "why"),
    [
        (lambda fields: fields.text("gone"), "a.gone: is missing"),
        (lambda fields: fields.text("text"), "a.text: a string is expected"),
        (lambda fields: fields.integer("n"), "a.n: an integer of 0 or more is expected"),
        (lambda fields: fields.integer("seconds"), "a.seconds: an integer of 0 or more is expected"),
        (lambda fields: fields.seconds("seconds"), "a.seconds: a number is expected"),
        (lambda fields: fields.boolean("flag"), "a.flag: true or false is expected"),
        (lambda fields: fields.items("list"), "a.list: a list is expected"),
        (lambda fields: fields.mapping("map", decode_set), "a.map: an object is expected, not list"),
        (lambda fields: fields.only({"n"}), "a.flag: is not a field of this schema"),
        (lambda fields: fields.value("nothing", decode_blocks), "a.nothing: a list is expected"),
    ],
)
def test_what_is_not_as_expected_is_named(take: Callable[[Fields], object], why: str) -> None:
    with pytest.raises(FieldError) as refusal:
        take(Fields(DOCUMENT, "a"))
    assert why in str(refusal.value)


def test_an_object_is_an_object() -> None:
    with pytest.raises(FieldError, match="an object is expected, not list"):
        Fields([], "")


def test_fields_that_are_there_are_taken_as_they_are() -> None:
    fields = Fields({"n": -1, "s": 2, "t": True, "l": [1, 2], "m": {"x": "0-1"}}, "")
    assert (fields.integer("n", low=-1), fields.seconds("s"), fields.boolean("t")) == (-1, 2.0, True)
    assert list(fields.items("l")) == [(1, "l[0]"), (2, "l[1]")]
    assert str(fields.mapping("m", decode_set)["x"]) == "0-1"
    assert fields.maybe("gone", decode_set) is None
    assert (fields.has("n"), fields.has("gone")) == (True, False)


@pytest.mark.parametrize("key", ["", "x", "-1", "01", "1.0", "٣", "1234567"])
def test_a_numa_node_is_a_plain_number(key: str) -> None:
    with pytest.raises(FieldError, match="the key must be the number of a NUMA node"):
        numbered({key: "0"}, "nodes", decode_set)


def test_numbers_of_numa_nodes_are_keys() -> None:
    assert list(numbered({"0": "0", "999999": "1"}, "nodes", decode_set)) == [0, 999999]


def test_devices_come_back_as_they_were() -> None:
    devices = PodDevices({"c": {"x/y": (0b101, 0)}}, {"x/y": (0b101, 0, 0b10)})
    assert encode_devices(devices) == {
        "containers": {"c": {"x/y": [[0, 2], []]}},
        "allocatable": {"x/y": [[0, 2], [], [1]]},
    }
    assert decode_devices(encode_devices(devices), "devices") == devices
    last = {"containers": {}, "allocatable": {"x/y": [[MAX_NODES - 1]]}}
    assert encode_devices(decode_devices(last, "devices")) == last


@pytest.mark.parametrize(
    ("allocatable", "why"),
    [
        ({"x/y": 1}, "devices.allocatable.x/y: a list of devices is expected"),
        ({"x/y": [1]}, "devices.allocatable.x/y[0]: a list of NUMA nodes is expected"),
        ({"x/y": [[], [-1]]}, "devices.allocatable.x/y[1][0]: an integer of 0 or more is expected"),
        ({"x/y": [[MAX_NODES]]}, "devices.allocatable.x/y[0]: a NUMA node above 1023"),
    ],
)
def test_devices_in_another_form_are_named_by_their_place(allocatable: object, why: str) -> None:
    with pytest.raises(FieldError) as refusal:
        decode_devices({"containers": {}, "allocatable": allocatable}, "devices")
    assert why in str(refusal.value)
