"""How something grows: points, and the slope between them on logarithmic scales (1 is linear, 2 is square)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

STEEP = 1.35  # n log n has a slope of 1 + 1/ln n: 1.2 at 100, 1.1 at 10,000; the rest is noise


@dataclass(frozen=True, slots=True)
class Series:
    """One line. points: (size, value), sizes rising."""

    name: str
    points: tuple[tuple[float, float], ...]

    @property
    def slope(self) -> float | None:
        """Exponent of the power law fitted to the upper half of the points; what is fixed hides the growth below. None where
        there are fewer than two.
        """
        return fitted_slope(self.points[-max(3, (len(self.points) + 1) // 2) :])

    @property
    def steep(self) -> bool:
        """Whether it grows faster than n log n."""
        return self.slope is not None and self.slope > STEEP


@dataclass(frozen=True, slots=True)
class Curve:
    """Lines over one size. name: of its file. size: what grows. unit: "ms", "bytes", "1/s" or "MiB", of all lines."""

    name: str
    title: str
    size: str
    unit: str
    series: tuple[Series, ...]

    def encode(self) -> dict[str, Any]:
        series = [
            {"name": each.name, "points": [list(point) for point in each.points], "slope": each.slope}
            for each in self.series
        ]
        return {"name": self.name, "title": self.title, "size": self.size, "unit": self.unit, "series": series}

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> Self:
        """The curve that `encode` made this of."""
        series = tuple(Series(each["name"], tuple((x, y) for x, y in each["points"])) for each in fields["series"])
        return cls(fields["name"], fields["title"], fields["size"], fields["unit"], series)


def fitted_slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Least squares through the logarithms; None for fewer than two sizes."""
    pairs = [(math.log(x), math.log(y)) for x, y in points if x > 0 and y > 0]
    if len({x for x, _ in pairs}) < 2:
        return None
    mean_x, mean_y = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    rise = math.fsum((x - mean_x) * (y - mean_y) for x, y in pairs)
    return rise / math.fsum((x - mean_x) ** 2 for x, _ in pairs)
