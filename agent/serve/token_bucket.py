"""A rate limit as the kubelet applies it to PodResources (golang.org/x/time/rate, Allow)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RateLimit:
    """per_second: calls allowed in the long run. burst: calls allowed at once."""

    per_second: float
    burst: int


class TokenBucket:
    """Fills with `per_second` tokens up to `burst`; a call takes one or is refused. Not for more than one thread."""

    def __init__(self, limit: RateLimit, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._tokens = float(limit.burst)
        self._filled_at = clock()

    def take(self) -> bool:
        """Whether one more call is allowed now."""
        now = self._clock()
        self._tokens = min(self._limit.burst, self._tokens + (now - self._filled_at) * self._limit.per_second)
        self._filled_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
