"""From the kernel's facts to the machine that the policies work on: which ids name sockets, cores and uncore caches.

The kubelet gets these from cAdvisor (utils/sysinfo, info/v1 MachineInfo) and cm/cpumanager/topology. Where cAdvisor's ids are
right they are kept, as picking order follows them. Differences, all stated in docs/differences.md: cores by sibling lists, not
by (package, core_id); uncore caches by the CPUs that share them, with or without cache ids and also where an L3 covers its NUMA
node; packages that the kernel gives no usable id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology, Machine, RawCPU, discover
from agent.model.topology import HugePages, NUMANode, Topology

UNCORE_LEVEL = 3  # cAdvisor and the kubelet call a shared cache "uncore" from this level on
LOCAL_DISTANCE, REMOTE_DISTANCE = 10, 20  # the kernel's own defaults (include/linux/topology.h)
_BINARY_SUFFIXES = ("Ki", "Mi", "Gi", "Ti", "Pi")


def policy_machine(topology: Topology) -> Machine:
    """The machine for the policies.

    CPUs that no NUMA node lists (their node is offline) are left out, as cAdvisor leaves them out: placing them in some node
    would promise an alignment that does not exist. If no node listed any CPU, the reader has given all to the lowest node.
    Memory that the machine does not state counts as 0 bytes, so nothing is promised from it.
    """
    return Machine(
        topology=cpu_topology(topology),
        numa_memory={node.id: _memory(node) for node in topology.numa},
        distances=_distances(topology),
    )


def cpu_topology(topology: Topology) -> CPUTopology:
    """The online CPUs that belong to a NUMA node, in the kubelet's discovered form."""
    sockets = socket_ids(topology)
    uncores = uncore_ids(topology)
    return discover(
        RawCPU(id=cpu.id, core=cpu.core, socket=sockets[cpu.package], numa=cpu.node, uncore=uncores.get(cpu.id))
        for cpu in topology.cpus
        if cpu.node is not None
    )


def socket_ids(topology: Topology) -> Mapping[int, int]:
    """Package key -> socket id: the kernel's `physical_package_id` where it tells all packages apart, else the key.

    Ids are absent or -1 on POWER and old arm64, and repeat below books and drawers on s390.
    """
    ids = [package.id for package in topology.packages if package.id is not None and package.id >= 0]
    if len(set(ids)) == len(topology.packages) == len(ids):
        return {package.key: package_id for package, package_id in zip(topology.packages, ids, strict=True)}
    return {package.key: package.key for package in topology.packages}


def uncore_groups(topology: Topology) -> tuple[CPUSet, ...]:
    """The uncore caches that placement may rely on: last-level caches of level 3 or more that lie within one package.

    CPUs in none of them have the rest of their package as their group. A cache said to span packages is a guess of the
    kernel (a device tree without cache nodes); one that cuts through a core contradicts the sibling lists.
    """
    package = {cpu.id: cpu.package for cpu in topology.cpus}
    core = {cpu: siblings for siblings in topology.cores for cpu in siblings}
    return tuple(
        cache.cpus
        for cache in topology.llc
        if cache.level is not None
        and cache.level >= UNCORE_LEVEL
        and len({package[cpu] for cpu in cache.cpus}) == 1
        and all(core[cpu] <= cache.cpus for cpu in cache.cpus)
    )


def uncore_ids(topology: Topology) -> Mapping[int, int]:
    """CPU -> id of its uncore group; empty where the machine has none, so that every CPU's socket id stands for it.

    The kernel's cache ids are kept where they tell the groups apart and every CPU has one. Else a group is named by its lowest
    CPU, what is left of a package included, as a socket id could collide with another group's cache id.
    """
    groups = uncore_groups(topology)
    if not groups:
        return {}
    ids = {cache.cpus: cache.id for cache in topology.llc}
    stated = [cache_id for group in groups if (cache_id := ids[group]) is not None]
    covered = sum(len(group) for group in groups) == len(topology.cpus)
    if covered and len(set(stated)) == len(groups):
        return {cpu: cache_id for group, cache_id in zip(groups, stated, strict=True) for cpu in group}
    named = {cpu: min(group) for group in groups for cpu in group}
    left: dict[int, int] = {}
    for cpu in topology.cpus:
        if cpu.id not in named:
            named[cpu.id] = left.setdefault(cpu.package, cpu.id)
    return named


def hugepages_name(size_kib: int) -> str:
    """The Kubernetes resource of a huge page size: 2048 is "hugepages-2Mi", 64 is "hugepages-64Ki".

    Kubernetes writes the size as a canonical quantity: the largest binary suffix that leaves a whole number.
    """
    amount, suffix = size_kib, 0
    while amount and amount % 1024 == 0 and suffix + 1 < len(_BINARY_SUFFIXES):
        amount //= 1024
        suffix += 1
    return f"hugepages-{amount}{_BINARY_SUFFIXES[suffix]}"


def free_hugepages(nodes: Mapping[int, Iterable[HugePages]]) -> dict[int, dict[str, int]]:
    """NUMA id -> resource -> bytes that nobody uses at the moment. Sizes of which the kernel does not say it are left out."""
    return {
        node: {
            hugepages_name(size.size_kib): size.free * size.size_kib * 1024 for size in sizes if size.free is not None
        }
        for node, sizes in nodes.items()
    }


def _memory(node: NUMANode) -> Mapping[str, int]:
    return {
        "memory": node.memory_bytes or 0,
        **{hugepages_name(size.size_kib): _bytes(size) for size in node.hugepages},
    }


def _bytes(pages: HugePages) -> int:
    return (pages.nr or 0) * pages.size_kib * 1024


def _distances(topology: Topology) -> Mapping[int, tuple[int, ...]]:
    """The distance rows; the kernel's default distances for a node whose row is absent or has not one column per node."""
    count = len(topology.numa)
    rows: dict[int, tuple[int, ...]] = {}
    for index, node in enumerate(topology.numa):
        row = node.distances
        if row is None or len(row) != count:
            row = tuple(LOCAL_DISTANCE if column == index else REMOTE_DISTANCE for column in range(count))
        rows[node.id] = row
    return rows
