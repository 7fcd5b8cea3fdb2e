"""Which CPUs are one physical package, one core, one die, one cluster: the groups of the topology directories.

The numbers alone are not enough: `core_id` repeats between packages and even within one, `physical_package_id` can be absent,
-1 or given per NUMA node. So cores follow their sibling sets, and packages the id unless there is proof against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.model.cpuset import CPUSet, union
from agent.node.sysfs import Sysfs
from agent.node.sysfs_cpu import CLUSTER_SETS, CORE_SETS, DIE_SETS, PACKAGE_SETS, Stated, read_groups
from agent.node.sysfs_partition import key_of, refine

Groups = tuple[CPUSet, ...]
_NO_ID = {None, -1, 0xFFFF, 0xFFFFFFFF}  # the kernel's "none", also as it looks through 16 and 32 unsigned bits


@dataclass(frozen=True, slots=True)
class CPUGroups:
    """The partitions of the online CPUs; None where the kernel does not describe such a level."""

    packages: Groups
    cores: Groups
    dies: Groups | None
    clusters: Groups | None


def read_cpu_groups(sysfs: Sysfs, stated: Mapping[int, Stated], nodes: Sequence[CPUSet]) -> CPUGroups:
    """The packages, cores, dies and clusters. nodes: the CPUs of each NUMA node."""
    packages = _packages(sysfs, stated, nodes)
    cores = _cores(sysfs, stated, packages)
    return CPUGroups(packages, cores, _dies(sysfs, stated, packages), _clusters(sysfs, stated, cores))


def _stated_package(facts: Stated) -> tuple[int | None, int | None, int] | None:
    """What names the package: on s390 ids repeat below books and drawers. None: nothing stated, or no id."""
    if facts.package_id is None or facts.package_id in _NO_ID:
        return None
    return (facts.drawer_id, facts.book_id, facts.package_id)


def _packages(sysfs: Sysfs, stated: Mapping[int, Stated], nodes: Sequence[CPUSet]) -> Groups:
    online = CPUSet.of(stated)
    names = {cpu: name for cpu, facts in stated.items() if (name := _stated_package(facts)) is not None}
    by_id = refine([CPUSet.of(names)], names) if names else ()
    by_siblings, unknown = read_groups(sysfs, stated, PACKAGE_SETS)
    if not names:
        return _sorted([*by_siblings, *([unknown] if unknown else [])])
    groups: list[CPUSet] = []
    for group in by_id:
        parts = [part for part in by_siblings if part <= group]
        if _id_is_of_the_node(group, parts, nodes, stated):
            sysfs.notes.add(
                "physical_package_id repeats for several packages of a NUMA node; core_siblings believed", group
            )
            groups += parts
        else:
            groups.append(group)
    return _with_unnamed(sysfs, groups, online - CPUSet.of(names), by_siblings)


def _id_is_of_the_node(
    group: CPUSet, parts: Sequence[CPUSet], nodes: Sequence[CPUSet], stated: Mapping[int, Stated]
) -> bool:
    """Some ia64 kernels state one package id per NUMA node: the sibling sets split it, and core ids repeat across them.

    Where the sibling sets follow the NUMA node instead of the package (seen with several nodes per package), the id is right.
    """
    if len(parts) < 2 or union(parts) != group or len(nodes) < 2 or group not in nodes:
        return False
    core_ids = [{stated[cpu].core_id for cpu in part} for part in parts]
    return any(first & second for first, second in pairwise(core_ids))


def _with_unnamed(sysfs: Sysfs, groups: list[CPUSet], unnamed: CPUSet, by_siblings: Groups) -> Groups:
    """Place CPUs without a package id among packages that have one: with their siblings, else with the only package."""
    if not unnamed:
        return _sorted(groups)
    sysfs.notes.add("no physical_package_id although other CPUs have one; placed by core_siblings", unnamed)
    for siblings in by_siblings:
        part = siblings & unnamed
        hosts = [index for index, group in enumerate(groups) if group & siblings]
        if part and len(hosts) == 1:
            groups[hosts[0]] |= part
        elif part:
            groups.append(part)
    if rest := unnamed - union(groups):
        if len(groups) == 1:
            groups[0] |= rest
        else:
            groups.append(rest)
    return _sorted(groups)


def _cores(sysfs: Sysfs, stated: Mapping[int, Stated], packages: Groups) -> Groups:
    """Cores by sibling sets; without any, CPUs of one package with one core id are taken for siblings.

    That errs to the safe side: two cores treated as one are never split between containers.
    """
    cores, rest = read_groups(sysfs, stated, CORE_SETS)
    if not rest:
        return cores
    package = key_of(packages)
    keys: dict[int, object] = {}
    for cpu in rest:
        core_id = stated[cpu].core_id
        keys[cpu] = f"cpu{cpu}" if core_id in _NO_ID else (package[cpu], core_id)
    guessed = refine([rest], keys)
    if any(len(core) > 1 for core in guessed):
        sysfs.notes.add("no usable sibling list; CPUs with equal package and core_id taken as one core", rest)
    else:
        sysfs.notes.add("no usable sibling list; each CPU taken as a core of its own", rest)
    return _sorted([*cores, *guessed])


def _dies(sysfs: Sysfs, stated: Mapping[int, Stated], packages: Groups) -> Groups | None:
    """Dies by package and die id (ids repeat between packages); where there is no id, by the die's CPU list."""
    ids = {cpu: facts.die_id for cpu, facts in stated.items()}
    if all(die_id is None for die_id in ids.values()):
        return None
    if _NO_ID.isdisjoint(ids.values()):
        return refine(packages, ids)
    dies, rest = read_groups(sysfs, stated, DIE_SETS)
    return _sorted([*dies, *refine([rest], key_of(packages))]) if dies else None


def _clusters(sysfs: Sysfs, stated: Mapping[int, Stated], cores: Groups) -> Groups | None:
    """Clusters by their CPU lists (ids restart in each package); None where they only repeat the cores."""
    clusters, rest = read_groups(sysfs, stated, CLUSTER_SETS)
    if not clusters or rest or clusters == cores:
        return None
    return clusters


def _sorted(groups: Sequence[CPUSet]) -> Groups:
    return tuple(sorted((group for group in groups if group), key=min))
