"""The accountant's clock."""

from __future__ import annotations

import time

import pytest

from agent.serve.steady_clock import steady_clock


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_setting_the_machines_clock_moves_nothing(jump: float) -> None:
    wall, elapsed = [1_000_000.0], [50.0]
    clock = steady_clock(lambda: wall[0], lambda: elapsed[0])
    assert clock() == 1_000_000.0
    wall[0], elapsed[0] = wall[0] + jump, 57.0
    assert clock() == 1_000_007.0


def test_it_is_unix_time_and_never_goes_back() -> None:
    clock = steady_clock()
    assert clock() == pytest.approx(time.time(), abs=60)
    seen = [clock() for _ in range(100)]
    assert seen == sorted(seen)
