"""Records of kind `topology_hints`: their forms here, and the recorded ones beside the repository."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import BadInputError
from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answer
from agent.replay.topology_hints import replay
from tests.shared import KUBELET, records

TWO_NODES = {"cpus": [{"id": cpu, "core": cpu, "socket": cpu // 2, "numa": cpu // 2} for cpu in range(4)]}


def one_node(free: int, assignments: int = 0, cells: tuple[int, ...] = (0,)) -> dict[str, Any]:
    table = {"total": 8, "systemReserved": 0, "allocatable": 8, "reserved": 8 - free, "free": free}
    return {"numberOfAssignments": assignments, "cells": list(cells), "memoryMap": {"memory": table}}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(
            {
                "call": "cpu_hints",
                "topology": TWO_NODES,
                "available": "1-3",
                "reusable": "",
                "n": 2,
                "align_by_socket": False,
            },
            {"hints": [{"nodes": [1], "preferred": True}, {"nodes": [0, 1], "preferred": False}]},
            id="cpu_hints",
        ),
        pytest.param(
            {
                "call": "cpu_hints",
                "topology": TWO_NODES,
                "available": "",
                "reusable": "",
                "n": 2,
                "align_by_socket": False,
            },
            {"hints": []},
            id="cpu_hints, impossible",
        ),
        pytest.param(
            {
                "call": "memory_hints",
                "machine_state": {"0": one_node(2, assignments=1), "1": one_node(8, cells=(1,))},
                "request": {"memory": 4},
                "reusable": {"0": {"memory": 2}},
            },
            {"hints": {"memory": [{"nodes": [0], "preferred": True}, {"nodes": [1], "preferred": True}]}},
            id="memory_hints",
        ),
        pytest.param(
            {"call": "memory_hints", "machine_state": {"0": one_node(2)}, "request": {"memory": 4}},
            {"hints": {}},
            id="memory_hints, none",
        ),
        pytest.param(
            {
                "call": "merge",
                "numa_nodes": [0, 2],
                "policy": "restricted",
                "providers": [None, {"cpu": [{"nodes": [2], "preferred": True}], "gpu": None}],
            },
            {"best": {"nodes": [2], "preferred": True}, "admit": True, "exact": True},
            id="merge",
        ),
        pytest.param(
            {
                "call": "merge",
                "numa_nodes": [0, 1],
                "policy": "single-numa-node",
                "options": {},
                "distances": None,
                "providers": [{"cpu": [], "gpu": [{"nodes": None, "preferred": True}]}],
            },
            {"best": {"nodes": None, "preferred": False}, "admit": False, "exact": True},
            id="merge, any node",
        ),
        pytest.param(
            {"call": "merge", "numa_nodes": [0], "policy": "restricted", "options": {"foo": "1"}, "providers": []},
            {"new_error": 'unknown Topology Manager Policy option: "foo"'},
            id="merge, refused at start",
        ),
    ],
)
def test_a_call_is_answered_in_the_form_of_its_record(record: dict[str, Any], expected: dict[str, Any]) -> None:
    assert replay(record, Context()) == expected


def test_an_unknown_call_is_named() -> None:
    with pytest.raises(BadInputError, match="unknown call 'guess'"):
        replay({"call": "guess"}, Context())


@pytest.mark.shared
def test_the_recorded_hints_and_merges_are_reproduced() -> None:
    context, tally = Context(), Tally()
    differences = []
    for record in records(KUBELET / "topology_hints.jsonl.gz"):
        difference = check(record, answer(record, context), tally)
        if difference is not None:
            differences.append(difference)
    assert differences == []
    assert tally.ok > 5000
