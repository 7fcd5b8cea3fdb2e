"""Which benchmarks and curves there are, and one run of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Self

from agent.errors import AgentError
from benchmarks.curve import Curve
from benchmarks.figure import Scale
from benchmarks.machine import MachineNote
from benchmarks.problems import CannotRunError, WrongResultError
from benchmarks.row import Row

BENCHMARKS = {
    "take_cpus": "picking CPUs",
    "hints": "NUMA hints and their merge",
    "admission": "admission of a pod, state write included",
    "state_write": "one durable state write",
    "enforce": "from a change to written cpusets (root)",
    "podresources": "PodResources over a unix socket",
    "restart": "restart until ready, nothing moved",
    "idle": "memory, CPU and wake-ups of an idle agent",
    "idle_beside": "wake-ups of an idle agent beside a kubelet, and of an idle accountant",
    "queue_rules": "queue rules and accounting (CPU time)",
    "accountant": "the queue accountant as a process",
}
CURVES = {
    "cpus": "CPUs, 16 to 1,024",
    "numa": "NUMA nodes, 1 to 64",
    "pods": "pods, 10 to 1,000",
    "containers": "containers per pod, 1 to 50",
    "clients": "PodResources clients, 1 to 256",
    "queue_count": "queues, 10 to 10,000",
}


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one benchmark (rows) or of one sweep (curves). before, after: the machine. left_out: why there is nothing."""

    name: str
    rows: tuple[Row, ...]
    curves: tuple[Curve, ...]
    before: MachineNote
    after: MachineNote
    seconds: float
    left_out: str = ""

    @property
    def about(self) -> str:
        return {**BENCHMARKS, **CURVES}.get(self.name, self.name)

    def encode(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "rows": [row.encode() for row in self.rows],
            "curves": [curve.encode() for curve in self.curves],
            "before": self.before.encode(),
            "after": self.after.encode(),
            "seconds": round(self.seconds, 1),
            "leftOut": self.left_out,
        }

    @classmethod
    def decode(cls, name: str, fields: dict[str, Any]) -> Self:
        """The run that `encode` made this of."""
        return cls(
            name,
            tuple(map(Row.decode, fields["rows"])),
            tuple(map(Curve.decode, fields["curves"])),
            MachineNote(**fields["before"]),
            MachineNote(**fields["after"]),
            fields["seconds"],
            fields["leftOut"],
        )


def run(name: str, scale: Scale, clock: Callable[[], float], said: Callable[[Row], None] = lambda row: None) -> Run:
    """Run one benchmark or sweep. said: told every row as it comes. Raises WrongResultError."""
    before, began = MachineNote.now(), clock()
    rows, curves, left_out = list[Row](), list[Curve](), ""
    try:
        for each in _measuring(name, scale):
            if isinstance(each, Row):
                rows.append(each)
                said(each)
            else:
                curves.append(each)
    except CannotRunError as reason:
        left_out = str(reason)
    except AgentError as error:
        raise WrongResultError(str(error)) from error
    return Run(name, tuple(rows), tuple(curves), before, MachineNote.now(), clock() - began, left_out)


def _measuring(name: str, scale: Scale) -> Iterator[Row | Curve]:
    if name in BENCHMARKS:
        yield from import_module(f"benchmarks.bench_{name}").rows(scale)
    else:
        yield from import_module(f"benchmarks.growth_{name}").curves(scale)
