"""From sets that CPUs claim to share with others to groups that all members agree on. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.model.cpuset import CPUSet


def partition(claims: Mapping[int, CPUSet], cpus: CPUSet) -> tuple[tuple[CPUSet, ...], CPUSet]:
    """Disjoint groups within `cpus` ordered by lowest CPU, and the CPUs without a group.

    claims: CPU -> the set it says it belongs to; a CPU that is not in its own set counts as silent, as if it had none.
    A set is believed if it lies within `cpus` and all members that are not silent claim exactly this set. Then, of what is
    left, a set is believed that more than half of its members claim: one altered mask does not tear a group apart.
    Kernels and edited dumps do contradict themselves, and a group that is not symmetric is no group.
    """
    claimants: dict[int, int] = {}
    for cpu, claim in claims.items():
        if cpu in claim:
            claimants[claim.mask] = claimants.get(claim.mask, 0) | 1 << cpu
    speaking = 0
    for mask in claimants.values():
        speaking |= mask
    rest = cpus.mask
    groups: list[CPUSet] = []
    for agreed in (lambda mask: mask & speaking == claimants[mask], lambda mask: _most(claimants[mask], mask)):
        for mask in sorted(claimants, key=lambda mask: mask & -mask):
            if not mask & ~rest and agreed(mask):
                groups.append(CPUSet(mask))
                rest &= ~mask
    return tuple(sorted(groups, key=min)), CPUSet(rest)


def _most(some: int, mask: int) -> bool:
    return 2 * some.bit_count() > mask.bit_count()


def key_of(groups: Iterable[CPUSet]) -> dict[int, int]:
    """CPU -> key of its group, the lowest CPU in it."""
    return {cpu: lowest for group in groups for lowest in (min(group),) for cpu in group}


def refine(groups: Iterable[CPUSet], keys: Mapping[int, object]) -> tuple[CPUSet, ...]:
    """Groups split by a second key: CPUs of one group stay together where their keys are equal. Ordered by lowest CPU."""
    masks: dict[tuple[int, object], int] = {}
    for index, group in enumerate(groups):
        for cpu in group:
            part = (index, keys[cpu])
            masks[part] = masks.get(part, 0) | 1 << cpu
    return tuple(sorted((CPUSet(mask) for mask in masks.values()), key=min))
