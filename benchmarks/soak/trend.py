"""A straight line through samples, with an error that is worth its name, and whether something grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean, median
from typing import Any

Samples = Sequence[tuple[float, float]]  # seconds, value

BLOCKS = 12  # neighbouring samples are no independent ones: the line goes through the medians of so many stretches
_FEWEST = 3
_ERRORS = 2.8  # 99 % of a t distribution with 10 degrees of freedom, one side
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Trend:
    """What one quantity did. start: its very first sample; first: the first one after the warm-up, where the line begins.

    slope, error: per hour, of the line and its standard error. grain: growth along the line that counts as none, in the unit.
    room: how much may come in the warm-up, which the line does not see; None for any. points: that the line goes through.
    """

    what: str
    unit: str
    start: float
    first: float
    last: float
    most: float
    slope: float
    error: float
    seconds: float
    grain: float
    warm_up: float
    room: float | None = None
    points: Samples = ()

    @property
    def growth(self) -> float:
        """By how much the line rose from the first sample to the last."""
        return self.slope * self.seconds / HOUR

    @property
    def growing(self) -> bool:
        return self.slope > _ERRORS * self.error and self.growth > self.grain

    @property
    def overfull(self) -> bool:
        """Whether more came in the warm-up than what fills then has room for."""
        return self.room is not None and self.first - self.start > self.room

    def encode(self) -> dict[str, Any]:
        names = (
            "what",
            "unit",
            "start",
            "first",
            "last",
            "most",
            "slope",
            "error",
            "seconds",
            "grain",
            "warm_up",
            "room",
            "growth",
            "growing",
            "overfull",
            "points",
        )
        return {name: getattr(self, name) for name in names}


def trend(
    what: str, unit: str, samples: Samples, grain: float, *, warm_up: float = 0.0, room: float | None = None
) -> Trend | None:
    """Fit one. warm_up: seconds from the first sample on that are no part of the line. None where too few samples follow them."""
    kept = [(time, value) for time, value in samples if time - samples[0][0] >= warm_up]
    if len(kept) < _FEWEST:
        return None
    blocks = _blocks(kept)
    slope, error = _line(blocks)
    seconds = kept[-1][0] - kept[0][0]
    values = [value for _, value in kept]
    return Trend(
        what,
        unit,
        start=samples[0][1],
        first=values[0],
        last=values[-1],
        most=max(values),
        slope=slope * HOUR,
        error=error * HOUR,
        seconds=seconds,
        grain=grain,
        warm_up=warm_up,
        room=room,
        points=blocks,
    )


def _blocks(samples: Samples) -> Samples:
    count = min(BLOCKS, len(samples))
    edges = [len(samples) * number // count for number in range(count + 1)]
    cut = [samples[low:high] for low, high in pairwise(edges)]
    return [(fmean(time for time, _ in block), median(value for _, value in block)) for block in cut]


def _line(points: Samples) -> tuple[float, float]:
    """Slope and its standard error, per second, by least squares."""
    middle, height = fmean(time for time, _ in points), fmean(value for _, value in points)
    spread = sum((time - middle) ** 2 for time, _ in points)
    if not spread:
        return 0.0, 0.0
    slope = sum((time - middle) * (value - height) for time, value in points) / spread
    left = sum((value - height - slope * (time - middle)) ** 2 for time, value in points)
    return slope, sqrt(left / max(len(points) - 2, 1) / spread)
