"""Records of any shape: an input or a want that cannot be is answered, and never the end of the run."""

from __future__ import annotations

import pytest

from agent.replay.check import Tally, check, compare
from agent.replay.context import Context
from agent.replay.kinds import handler
from agent.replay.runner import answer, answers

KINDS = (
    *("topology", "take_cpus", "topology_hints", "admission", "startup", "checkpoint", "effective_requests", "pod_qos"),
    *("fair_share", "reclaimable", "queue_order", "resize_admission", "capacity_policy"),
)
FIELDS = ("topology", "cpus", "available", "n", "call", "config", "ops", "pod", "options", "file", "queues", "request")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("want", [5, "x", [], [[1]], {"init": 1}, {"error": 7}, {"ops": {}}, {"fairShare": {"q": 1}}])
@pytest.mark.parametrize("output", [{}, {"error": "e"}, {"ops": [{}]}, {"delta": {"cpu": "1"}}, {"cpus": "0"}])
def test_no_want_ends_the_run(kind: str, want: object, output: dict[str, object]) -> None:
    assert handler(kind) is not None
    tally = Tally()
    check({"kind": kind, "id": "x", "input": {}, "want": want}, {"kind": kind, "id": "x", "output": output}, tally)
    assert tally.ok + tally.differ + tally.known == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [None, 1e308, float("inf"), 10**30, "9e99", [[]], {"": None}])
def test_no_input_ends_the_run(kind: str, value: object) -> None:
    line = answer({"kind": kind, "id": "x", "input": dict.fromkeys(FIELDS, value)}, Context())
    assert "error" in line or "output" in line


def test_a_queue_with_a_number_beyond_all_bounds_costs_its_record_only() -> None:
    queue = {"name": "q", "gpu": {"allocatedNonPreemptible": float("inf")}}
    record = {"kind": "capacity_policy", "id": "x", "input": {"queues": [queue], "job": {"queue": "q"}}}
    assert "Error" in str(answer(record, Context()))


def test_a_line_that_is_not_utf_8_is_named() -> None:
    ((record, line),) = answers(["\udcff\udcfe\n"], Context())
    assert (record, line["error"]) == (None, "not UTF-8")


def test_integers_count_exactly_and_floats_within_a_billionth() -> None:
    assert compare(34359738368, 34359738369) is not None
    assert compare(34359738368.5, 34359738368) is None
    assert compare(2.1, 2) is not None


def test_shares_are_floats_also_where_they_are_written_without_a_point() -> None:
    record = {"kind": "fair_share", "id": "x", "want": {"fairShare": {"q": {"memory": 34359738368}}}}
    for have, right in ((34359738369, True), (34359739368, False)):
        line = {"kind": "fair_share", "id": "x", "output": {"fairShare": {"q": {"memory": have}}}}
        assert (check(record, line, Tally()) is None) is right


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "a record is a JSON object, not list"),
        ('{"kind": "weather", "id": 7}', "unknown kind 'weather'"),
        ('{"id": 7}', "unknown kind None"),
        ('{"kind": "pod_qos", "id": 7}', "input is missing or not an object"),
        ('{"kind": "pod_qos", "id": 7, "input": []}', "input is missing or not an object"),
    ],
)
def test_a_line_that_is_no_record_is_answered_with_what_is_wrong_and_the_next_one_is_read(
    text: str, error: str
) -> None:
    good = '{"kind": "pod_qos", "id": 8, "input": {"pod": {"metadata": {"name": "p"}, "spec": {"containers": []}}}}'
    lines = [line for _, line in answers([text, "  \n", good], Context())]
    assert len(lines) == 2
    assert lines[0]["error"].startswith(error)
    assert "error" not in lines[1]


def test_a_line_beyond_all_bounds_is_not_even_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.replay.runner.MAX_LINE_BYTES", 10)
    ((record, line),) = answers(['{"kind": "pod_qos"}'], Context())
    assert (record, line["error"]) == (None, "record longer than 10 bytes")
