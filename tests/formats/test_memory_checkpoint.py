"""memory_manager_state: verdicts, the content as a value, every version there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.checkpoint import CheckpointError, Verdict
from agent.formats.memory_checkpoint import (
    MemoryVersion,
    memory_state,
    read_memory_checkpoint,
    write_memory_checkpoint,
)
from agent.model.numa import MAX_NODES
from agent.model.state import MemoryBlock, MemoryState, MemoryTable, NUMANodeState

STATE = MemoryState(
    {
        node: NUMANodeState(
            1, 0b11, {"memory": MemoryTable(1000, 100, 900, 300, 600), "hugepages-1Gi": MemoryTable(0, 0, 0, 0, 0)}
        )
        for node in (0, 1)
    },
    {"uid-a": {"app": (MemoryBlock("memory", 600, 0b11), MemoryBlock("hugepages-1Gi", 0, 0b11))}},
    {"uid-a": (MemoryBlock("memory", 600, 0b11),)},
)


def file(version: MemoryVersion, **changes: Any) -> bytes:
    fields = {**json.loads(write_memory_checkpoint("Static", STATE, version)), **changes}
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


@pytest.mark.parametrize("version", [MemoryVersion.V2, MemoryVersion.V3, MemoryVersion.V3_INTERIM])
def test_the_versions_with_bubbles_bring_everything_back(version: MemoryVersion) -> None:
    assert memory_state(read_memory_checkpoint(file(version))) == STATE


def test_v1_brings_everything_but_the_bubbles() -> None:
    assert memory_state(read_memory_checkpoint(file(MemoryVersion.V1))) == MemoryState(STATE.machine, STATE.entries)


names = st.text(min_size=1, max_size=6)
sizes = st.integers(0, (1 << 64) - 1)
masks = st.integers(1, (1 << 40) - 1)
block_lists = st.lists(st.builds(MemoryBlock, names, sizes, masks), max_size=3).map(tuple)
nodes = st.builds(
    NUMANodeState,
    st.integers(0, 99),
    masks,
    st.dictionaries(names, st.builds(MemoryTable, sizes, sizes, sizes, sizes, sizes), max_size=3),
)
states = st.builds(
    MemoryState,
    st.dictionaries(st.integers(0, 63), nodes, max_size=12),
    st.dictionaries(names, st.dictionaries(names, block_lists, min_size=1, max_size=2), max_size=2),
    st.dictionaries(names, block_lists.filter(bool), max_size=2),
)


@given(states)
def test_any_state_comes_back(state: MemoryState) -> None:
    for version in (MemoryVersion.V2, MemoryVersion.V3, MemoryVersion.V3_INTERIM):
        reading = read_memory_checkpoint(write_memory_checkpoint("Static", state, version))
        assert (reading.verdict, memory_state(reading)) == (Verdict.VALID, state)


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        pytest.param(file(MemoryVersion.V1, checksum=0), Verdict.UNVERIFIED, id="checksum zero"),
        pytest.param(file(MemoryVersion.V2, checksum=None), Verdict.UNVERIFIED, id="no checksum"),
        pytest.param(file(MemoryVersion.V3, checksum=None), Verdict.VALID, id="data verified"),
        pytest.param(file(MemoryVersion.V3, data="{}"), Verdict.DAMAGED, id="data edited"),
        pytest.param(file(MemoryVersion.V1, policyName="None"), Verdict.DAMAGED, id="policy edited"),
        pytest.param(file(MemoryVersion.V1, machineState=None), Verdict.DAMAGED, id="machine state dropped"),
        pytest.param(
            file(MemoryVersion.V2, entries={"u": {"c": [{"size": -1}]}}), Verdict.UNREADABLE, id="size negative"
        ),
        pytest.param(file(MemoryVersion.V2, machineState={"a": {}}), Verdict.UNREADABLE, id="a node that is no number"),
        pytest.param(file(MemoryVersion.V2, machineState=[]), Verdict.UNREADABLE, id="machine state a list"),
        pytest.param(
            file(MemoryVersion.V3, checksum=0, dataChecksum=0, data="[]"), Verdict.UNREADABLE, id="data a list"
        ),
        pytest.param(b'{"policyName":"Static"}', Verdict.UNVERIFIED, id="a policy alone"),
    ],
)
def test_verdicts(data: bytes, verdict: Verdict) -> None:
    assert read_memory_checkpoint(data).verdict is verdict


def test_a_null_machine_state_is_not_an_empty_one() -> None:
    data = write_memory_checkpoint("None", MemoryState(), MemoryVersion.V1)
    assert read_memory_checkpoint(data).verdict is Verdict.VALID
    assert read_memory_checkpoint(data.replace(b"{},", b"null,")).verdict is Verdict.DAMAGED


@pytest.mark.parametrize(
    ("machine", "message"),
    [
        ({"0": None}, "NUMA node 0 is null"),
        ({"0": {"memoryMap": {"memory": None}}}, "NUMA node 0 is null or has a null table"),
        ({"0": {"cells": [MAX_NODES]}}, f"NUMA node {MAX_NODES} is not between"),
        ({"-1": {}}, "NUMA node -1 is not between"),
    ],
)
def test_content_that_means_nothing_is_readable_but_gives_no_state(machine: Any, message: str) -> None:
    reading = read_memory_checkpoint(json.dumps({"policyName": "Static", "machineState": machine}).encode())
    assert reading.verdict is Verdict.UNVERIFIED
    with pytest.raises(CheckpointError, match=message):
        memory_state(reading)


def test_the_newest_form_counts_and_a_difference_inline_is_told() -> None:
    reading = read_memory_checkpoint(file(MemoryVersion.V3, checksum=0, entries=None))
    assert reading.inline_differs
    assert memory_state(reading) == STATE
