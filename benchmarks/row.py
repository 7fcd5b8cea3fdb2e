"""One row of the table: what was measured, what beside it, what it should be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from benchmarks.figure import Figure

KUBELET = "kubelet 1.36.2"
KAI = "KAI-Scheduler 0.18"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A figure that a Go program left on a machine of the same kind, on another day, under load: a reference, not a race."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Reference:
    """Another way to do the same, measured in the same run. name: which."""

    name: str
    figure: Figure


@dataclass(frozen=True, slots=True)
class Target:
    """What a row should be. statistic: which of the measured values counts, and it is met up to and with `limit`."""

    text: str
    statistic: str
    limit: float

    def met(self, figure: Figure) -> bool:
        return figure.at(self.statistic) <= self.limit

    def missed_by(self, figure: Figure) -> float:
        """How many times the limit the measured value is."""
        return figure.at(self.statistic) / self.limit


@dataclass(frozen=True, slots=True)
class Row:
    """unit: of all its figures. compared: which statistic a ratio to the reference and to the Go figure is made of."""

    what: str
    measured: Figure
    unit: str = "ms"
    reference: Reference | None = None
    recorded: Recorded | None = None
    target: Target | None = None
    compared: str = "least"

    @property
    def met(self) -> bool | None:
        """None where there is no target."""
        return None if self.target is None else self.target.met(self.measured)

    @property
    def reference_ratio(self) -> float | None:
        """How many times as much the reference takes."""
        return None if self.reference is None else _ratio(self.reference.figure.at(self.compared), self._own)

    @property
    def recorded_ratio(self) -> float | None:
        """How many times as much the Go program took."""
        return None if self.recorded is None else _ratio(self.recorded.value, self._own)

    @property
    def _own(self) -> float:
        return self.measured.at(self.compared)

    def encode(self) -> dict[str, Any]:
        reference, recorded, target = self.reference, self.recorded, self.target
        return {
            "what": self.what,
            "unit": self.unit,
            "measured": self.measured.encode(),
            "compared": self.compared,
            "reference": reference and {"name": reference.name, "figure": reference.figure.encode()},
            "recorded": recorded and {"value": recorded.value, "source": recorded.source},
            "target": target and {"text": target.text, "statistic": target.statistic, "limit": target.limit},
            "met": self.met,
        }

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> Self:
        """The row that `encode` made this of."""
        reference, recorded, target = fields["reference"], fields["recorded"], fields["target"]
        return cls(
            fields["what"],
            Figure(**fields["measured"]),
            fields["unit"],
            reference and Reference(reference["name"], Figure(**reference["figure"])),
            recorded and Recorded(**recorded),
            target and Target(**target),
            fields["compared"],
        )


def _ratio(other: float, own: float) -> float | None:
    return other / own if own else None
