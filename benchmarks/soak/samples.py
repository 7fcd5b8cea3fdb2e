"""What /proc says of a process, every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.big_node import cpu_ms, precise_cpu_ms, resident_mib, switches
from benchmarks.soak.named_agent import asked_blocks
from benchmarks.soak.trend import Trend, trend

BLOCKS = "Python's memory blocks"
_MEMORY = "resident memory"
# growth of this size is none; blocks: of pods that are there at the moment, and of garbage that waits for the collector
_GRAINS = {_MEMORY: 1.5, BLOCKS: 5000.0, "file descriptors": 2.0, "threads": 1.0}


@dataclass
class Series:
    """Samples of one process. name: of the process. A process that ended leaves what was sampled. blocks: where it says how many
    blocks of memory Python holds, asked by a signal; None for one that does not know the signal. room: how many MiB may come in
    the warm-up; None for any, as of a process that is seen from its first moment on.
    """

    name: str
    pid: int
    began: float
    blocks: Path | None = None
    room: float | None = None
    values: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

    def sample(self, now: float) -> None:
        """Look once. Raises OSError or WrongResultError where the process has ended."""
        seen = {
            _MEMORY: resident_mib(self.pid),
            "file descriptors": float(entries(f"/proc/{self.pid}/fd")),
            "threads": float(entries(f"/proc/{self.pid}/task")),
        }
        if self.blocks is not None and (answered := asked_blocks(self.pid, self.blocks)) is not None:
            seen[BLOCKS] = float(answered)
        for what, value in seen.items():
            self.values.setdefault(what, []).append((now - self.began, value))

    def trends(self, warm_up: float) -> list[Trend]:
        """One per quantity, of what came after the first `warm_up` seconds."""
        lines = (
            trend(
                *(f"{self.name}: {what}", "MiB" if what == _MEMORY else "", samples, _GRAINS[what]),
                warm_up=warm_up,
                room=self.room if what == _MEMORY else None,
            )
            for what, samples in self.values.items()
        )
        return [each for each in lines if each is not None]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process did in a while. woken: times that a thread waited and was woken, per second; pushed: that it was made to
    give up its CPU. cpu: per cent of one.
    """

    seconds: float
    cpu: float
    woken: float
    pushed: float
    by_thread: Mapping[str, float]


def cost(pid: int, seconds: float, wait: Callable[[float], None] = time.sleep) -> Cost:
    """Watch for so long. by_thread: wake-ups per second by the thread's name in the kernel, where there were any."""
    began, cpu, (woken, pushed), threads = time.monotonic(), precise_cpu_ms(pid), switches(pid), _woken_by_thread(pid)
    wait(seconds)
    took = time.monotonic() - began
    cpu_after, (woken_after, pushed_after), after = precise_cpu_ms(pid), switches(pid), _woken_by_thread(pid)
    rates = {name: (count - threads.get(name, 0)) / took for name, count in after.items()}
    return Cost(
        took,
        (cpu_after - cpu) / took / 10,
        (woken_after - woken) / took,
        (pushed_after - pushed) / took,
        {name: rate for name, rate in sorted(rates.items(), key=lambda item: -item[1]) if rate > 0},
    )


def entries(directory: str) -> int:
    """How many a directory has. Raises OSError."""
    return sum(1 for _ in Path(directory).iterdir())


def busy(pid: int) -> float:
    """Seconds of CPU so far, of threads that have ended too."""
    return cpu_ms(pid) / 1000


def _woken_by_thread(pid: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in Path(f"/proc/{pid}/task").glob("*"):
        lines = dict(line.split(":", 1) for line in (path / "status").read_text().splitlines())
        name = f"{lines['Name'].strip()} {path.name if path.name != str(pid) else 'main'}"
        found[name] = int(lines["voluntary_ctxt_switches"])
    return found
