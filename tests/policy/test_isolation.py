"""The isolation gap of a change, and drift between two looks."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Observed, Settings
from agent.policy.isolation import Drift, drift, isolation_gap
from agent.policy.pins import Pin, Step

DB, WEB, JOB = (ContainerCgroup("u", name) for name in ("db", "web", "job"))
MINE = CPUSet.parse("1-2")


def shrink(key: ContainerCgroup, held: str, cpus: str) -> Pin:
    return Pin(key, Step.SHRINK, Settings(cpus=CPUSet.parse(cpus)), held=CPUSet.parse(held))


def grant(held: str) -> Pin:
    return Pin(DB, Step.GRANT, Settings(cpus=MINE), own=MINE, held=CPUSet.parse(held))


@pytest.mark.parametrize(
    ("timeline", "gap"),
    [
        pytest.param([(shrink(WEB, "0-3", "0,3"), 10.1), (grant("0"), 10.2)], 0.0, id="none when others left before"),
        pytest.param([(grant("0"), 10.1), (shrink(WEB, "0-3", "0,3"), 10.5)], 0.4, id="from grant to leaving"),
        pytest.param([(shrink(WEB, "0-3", "0,3"), 10.25)], 0.25, id="drift mended: from the start of the change"),
        pytest.param(
            [(shrink(WEB, "0-1", "0"), 10.25), (shrink(JOB, "0-3", "0,3"), 10.5)], 0.5, id="the last one to leave"
        ),
        pytest.param(
            [(shrink(WEB, "0-3", "0,3"), None), (grant("0"), 10.2)], 0.0, id="none can be told where a write failed"
        ),
        pytest.param([(shrink(WEB, "0,3", "0"), 10.3)], 0.0, id="leaving a shared CPU is no gap"),
        pytest.param([], 0.0, id="nothing to do"),
    ],
)
def test_isolation_gap(timeline: list[tuple[Pin, float | None]], gap: float) -> None:
    assert isolation_gap(MINE, timeline, 10.0) == pytest.approx(gap)


WROTE = Settings(cpus=MINE, mems=1, quota_us=NO_LIMIT, shares=512, memory_bytes=4096)
RIGHT = Observed(MINE, MINE, 1, NO_LIMIT, 512, None, 4096)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        pytest.param(RIGHT, [], id="as written"),
        pytest.param(Observed(MINE, MINE, 1), [], id="absent files do not drift"),
        pytest.param(
            Observed(CPUSet.parse("0-3"), CPUSet.parse("0-3"), 1, NO_LIMIT, 512, None, 4096),
            [("cpus", "1-2", "0-3", "unknown")],
            id="another set",
        ),
        pytest.param(
            Observed(CPUSet(), CPUSet.parse("0-3"), 0, NO_LIMIT, 512, None, 4096),
            [("cpus", "1-2", "0-3 (inherited)", "systemd"), ("mems", "0", "", "systemd")],
            id="reset to inherit by a daemon-reload",
        ),
        pytest.param(
            Observed(MINE, CPUSet.parse("1"), 1, NO_LIMIT, 512, None, 4096),
            [("cpus", "1-2", "1", "kernel")],
            id="a CPU went offline",
        ),
        pytest.param(
            Observed(MINE, MINE, 1, 200_000, 512, None, 4096),
            [("quota", "-1", "200000", "kubelet")],
            id="the quota of the spec came back",
        ),
        pytest.param(
            Observed(MINE, MINE, 1, NO_LIMIT, None, 5, 8192),
            [("shares", "512", "weight 5", "unknown"), ("memory", "4096", "8192", "unknown")],
            id="weight and memory",
        ),
    ],
)
def test_drift_names_what_changed_and_who_probably_did_it(seen: Observed, expected: list[tuple[str, ...]]) -> None:
    assert drift({DB: WROTE}, {DB: seen}) == tuple(Drift(DB, *each) for each in expected)


def test_what_is_gone_or_was_never_written_has_not_drifted() -> None:
    assert drift({DB: WROTE}, {WEB: Observed(CPUSet.parse("0-7"), CPUSet.parse("0-7"))}) == ()
    assert drift({DB: Settings(cpus=MINE)}, {DB: Observed(MINE, MINE, 3, 5, 7, None, 9)}) == ()
