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
_ERRORS = 2.8  # 99 % of a t distribution with 10 degrees of freedom, one side
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Trend:
    """What one quantity did. slope, error: per hour, of the line and its standard error. grain: growth within the samples that
    counts as none, in the unit: what an allocator or a list that fills once takes. points: that the line goes through.
    """

    what: str
    unit: str
    first: float
    last: float
    most: float
    slope: float
    error: float
    seconds: float
    grain: float
    points: Samples = ()

    @property
    def growth(self) -> float:
        """By how much the line rose from the first sample to the last."""
        return self.slope * self.seconds / HOUR

    @property
    def growing(self) -> bool:
        return self.slope > _ERRORS * self.error and self.growth > self.grain

    def encode(self) -> dict[str, Any]:
        names = (
            "what",
            "unit",
            "first",
            "last",
            "most",
            "slope",
            "error",
            "seconds",
            "grain",
            "growth",
            "growing",
            "points",
        )
        return {name: getattr(self, name) for name in names}


def trend(what: str, unit: str, samples: Samples, grain: float) -> Trend:
    """Fit one. Raises ValueError for fewer than three samples."""
    if len(samples) < 3:
        raise ValueError(f"{what}: {len(samples)} samples make no line")
    blocks = _blocks(samples)
    slope, error = _line(blocks)
    seconds = samples[-1][0] - samples[0][0]
    values = [value for _, value in samples]
    return Trend(what, unit, values[0], values[-1], max(values), slope * HOUR, error * HOUR, seconds, grain, blocks)


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
