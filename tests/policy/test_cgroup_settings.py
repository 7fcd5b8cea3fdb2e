"""Conversions between CPUs, shares, weight and quota: the kubelet's, with the values a real node showed."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.policy.cgroup_settings import (
    NO_LIMIT,
    Observed,
    Settings,
    quota_of,
    shares_differ,
    shares_of,
    weight_of,
)


@pytest.mark.parametrize(
    ("millis", "shares", "weight"),
    [(0, 2, 1), (1, 2, 1), (100, 102, 4), (500, 512, 20), (2000, 2048, 79), (2500, 2560, 98), (10**6, 262_144, 10_000)],
)
def test_a_request_becomes_shares_and_weight(millis: int, shares: int, weight: int) -> None:
    assert shares_of(millis) == shares
    assert weight_of(shares) == weight


@pytest.mark.parametrize(("millis", "quota"), [(1, 1000), (10, 1000), (15, 1500), (500, 50_000), (1500, 150_000)])
def test_a_limit_becomes_a_quota_that_the_kernel_takes(millis: int, quota: int) -> None:
    assert quota_of(millis) == quota


def test_settings_say_whether_they_say_anything_and_later_ones_win() -> None:
    assert not Settings()
    assert Settings(shares=2)
    assert Settings(quota_us=NO_LIMIT)
    first = Settings(cpus=CPUSet.parse("0-3"), shares=2)
    assert first.overlaid(Settings(cpus=CPUSet.parse("1"), mems=1)) == Settings(CPUSet.parse("1"), 1, None, 2)


@pytest.mark.parametrize(
    ("seen", "shares", "differ"),
    [
        (Observed(shares=512), 512, False),
        (Observed(shares=512), 513, True),
        (Observed(weight=20), 512, False),
        (Observed(weight=20), 1024, True),
        (Observed(), 512, False),
        (Observed(shares=512), None, False),
    ],
)
def test_shares_are_compared_in_the_units_of_the_hierarchy(seen: Observed, shares: int | None, differ: bool) -> None:
    assert shares_differ(seen, shares) is differ
