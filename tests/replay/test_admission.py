"""Scenarios of pods that come and go: our own, rule by rule, and the recorded ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answer
from tests.replay.recorded import RECORDS, differences, ids, lines
from tests.shared import KUBELET

OURS = RECORDS / "admission.jsonl"
ADMITTED = {"op": "admit", "pod": {"metadata": {"uid": "a", "name": "a"}, "spec": {"containers": [{"name": "c"}]}}}
MACHINE = {"cpus": [{"id": cpu, "core": cpu, "socket": 0, "numa": 0} for cpu in range(4)], "numa_memory": {"0": {}}}
STATIC = {"cpu_policy": "static", "reserved_cpus": "0", "memory_policy": "None"}


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """Our own records by id, with the difference that `check` finds."""
    context, found = Context(), {}
    for text in lines(OURS):
        record = json.loads(text)
        found[record["id"]] = check(record, answer(record, context), Tally())
    return found


@pytest.mark.parametrize("name", ids(OURS, "admission"))
def test_a_rule_holds(name: str, ours: dict[str, Any]) -> None:
    assert ours[name] is None


def replayed(*ops: dict[str, Any], **config: Any) -> dict[str, Any]:
    record_input = {"topology": MACHINE, "config": {**STATIC, **config}, "ops": list(ops)}
    line = answer({"kind": "admission", "id": "x", "input": record_input}, Context())
    output = line.get("output", line)
    assert isinstance(output, dict)
    return output


def test_a_configuration_that_does_not_start_gives_an_error_and_an_outcome_for_every_op() -> None:
    output = replayed(ADMITTED, {"op": "reconcile"}, cpu_policy="dynamic")
    assert output["error"] == output["init"]["error"] == 'unknown policy: "dynamic"'
    assert output["ops"] == [{}, {}]


def test_while_the_agent_is_down_pods_are_refused_and_ends_are_remembered() -> None:
    down = {"op": "restart", "readmit": True, "config": {"cpu_policy": "dynamic"}}
    up = {"op": "restart", "readmit": True, "config": {"cpu_policy": "static"}}
    ended = {"op": "remove", "uid": "a"}
    first, boot, refused, silent, again = replayed(ADMITTED, down, ADMITTED, ended, up)["ops"]
    assert first["admitted"]
    assert boot["boot"]["stage"] == "cpu_manager_new"
    assert (refused["admitted"], refused["reason"]) == (False, "NotStarted")
    assert silent == {}
    assert again["readmitted"] == []


def test_an_op_that_does_not_exist_is_a_bad_record() -> None:
    assert "unknown op 'evict'" in replayed({"op": "evict"})["error"]


@pytest.mark.shared
@pytest.mark.parametrize(
    "name", ["admission", "admission_podlevel", "admission_irregular", "admission_podlevel_irregular"]
)
def test_recorded_scenarios_come_out_as_wanted(name: str) -> None:
    tally, found = differences(KUBELET / f"{name}.jsonl.gz")
    assert found == []
    assert tally.known == 0
    assert tally.ok > 30
