"""Kubernetes quantities as exact numbers (apimachinery, resource.Quantity)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Self


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount in base units: CPUs for cpu, bytes for memory and hugepages."""

    number: Fraction

    @classmethod
    def parse(cls, text: str | int | float) -> Self:
        raise NotImplementedError

    def value(self) -> int:
        """The amount rounded up to a whole unit."""
        return -(-self.number.numerator // self.number.denominator)

    def milli_value(self) -> int:
        """The amount in thousandths, rounded up."""
        return -(-self.number.numerator * 1000 // self.number.denominator)
