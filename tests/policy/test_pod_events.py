"""Which changes of a pod's marks become Events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.model.state import Mark, PodRecord
from agent.policy.pod_events import pod_events
from tests.nodes import named
from tests.states import small_state

FULL, OFFLINE = Mark("UnexpectedAdmissionError", "no room"), Mark("CPUsOffline", "CPU 3 is offline")


def record(unplaced: Mark | None = None, degraded: Mark | None = None, source: str = "kubelet") -> PodRecord:
    return PodRecord(named("db"), source=source, unplaced=unplaced, degraded=degraded)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(None, record(), [], id="a pod that fits"),
        pytest.param(None, record(FULL), ["Unplaced! no room"], id="one that does not"),
        pytest.param(record(FULL), record(FULL), [], id="nothing new"),
        pytest.param(record(FULL), record(replace(FULL, message="less room")), [], id="the same reason"),
        pytest.param(record(FULL), record(), ["Placed has what it asked for now"], id="placed"),
        pytest.param(record(), record(degraded=OFFLINE), ["CPUsOffline! CPU 3 is offline"], id="degraded"),
        pytest.param(record(degraded=OFFLINE), record(), ["Restored has all of its CPUs and memory again"], id="well"),
        pytest.param(None, record(FULL, source="manifests"), [], id="not known to the API server"),
        pytest.param(record(FULL), None, [], id="gone"),
    ],
)
def test_pod_events(before: PodRecord | None, after: PodRecord | None, expected: list[str]) -> None:
    states = [replace(small_state(), pods={"db": each} if each is not None else {}) for each in (before, after)]
    found = [f"{each.reason}{'!' if each.warning else ''} {each.message}" for each in pod_events(*states)]
    assert found == expected
