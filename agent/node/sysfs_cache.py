"""The last-level cache of every CPU: /sys/devices/system/cpu/cpuN/cache/indexN.

Caches are told apart by the CPUs that share them: the `id` file is absent on many machines (every arm64 kernel up to 6.12, x86
before 4.10) and unique only per level; the index order is not the level order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.model.cpuset import CPUSet
from agent.model.topology import Cache
from agent.node.sysfs import Sysfs
from agent.node.sysfs_cpu import CPU_DIR
from agent.node.sysfs_partition import key_of, partition, refine

SHARED_SETS = ("shared_cpu_list", "shared_cpu_map")
_SIZE = re.compile(r"(\d{1,12})([KMG])", re.ASCII)
_KIB = {"K": 1, "M": 1 << 10, "G": 1 << 20}


@dataclass(frozen=True, slots=True)
class _Index:
    """One Data or Unified cache of one CPU."""

    directory: str
    level: int
    type: str | None


def read_llc(sysfs: Sysfs, online: CPUSet, packages: Iterable[CPUSet]) -> tuple[Cache, ...]:
    """The last-level caches, ordered by lowest CPU.

    A cache counts where the CPUs that share it are stated and agree; else the next level inwards is asked. CPUs that show no
    usable cache at all form what is left of their package, with `level` None.
    """
    shown = {cpu: _caches(sysfs, cpu) for cpu in online}
    levels = sorted({level for caches in shown.values() for level in caches}, reverse=True)
    rest = online
    found: list[Cache] = []
    for level in levels:
        for name in SHARED_SETS:
            indexes = {cpu: shown[cpu][level] for cpu in rest if level in shown[cpu]}
            groups, left = _sharing(sysfs, name, indexes, rest, online)
            found += [_cache(sysfs, group, indexes) for group in groups]
            rest = left
    if found and rest:
        sysfs.notes.add("no usable cache although other CPUs have one; their package stands for it", rest)
    found += [Cache(min(group), group) for group in refine([rest], key_of(packages))]
    return tuple(sorted(found, key=lambda cache: cache.key))


def _caches(sysfs: Sysfs, cpu: int) -> dict[int, _Index]:
    """Level -> the Data or Unified cache of this CPU."""
    directory = f"{CPU_DIR}/cpu{cpu}/cache"
    caches: dict[int, _Index] = {}
    for index in sysfs.numbered(directory, "index"):
        level = sysfs.number(f"{directory}/index{index}/level")
        if level is None or level < 1:
            continue
        kind = sysfs.read(f"{directory}/index{index}/type")
        # No type: an outer cache is unified on every machine seen; at level 1 it might hold instructions.
        if kind in ("Data", "Unified") or (not kind and level > 1):
            caches[level] = _Index(f"{directory}/index{index}", level, kind or None)
    return caches


def _sharing(
    sysfs: Sysfs, name: str, indexes: Mapping[int, _Index], rest: CPUSet, online: CPUSet
) -> tuple[tuple[CPUSet, ...], CPUSet]:
    """The groups that the file `name` of these caches describes, and the CPUs left without one."""
    sets = {cpu: sysfs.cpu_set(f"{index.directory}/{name}") for cpu, index in indexes.items()}
    claims = {cpu: cpus & online for cpu, cpus in sets.items() if cpus is not None}
    groups, left = partition(claims, rest)
    if refused := left & CPUSet.of(claims):
        level = indexes[min(refused)].level
        sysfs.notes.add(f"{name} of the level {level} cache contradicts itself and was not believed", refused)
    return groups, left


def _cache(sysfs: Sysfs, cpus: CPUSet, indexes: Mapping[int, _Index]) -> Cache:
    found = next(indexes[cpu] for cpu in cpus if cpu in indexes)
    return Cache(
        key=min(cpus),
        cpus=cpus,
        level=found.level,
        type=found.type,
        size_kib=_size_kib(sysfs, f"{found.directory}/size"),
        id=sysfs.number(f"{found.directory}/id"),
    )


def _size_kib(sysfs: Sysfs, name: str) -> int | None:
    text = sysfs.read(name)
    if not text:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        sysfs.doubt(name, "is not a cache size")
        return None
    return int(match[1]) * _KIB[match[2]]
