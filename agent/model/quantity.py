"""Kubernetes quantities as exact numbers: "500m" CPUs, "1.5Gi" bytes (apimachinery, resource.Quantity).

Exact means rational: no float ever holds an amount. As in Go an amount has no digits below nano, a finer one is rounded away
from zero ("0.9n" is "1n"), and an amount with a binary suffix is capped at 2^63-1 ("8Ei" is one byte less). Unlike Go
absurd sizes are refused: its int64 accessors wrap around on them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import isfinite

from agent.errors import BadInputError

MAX_TEXT = 128  # characters; the longest sensible spelling has about 40
MAX_WHOLE_DIGITS = 36  # twice what an int64 holds, so that sums of capped amounts still print and parse
MAX_BINARY = 2**63 - 1  # Go's cap for amounts with a binary suffix

_NANO_DIGITS = 9
_SCALES = ("n", "u", "m", "", "k", "M", "G", "T", "P", "E")  # 10^-9, 10^-6, ... 10^18
_DECIMAL = {suffix: 3 * index - _NANO_DIGITS for index, suffix in enumerate(_SCALES)}
_BINARY = {suffix: 10 * (index + 1) for index, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_BINARY_SUFFIXES = ("", *_BINARY)
_TEXT = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i|)")


class QuantityError(BadInputError):
    """A text that is not a quantity, or one of absurd size."""

    hint = "write a number with an optional suffix: 2, 500m, 1.5, 128Mi, 2Gi, 1e9"

    def __init__(self, value: object, why: str = "not a number with an optional suffix") -> None:
        text = repr(value)
        super().__init__(f"invalid quantity {text if len(text) <= 50 else text[:50] + '...'}: {why}")


class QuantityFormat(StrEnum):
    """The family of suffixes in which an amount is printed. It is no part of the amount: 1Ki equals 1024."""

    DECIMAL_SI = "DecimalSI"  # 12M
    BINARY_SI = "BinarySI"  # 12Mi
    DECIMAL_EXPONENT = "DecimalExponent"  # 12e6


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount in base units: CPUs for cpu, bytes for memory and hugepages.

    `str` gives Go's canonical form: no fraction, the largest suffix of the family that loses nothing. Zero is falsy.
    """

    number: Fraction
    format: QuantityFormat = field(default=QuantityFormat.DECIMAL_SI, compare=False)

    @staticmethod
    def parse(text: object) -> Quantity:
        """Read a quantity, a str, int or float, as the API server does; a number is taken as a file would spell it.

        Raises QuantityError for anything else: no digits, unknown suffix, more than MAX_WHOLE_DIGITS before the point.
        """
        if isinstance(text, str):
            return _parse(text)
        if isinstance(text, bool) or not isinstance(text, int | float):
            raise QuantityError(text)
        if isinstance(text, int) and text.bit_length() > 4 * MAX_TEXT:  # str() of a longer one is slow, or fails
            raise QuantityError("an integer of absurd size", f"more than {MAX_WHOLE_DIGITS} digits before the point")
        if isinstance(text, float) and not isfinite(text):
            raise QuantityError(text)
        # the shortest spelling of a float is what its file says: 0.1, not 0.1000000000000000055
        return _parse(repr(text))

    @staticmethod
    def of(number: int | Fraction, format: QuantityFormat = QuantityFormat.DECIMAL_SI) -> Quantity:
        """This number of base units, printed in the given family."""
        return Quantity(Fraction(number), format)

    def value(self) -> int:
        """The amount in whole units, rounded away from zero."""
        return _away_from_zero(self.number.numerator, self.number.denominator)

    def milli_value(self) -> int:
        """The amount in thousandths, rounded away from zero."""
        return _away_from_zero(self.number.numerator * 1000, self.number.denominator)

    @property
    def is_whole(self) -> bool:
        """Whether this is a whole number of units. "2000m" is, "1001m" is not."""
        return self.number.denominator == 1

    def __bool__(self) -> bool:
        return self.number.numerator != 0

    def __add__(self, other: Quantity) -> Quantity:
        return Quantity(self.number + other.number, self.format if self else other.format)

    def __sub__(self, other: Quantity) -> Quantity:
        return Quantity(self.number - other.number, self.format if self else other.format)

    def __str__(self) -> str:
        # A small amount loses its binary suffix, as in Go: 512 is "512" and not "0.5Ki". So does one above the cap (a sum),
        # unlike in Go, as it would be read back as the cap.
        if self.format is QuantityFormat.BINARY_SI and self.is_whole and 1024 <= abs(self.number) <= MAX_BINARY:
            return _binary_text(self.number.numerator)
        return _decimal_text(self.number, self.format is QuantityFormat.DECIMAL_EXPONENT)


ZERO = Quantity(Fraction(0))


def _away_from_zero(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator) if numerator >= 0 else numerator // denominator


@lru_cache(maxsize=4096)  # the same few spellings come again and again; the texts are bounded, so the cache is
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text.strip()) if len(text) <= MAX_TEXT else None
    if match is None or not (match[2] or match[3]):
        raise QuantityError(text)
    sign, whole, fraction, suffix = match[1], match[2], match[3] or "", match[4]
    mantissa = int(whole + fraction)
    number, format = _scaled(text, mantissa, len(fraction), suffix)
    return Quantity(-number if sign == "-" else number, format)


def _scaled(text: str, mantissa: int, places: int, suffix: str) -> tuple[Fraction, QuantityFormat]:
    """The amount `mantissa` / 10^`places` times what the suffix says, rounded and capped as Go does."""
    if suffix in _BINARY:
        number = min(_up_to_nano(mantissa << _BINARY[suffix], -places), Fraction(MAX_BINARY))
        return number, QuantityFormat.BINARY_SI
    exponent = _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    format = QuantityFormat.DECIMAL_SI if suffix in _DECIMAL else QuantityFormat.DECIMAL_EXPONENT
    exponent -= places
    if mantissa and len(str(mantissa)) + exponent > MAX_WHOLE_DIGITS:
        raise QuantityError(text, f"more than {MAX_WHOLE_DIGITS} digits before the point")
    return _up_to_nano(mantissa, exponent), format


def _up_to_nano(mantissa: int, exponent: int) -> Fraction:
    """`mantissa` times 10^`exponent`, a rest below nano rounded up. `mantissa` is not negative.

    The exponent may be any number below MAX_WHOLE_DIGITS: nothing of its size is ever computed.
    """
    if not mantissa:
        return Fraction(0)
    if exponent >= 0:
        return Fraction(mantissa * 10**exponent)
    if exponent >= -_NANO_DIGITS:
        return Fraction(mantissa, 10**-exponent)
    # dividing by more digits than there are gives 1n too
    below_nano = min(-exponent - _NANO_DIGITS, len(str(mantissa)))
    return Fraction(-(-mantissa // 10**below_nano), 10**_NANO_DIGITS)


def _binary_text(number: int) -> str:
    index = 0
    while number % 1024 == 0 and index < len(_BINARY):
        number //= 1024
        index += 1
    return f"{number}{_BINARY_SUFFIXES[index]}"


def _decimal_text(number: Fraction, as_exponent: bool) -> str:
    nanos = number * 10**_NANO_DIGITS
    mantissa, exponent = _away_from_zero(nanos.numerator, nanos.denominator), -_NANO_DIGITS
    if not mantissa:
        return "0"
    while mantissa % 1000 == 0:
        mantissa //= 1000
        exponent += 3
    if not as_exponent and exponent <= _DECIMAL["E"]:
        return f"{mantissa}{_SCALES[(exponent + _NANO_DIGITS) // 3]}"
    return f"{mantissa}e{exponent}" if exponent else str(mantissa)
