"""The rate limit, on a clock of the test's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.serve.token_bucket import RateLimit, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_full_bucket_allows_a_burst_and_then_refuses() -> None:
    bucket = TokenBucket(RateLimit(100.0, 10), Clock())
    assert [bucket.take() for _ in range(12)] == [True] * 10 + [False] * 2


def test_a_token_comes_back_after_its_share_of_a_second() -> None:
    clock = Clock()
    bucket = TokenBucket(RateLimit(100.0, 1), clock)
    assert bucket.take()
    clock.now += 0.009
    assert not bucket.take()
    clock.now += 0.002
    assert bucket.take()


def test_a_long_rest_saves_no_more_than_a_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(RateLimit(100.0, 3), clock)
    clock.now += 3600
    assert [bucket.take() for _ in range(5)] == [True, True, True, False, False]


@given(st.lists(st.floats(0, 0.5), max_size=60), st.integers(1, 20), st.floats(0.5, 200))
def test_never_more_than_the_burst_and_the_rate_together(pauses: list[float], burst: int, rate: float) -> None:
    clock = Clock()
    bucket = TokenBucket(RateLimit(rate, burst), clock)
    allowed = 0
    for pause in pauses:
        clock.now += pause
        allowed += bucket.take()
    assert allowed <= burst + rate * sum(pauses) + 1e-6
