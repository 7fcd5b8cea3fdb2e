"""Devices in a recorded decision: written and read back, and what is no such thing is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.device_facts import decode_devices, encode_devices
from agent.formats.fields import FieldError
from agent.model.devices import PodDevices

_held = st.dictionaries(st.text(max_size=5), st.lists(st.integers(0, (1 << 70) - 1), max_size=3).map(tuple), max_size=3)


@given(st.builds(PodDevices, st.dictionaries(st.text(max_size=5), _held, max_size=3), _held))
def test_what_is_written_is_read_back(devices: PodDevices) -> None:
    assert decode_devices(encode_devices(devices), "devices") == devices


@pytest.mark.parametrize(
    ("value", "where"),
    [
        pytest.param([], "devices", id="no object"),
        pytest.param({"allocatable": {}}, "devices.containers", id="no containers"),
        pytest.param({"containers": {"a": {"gpu": 1}}, "allocatable": {}}, "devices.containers.a.gpu", id="no list"),
        pytest.param(
            {"containers": {}, "allocatable": {"gpu": [1]}}, "devices.allocatable.gpu[0]", id="no list of nodes"
        ),
        pytest.param({"containers": {}, "allocatable": {"gpu": [[-1]]}}, "devices.allocatable.gpu[0][0]", id="no node"),
        pytest.param(
            {"containers": {}, "allocatable": {"gpu": [[1024]]}}, "devices.allocatable.gpu[0]", id="no such node"
        ),
    ],
)
def test_what_is_no_such_thing_is_named(value: object, where: str) -> None:
    with pytest.raises(FieldError) as raised:
        decode_devices(value, "devices")
    assert str(raised.value).startswith(f"{where}: ")
