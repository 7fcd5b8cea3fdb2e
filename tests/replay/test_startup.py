"""Configurations that start and that are refused: our own, and the recorded ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answer
from tests.replay.recorded import RECORDS, differences, ids, lines
from tests.shared import KUBELET

OURS = RECORDS / "startup.jsonl"


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """Our own records by id, with what `check` says and what was counted as known."""
    context, found = Context(), {}
    for text in lines(OURS):
        record = json.loads(text)
        tally = Tally()
        line = answer(record, context)
        found[record["id"]] = (check(record, line, tally), tally.known, line.get("output"), record["want"])
    return found


@pytest.mark.parametrize("name", ids(OURS, "startup"))
def test_a_configuration_starts_or_is_refused(name: str, ours: dict[str, Any]) -> None:
    difference, known, output, want = ours[name]
    assert difference is None
    assert known == (name == "many-nodes")
    if "stage" in want and not known:
        assert output["stage"] == want["stage"]


@pytest.mark.shared
def test_recorded_starts_come_out_as_wanted() -> None:
    tally, found = differences(KUBELET / "startup.jsonl.gz")
    assert found == []
    assert tally.ok > 300
    assert 0 < tally.known < 100
