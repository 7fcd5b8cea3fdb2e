"""CPU sets as values: a bitmask of logical CPU ids, in the kernel's list format as text (cpuset(7), FORMATS)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

from agent.errors import BadInputError

MAX_CPUS = 8192  # ceiling of CONFIG_NR_CPUS on x86_64; bounds what a damaged file can make us allocate
_PART = re.compile(r"(\d+)(?:-(\d+))?", re.ASCII)


class CPUListError(BadInputError):
    """A text that is not a CPU list."""

    hint = "write CPU lists as the kernel does, ascending: 0-3,8"

    def __init__(self, text: str, part: str) -> None:
        super().__init__(f"invalid CPU list {text!r}: {part!r} is not a CPU id below {MAX_CPUS} or an ascending range")


def bits(mask: int) -> Iterator[int]:
    """The set bits of a mask, ascending. `mask` is not negative."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def format_list(mask: int) -> str:
    """A bitmask in the kernel's list format: 0b100001111 is "0-3,8"."""
    runs: list[str] = []
    while mask:
        start = (mask & -mask).bit_length() - 1
        shifted = mask >> start
        length = (~shifted & (shifted + 1)).bit_length() - 1  # ones at the low end
        runs.append(f"{start}-{start + length - 1}" if length > 1 else str(start))
        mask = shifted >> length << (start + length)
    return ",".join(runs)


@dataclass(frozen=True, slots=True)
class CPUSet:
    """An immutable set of logical CPU ids, kept as a bitmask: bit n is CPU n."""

    mask: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the kernel's list format, "0-3,8". The empty string is the empty set.

        Raises CPUListError for anything else, ids of MAX_CPUS and more included.
        """
        mask = 0
        for part in text.strip().split(",") if text.strip() else ():
            match = _PART.fullmatch(part)
            low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
            if not low <= high < MAX_CPUS:
                raise CPUListError(text, part)
            mask |= (1 << high + 1) - (1 << low)
        return cls(mask)

    @classmethod
    def of(cls, cpus: Iterable[int]) -> Self:
        """The set of these CPU ids."""
        mask = 0
        for cpu in cpus:
            mask |= 1 << cpu
        return cls(mask)

    def __iter__(self) -> Iterator[int]:
        return bits(self.mask)

    def __contains__(self, cpu: int) -> bool:
        return bool(self.mask >> cpu & 1)

    def __len__(self) -> int:
        return self.mask.bit_count()

    def __bool__(self) -> bool:
        return self.mask != 0

    def __or__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask | other.mask)

    def __and__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & other.mask)

    def __sub__(self, other: CPUSet) -> CPUSet:
        return CPUSet(self.mask & ~other.mask)

    def __le__(self, other: CPUSet) -> bool:
        return not self.mask & ~other.mask

    def __str__(self) -> str:
        return format_list(self.mask)


def union(sets: Iterable[CPUSet]) -> CPUSet:
    """The union of any number of sets."""
    mask = 0
    for cpus in sets:
        mask |= cpus.mask
    return CPUSet(mask)
