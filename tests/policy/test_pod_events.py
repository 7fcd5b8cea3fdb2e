"""Which changes of a pod's marks become Events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from agent.model.state import Mark, PodRecord
from agent.policy.pod_events import PodEvents
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
    assert told(before, after) == [expected]


def told(first: PodRecord | None, *then: PodRecord | None) -> list[list[str]]:
    """What is told of one pod, record after record."""
    states = [replace(small_state(), pods={"db": each} if each is not None else {}) for each in (first, *then)]
    events = PodEvents(states[0])
    return [
        [f"{each.reason}{'!' if each.warning else ''} {each.message}" for each in events.look(state)]
        for state in states[1:]
    ]


@pytest.mark.parametrize(
    "marked",
    [
        pytest.param(lambda mark: record(unplaced=mark), id="unplaced"),
        pytest.param(lambda mark: record(degraded=mark), id="degraded"),
    ],
)
def test_reasons_that_take_turns_are_told_once_each_until_all_is_well_or_the_pod_is_gone(
    marked: Callable[[Mark], PodRecord],
) -> None:
    full, elsewhere = marked(FULL), marked(Mark("TopologyAffinityError", "not on one node"))
    assert [len(each) for each in told(None, full, elsewhere, full, elsewhere)] == [1, 1, 0, 0]
    assert [len(each) for each in told(full, elsewhere, full)] == [1, 0]  # the first was told by the process before
    assert [len(each) for each in told(None, full, record(), full)] == [1, 1, 1]
    assert [len(each) for each in told(None, full, None, full)] == [1, 0, 1]


def test_what_is_told_of_one_mark_says_nothing_of_the_other() -> None:
    assert [len(each) for each in told(None, record(FULL), record(FULL, FULL), record(degraded=FULL))] == [1, 1, 1]
