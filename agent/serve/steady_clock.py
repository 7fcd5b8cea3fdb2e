"""Unix time that passes as time does: who sets the machine's clock forward ends no reservation with it."""

from __future__ import annotations

import time
from collections.abc import Callable


def steady_clock(
    wall: Callable[[], float] = time.time,
    elapsed: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
) -> Callable[[], float]:
    """A clock in Unix seconds, set by `wall` now and driven by `elapsed` from here on; the time a machine sleeps counts."""
    began = wall() - elapsed()
    return lambda: began + elapsed()
