"""Which CPUs run, and what the kernel states about each: /sys/devices/system/cpu/cpuN and its topology directory.

Grouping is `sysfs_package`; caches are `sysfs_cache`.
Source: Documentation/admin-guide/cputopology.rst and ABI/testing/sysfs-devices-system-cpu of the kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.model.cpuset import MAX_CPUS, CPUSet
from agent.model.topology import CPULists, Hybrid
from agent.node.sysfs import Sysfs, SysfsError
from agent.node.sysfs_partition import partition

CPU_DIR = "sys/devices/system/cpu"

# The names of one set, lists before masks (dumps with edited masks have intact lists), newer names before older ones.
CORE_SETS = ("core_cpus_list", "thread_siblings_list", "core_cpus", "thread_siblings")
PACKAGE_SETS = ("package_cpus_list", "core_siblings_list", "package_cpus", "core_siblings")
DIE_SETS = ("die_cpus_list", "die_cpus")
CLUSTER_SETS = ("cluster_cpus_list", "cluster_cpus")


@dataclass(frozen=True, slots=True)
class Stated:
    """What the kernel states about one online CPU; None: no such file. names: the entries of its topology directory."""

    names: frozenset[str]
    package_id: int | None = None
    core_id: int | None = None
    die_id: int | None = None
    cluster_id: int | None = None
    book_id: int | None = None
    drawer_id: int | None = None
    capacity: int | None = None


def read_cpu_lists(sysfs: Sysfs) -> CPULists:
    """Which CPUs exist and which run.

    Raises SysfsError where the tree shows no CPU at all, and where `cpu/online` is visibly cut short.
    """
    numbers = sysfs.numbered(CPU_DIR, "cpu")
    if numbers and numbers[-1] >= MAX_CPUS:
        raise SysfsError(f"{sysfs.root}/{CPU_DIR}/cpu{numbers[-1]}: no kernel has {MAX_CPUS} CPUs or more")
    directories = CPUSet.of(numbers)
    offline_file = sysfs.cpu_list(f"{CPU_DIR}/offline")
    online = sysfs.cpu_list(f"{CPU_DIR}/online")
    if online:
        _check_online_list(sysfs, online, directories)
    else:
        if online is not None and directories:
            sysfs.notes.add(f"{CPU_DIR}/online is empty, so the files of each CPU were asked")
        online = _online_by_directory(sysfs, directories) - (offline_file or CPUSet())
    if not online:
        raise SysfsError(
            f"{sysfs.root}/{CPU_DIR}: shows no online CPU, so this is no sysfs of a machine",
            hint="give --sysroot (for an agent: node.root) the directory (or archive) that holds sys/ and proc/",
        )
    return CPULists(
        online=online,
        directories=directories,
        possible=sysfs.cpu_list(f"{CPU_DIR}/possible"),
        present=sysfs.cpu_list(f"{CPU_DIR}/present"),
        offline_file=offline_file,
    )


def _check_online_list(sysfs: Sysfs, online: CPUSet, directories: CPUSet) -> None:
    name = f"{CPU_DIR}/online"
    if missing := online - directories:
        sysfs.notes.add(f"{name} lists CPUs without a directory; taken as online", missing)
    running = CPUSet.of(cpu for cpu in directories - online if sysfs.read(f"{CPU_DIR}/cpu{cpu}/online") == "1")
    if running and name in sysfs.unterminated:
        raise SysfsError(
            f"{sysfs.root}/{name}: cut short: it ends after {online}, but cpu{min(running)}/online says 1",
            hint="capture the tree again",
        )
    if running:
        sysfs.notes.add(f"{name} leaves out CPUs whose own file says 1; taken as offline", running)


def _online_by_directory(sysfs: Sysfs, directories: CPUSet) -> CPUSet:
    """Kernels before 2.6.29 and some snapshot tools have no `cpu/online`: each CPU's own files must do.

    A CPU that cannot be unplugged has no `online` file; one that was never started has no topology directory.
    """
    said = {cpu: sysfs.number(f"{CPU_DIR}/cpu{cpu}/online") for cpu in directories}
    started = CPUSet.of(cpu for cpu in directories if said[cpu] is None and sysfs.names(f"{CPU_DIR}/cpu{cpu}/topology"))
    silent = CPUSet.of(cpu for cpu in directories if said[cpu] is None)
    return CPUSet.of(cpu for cpu in directories if said[cpu]) | (started or silent)


def read_stated(sysfs: Sysfs, cpu: int) -> Stated:
    """The numbers of one CPU's topology directory."""
    directory = f"{CPU_DIR}/cpu{cpu}/topology"
    names = sysfs.names(directory)

    def number(name: str) -> int | None:
        return sysfs.number(f"{directory}/{name}") if name in names else None

    return Stated(
        names=names,
        package_id=number("physical_package_id"),
        core_id=number("core_id"),
        die_id=number("die_id"),
        cluster_id=number("cluster_id"),
        book_id=number("book_id"),
        drawer_id=number("drawer_id"),
        capacity=sysfs.number(f"{CPU_DIR}/cpu{cpu}/cpu_capacity"),
    )


def read_groups(
    sysfs: Sysfs, stated: Mapping[int, Stated], names: tuple[str, ...]
) -> tuple[tuple[CPUSet, ...], CPUSet]:
    """The groups that the files `names` of the topology directories describe, and the CPUs left without one.

    A set counts where it holds its own CPU and all its members agree (offline CPUs apart); the next name is asked for the
    CPUs that are left.
    """
    online = CPUSet.of(stated)
    rest = online
    groups: list[CPUSet] = []
    for name in names:
        asked = [cpu for cpu in rest if name in stated[cpu].names]
        if not asked:
            continue
        sets = {cpu: sysfs.cpu_set(f"{CPU_DIR}/cpu{cpu}/topology/{name}") for cpu in asked}
        found, left = partition({cpu: cpus & online for cpu, cpus in sets.items() if cpus is not None}, rest)
        groups += found
        if refused := left & CPUSet.of(asked):
            sysfs.notes.add(f"topology/{name} contradicts itself and was not believed", refused)
        rest = left
    return tuple(sorted(groups, key=min)), rest


def read_hybrid(sysfs: Sysfs, stated: Mapping[int, Stated]) -> Hybrid | None:
    """Kinds of cores: differing capacities (arm64) or the PMU groups of x86 hybrids; None where all CPUs are alike."""
    capacities = sorted({facts.capacity for facts in stated.values() if facts.capacity is not None})
    groups = tuple(
        (name, cpus)
        for name in ("cpu_core", "cpu_atom", "cpu_lowpower")
        if (cpus := sysfs.cpu_list(f"sys/devices/{name}/cpus"))
    )
    if len(capacities) < 2 and not groups:
        return None
    return Hybrid(tuple(capacities) if len(capacities) > 1 else (), groups)
