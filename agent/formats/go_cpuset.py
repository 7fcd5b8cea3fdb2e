"""CPU sets as the kubelet parses them (k8s.io/utils/cpuset, Parse): ranges in any order, no blanks, "+7" and "007" too."""

from __future__ import annotations

import re

from agent.errors import BadInputError
from agent.model.cpuset import MAX_CPUS, CPUSet

_RANGE = re.compile(r"\+?([0-9]{1,30})(?:-\+?([0-9]{1,30}))?", re.ASCII)
_MAX_INT = (1 << 63) - 1


class GoCPUSetError(BadInputError):
    """A text that the kubelet cannot parse as a CPU set, or one that names CPUs no machine has."""

    def __init__(self, text: str, why: str) -> None:
        super().__init__(f"CPU set {text[:80]!r}: {why}")


def parse_ranges(text: str) -> list[tuple[int, int]]:
    """The ranges of a set, both ends included, as they are written. Raises GoCPUSetError where the kubelet cannot parse it."""
    ranges: list[tuple[int, int]] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high <= _MAX_INT:
            raise GoCPUSetError(text, f"{part[:30]!r} is neither a number nor an ascending range")
        ranges.append((low, high))
    return ranges


def parse_cpuset(text: str) -> CPUSet:
    """The set as a value. Raises GoCPUSetError, for ids of MAX_CPUS and more too: no kernel has those."""
    mask = 0
    for low, high in parse_ranges(text):
        if high >= MAX_CPUS:
            raise GoCPUSetError(text, f"CPU {high} is beyond {MAX_CPUS - 1}, the largest id that Linux knows")
        mask |= (1 << high + 1) - (1 << low)
    return CPUSet(mask)
