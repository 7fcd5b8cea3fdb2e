"""What a soak found, as a table for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.machine import MachineNote
from benchmarks.soak.log_lines import LogKind
from benchmarks.soak.samples import Cost
from benchmarks.soak.trend import Trend
from benchmarks.table import digits

WAKE_UPS = 20.0  # per second; the budget of an idle agent (benchmarks/bench_idle.py)
IDLE_CPU = 0.5  # per cent of one CPU, as there


@dataclass(frozen=True, slots=True)
class Part:
    """One soak. done: what was done and seen, by name. idle: what a process cost that had nothing to do, by its name. wrong: what
    must not be, one sentence each, beside what the numbers say. notes: what could not be tried here.
    """

    name: str
    before: MachineNote
    after: MachineNote
    seconds: float
    done: Mapping[str, int]
    trends: Sequence[Trend]
    logs: Mapping[str, Sequence[LogKind]] = field(default_factory=dict)
    idle: Mapping[str, Cost] = field(default_factory=dict)
    cpu: Mapping[str, float] = field(default_factory=dict)
    wrong: Sequence[str] = ()
    notes: Sequence[str] = ()

    def verdicts(self) -> list[str]:
        """All that is not as it should be."""
        return [
            *self.wrong,
            *(f"{each.what} grows" for each in self.trends if each.growing),
            *(
                f"{each.what} rises by {each.first - each.start:.1f} {each.unit} while it warms up, more than {each.room:g}"
                for each in self.trends
                if each.overfull
            ),
            *(
                f"{name} storms: {kind.lines} lines {kind.event!r} for {kind.causes} causes"
                for name, kinds in self.logs.items()
                for kind in kinds
                if kind.storm
            ),
            *(
                f"{name} wakes up {cost.woken:.0f}/s when idle"
                for name, cost in self.idle.items()
                if cost.woken > WAKE_UPS
            ),
            *(f"{name} uses {cost.cpu:.2f} % when idle" for name, cost in self.idle.items() if cost.cpu > IDLE_CPU),
        ]

    def encode(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "before": self.before.encode(),
            "after": self.after.encode(),
            "seconds": round(self.seconds, 1),
            "done": dict(sorted(self.done.items())),
            "trends": [each.encode() for each in self.trends],
            "logs": {name: [kind.encode() for kind in kinds] for name, kinds in self.logs.items()},
            "idle": {
                name: {
                    "seconds": each.seconds,
                    "cpuPercent": each.cpu,
                    "wakeUpsPerSecond": each.woken,
                    "forcedPerSecond": each.pushed,
                    "byThread": dict(each.by_thread),
                }
                for name, each in self.idle.items()
            },
            "cpuPercent": dict(self.cpu),
            "notes": list(self.notes),
            "wrong": self.verdicts(),
        }


def text(part: Part) -> str:
    """The part as lines for a terminal."""
    return "\n".join(_lines(part))


def _lines(part: Part) -> Iterator[str]:
    yield f"\n{part.name}\n{part.before}; load {part.after.load} at its end; {part.seconds:.0f} s"
    yield from part.notes
    yield "done: " + ", ".join(f"{count} {name}" for name, count in sorted(part.done.items()))
    rows = [("what", "start", "warm", "last", "most", "per hour", "error", "")]
    for each in part.trends:
        values = (f"{digits(value)} {each.unit}".strip() for value in (each.start, each.first, each.last, each.most))
        slope, error = f"{each.slope:+.3g}", f"±{each.error:.2g}"
        rows.append((each.what, *values, slope, error, "GROWS" if each.growing else "flat"))  # type: ignore[arg-type]
    yield from _columns(rows)
    warm_ups = sorted({round(each.warm_up) for each in part.trends})
    if warm_ups:
        left = " and ".join(f"{seconds} s" for seconds in warm_ups)
        yield f"warm after {left}; lines begin there; what fills before: start to warm"
    for name, share in part.cpu.items():
        yield f"{name}: {share:.1f} % of a CPU under this load"
    for name, kinds in part.logs.items():
        total = sum(kind.lines for kind in kinds)
        yield f"{name}: {total} log lines, {60 * total / part.seconds:.1f} a minute"
        head = ("  event", "level", "lines", "causes", "")
        table = [(f"  {k.event}", k.level, str(k.lines), str(k.causes), "STORM" if k.storm else "") for k in kinds]
        yield from _columns([head, *table])
    for name, cost in part.idle.items():
        yield (
            f"{name}, idle for {cost.seconds:.0f} s: {cost.woken:.2f} wake-ups/s, {cost.cpu:.3f} % of a CPU, "
            f"{cost.pushed:.2f} forced switches/s"
        )
        yield "  by thread: " + ", ".join(f"{thread} {rate:.2f}" for thread, rate in cost.by_thread.items())
    verdicts = part.verdicts()
    yield "all flat, no storm, quiet when idle" if not verdicts else "WRONG:\n  " + "\n  ".join(verdicts)


def _columns(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
