"""Read a machine: from a root directory (/ or a captured tree) to the immutable Topology."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from agent.model.topology import CPU, Cache, Package, Topology
from agent.node.sysfs import Sysfs, SysfsError
from agent.node.sysfs_cache import read_llc
from agent.node.sysfs_cpu import CPU_DIR, Stated, read_cpu_lists, read_hybrid, read_stated
from agent.node.sysfs_numa import NODE_DIR, node_of_cpus, read_node_states, read_numa
from agent.node.sysfs_package import CPUGroups, read_cpu_groups
from agent.node.sysfs_partition import key_of

HOTPLUG_RETRIES = 5


def read_topology(root: Path) -> Topology:
    """The machine below `root`, which holds sys/ and proc/.

    CPUs and nodes can come and go while hundreds of files are read: if the online lists changed meanwhile, all is read again.
    Raises SysfsError, with the path, where the tree shows no CPU, where a file cannot be read for another reason than
    absence, and where the machine keeps changing. Everything else is repaired by the stated rule and noted in `notes`.
    """
    for _ in range(HOTPLUG_RETRIES):
        before = _online_files(root)
        topology = _read(Sysfs(root))
        if _online_files(root) == before:
            return topology
    raise SysfsError(
        f"{root}/{CPU_DIR}/online: changed during each of {HOTPLUG_RETRIES} attempts to read the machine",
        hint="wait until CPU hotplug has settled and try again",
    )


def _online_files(root: Path) -> tuple[str | None, str | None]:
    sysfs = Sysfs(root)
    return sysfs.read(f"{CPU_DIR}/online"), sysfs.read(f"{NODE_DIR}/online")


def _read(sysfs: Sysfs) -> Topology:
    lists = read_cpu_lists(sysfs)
    stated = {cpu: read_stated(sysfs, cpu) for cpu in lists.online}
    numa = read_numa(sysfs, lists.online)
    groups = read_cpu_groups(sysfs, stated, [node.cpus for node in numa if node.cpus])
    llc = read_llc(sysfs, lists.online, groups.packages)
    node_of = node_of_cpus(sysfs, numa, lists.online)
    _note_spanning_caches(sysfs, llc, groups)
    return Topology(
        lists=lists,
        cpus=_cpus(stated, groups, llc, node_of),
        packages=tuple(Package(min(cpus), stated[min(cpus)].package_id, cpus) for cpus in groups.packages),
        cores=groups.cores,
        llc=llc,
        numa=numa,
        dies=groups.dies,
        clusters=groups.clusters,
        node_states=read_node_states(sysfs),
        hybrid=read_hybrid(sysfs, stated),
        notes=sysfs.notes.lines(),
    )


def _cpus(
    stated: Mapping[int, Stated], groups: CPUGroups, llc: tuple[Cache, ...], node_of: Mapping[int, int]
) -> tuple[CPU, ...]:
    package, core = key_of(groups.packages), key_of(groups.cores)
    die, cluster = key_of(groups.dies or ()), key_of(groups.clusters or ())
    cache = key_of(group.cpus for group in llc)
    return tuple(
        CPU(
            id=cpu,
            package=package[cpu],
            core=core[cpu],
            llc=cache[cpu],
            node=node_of.get(cpu),
            die=die.get(cpu),
            cluster=cluster.get(cpu),
            package_id=facts.package_id,
            core_id=facts.core_id,
            die_id=facts.die_id,
            cluster_id=facts.cluster_id,
            book_id=facts.book_id,
            drawer_id=facts.drawer_id,
            capacity=facts.capacity,
        )
        for cpu, facts in stated.items()
    )


def _note_spanning_caches(sysfs: Sysfs, llc: tuple[Cache, ...], groups: CPUGroups) -> None:
    """A device tree without cache nodes makes the kernel assume that everybody shares the last level."""
    package = key_of(groups.packages)
    for cache in llc:
        if len({package[cpu] for cpu in cache.cpus}) > 1:
            sysfs.notes.add(
                "last-level cache said to be shared by several packages; not used for placement", cache.cpus
            )
