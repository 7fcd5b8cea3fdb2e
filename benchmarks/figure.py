"""One figure: what many single operations took (or weighed), and the one place that takes the time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """Of `count` single operations: the least, the middle one, the 99th of a hundred, the most. All in one unit."""

    least: float
    p50: float
    p99: float
    most: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        ordered = sorted(values)
        if not ordered:
            raise ValueError("a figure needs at least one value")
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return cls(ordered[0], statistics.median(ordered), p99, ordered[-1], len(ordered))

    def at(self, statistic: str) -> float:
        """statistic: a field's name."""
        return float({"least": self.least, "p50": self.p50, "p99": self.p99, "most": self.most}[statistic])

    def encode(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Scale:
    """How much to measure. seconds: to repeat a short operation for. quick: the smallest sizes, to see that everything runs."""

    seconds: float
    quick: bool = False

    def pick(self, normal: T, quick: T) -> T:
        return quick if self.quick else normal


NORMAL = Scale(0.3)
QUICK = Scale(0.0, quick=True)


def repeated(
    call: Callable[[], object], seconds: float, *, least: int = 3, clock: Callable[[], float] = time.perf_counter
) -> Figure:
    """Milliseconds of as many calls as fit into so many seconds, and no fewer than `least`.

    clock: seconds; `time.process_time` for the CPU time of this process.
    """
    took: list[float] = []
    until = time.perf_counter() + seconds
    while len(took) < least or time.perf_counter() < until:
        began = clock()
        call()
        took.append((clock() - began) * 1000)
    return Figure.of(took)


def least_cpu(call: Callable[[], object], seconds: float, *, least: int = 3) -> float:
    """Milliseconds of CPU time of the fastest call, for curves: what else runs on the machine bends them least."""
    return repeated(call, seconds, least=least, clock=time.process_time).least


def milliseconds(call: Callable[[], object]) -> float:
    """Milliseconds of wall clock of one call."""
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000
