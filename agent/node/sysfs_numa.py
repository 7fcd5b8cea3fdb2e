"""NUMA nodes with their CPUs, memory, huge pages and distances: /sys/devices/system/node, or the machine as one node.

Source: ABI/stable/sysfs-devices-node, ABI/testing/sysfs-kernel-mm-hugepages and numaperf.rst (access classes) of the kernel.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agent.model.cpuset import CPUSet, union
from agent.model.numa import MAX_NODES, NodeMask
from agent.model.topology import HugePages, NodeKind, NUMANode
from agent.node.sysfs import Sysfs

NODE_DIR = "sys/devices/system/node"
_MEM_TOTAL = re.compile(r"(?:Node\s+\d+\s+)?MemTotal:\s+(\d{1,15})\s+kB\s*$", re.ASCII | re.MULTILINE)
_HUGEPAGES = re.compile(r"hugepages-(\d{1,12})kB", re.ASCII)
_STATES = ("possible", "online", "has_cpu", "has_memory", "has_normal_memory", "has_generic_initiator")


def read_numa(sysfs: Sysfs, online: CPUSet) -> tuple[NUMANode, ...]:
    """Every NUMA node, ascending by id.

    A kernel without NUMA has no node directories: one node 0 of kind FALLBACK with all online CPUs, the machine's memory and
    the distance 10.
    """
    ids = [node for node in sysfs.numbered(NODE_DIR, "node") if node < MAX_NODES]
    if not ids:
        memory = _memory_bytes(sysfs, "proc/meminfo")
        pages = _hugepages(sysfs, "sys/kernel/mm/hugepages")
        return (NUMANode(0, NodeKind.FALLBACK, online, memory, (10,), pages, online),)
    nodes = [_node(sysfs, node, online) for node in ids]
    if not any(node.cpus for node in nodes):
        sysfs.notes.add(f"no NUMA node lists an online CPU; node {ids[0]} taken to have them all")
        nodes[0] = replace(nodes[0], cpus=online, local_cpus=online, kind=_kind(online, nodes[0].memory_bytes))
    for node in nodes:
        if node.distances is not None and len(node.distances) != len(nodes):
            sysfs.notes.add(f"{NODE_DIR}/node{node.id}/distance has not one column per node")
    return tuple(replace(node, local_cpus=_local_cpus(sysfs, node, nodes)) for node in nodes)


def read_hugepages(sysfs: Sysfs) -> dict[int, tuple[HugePages, ...]]:
    """The hugepages of every NUMA node as they are now, and nothing else: few files, to be read at every admission that asks."""
    ids = [node for node in sysfs.numbered(NODE_DIR, "node") if node < MAX_NODES]
    if not ids:
        return {0: _hugepages(sysfs, "sys/kernel/mm/hugepages")}
    return {node: _hugepages(sysfs, f"{NODE_DIR}/node{node}/hugepages") for node in ids}


def node_of_cpus(sysfs: Sysfs, nodes: Sequence[NUMANode], online: CPUSet) -> dict[int, int]:
    """CPU -> its NUMA node: the lowest one that lists it. CPUs that no node lists are absent."""
    found: dict[int, int] = {}
    several = CPUSet()
    for node in nodes:
        several |= node.cpus & CPUSet.of(found)
        for cpu in node.cpus:
            found.setdefault(cpu, node.id)
    if several:
        sysfs.notes.add("listed by several NUMA nodes; the lowest is used", several)
    if none := online - CPUSet.of(found):
        sysfs.notes.add("listed by no NUMA node", none)
    return found


def read_node_states(sysfs: Sysfs) -> tuple[tuple[str, NodeMask], ...] | None:
    """Which nodes are online, have memory and so on; only what the tree has files for. None without node directories."""
    if not sysfs.numbered(NODE_DIR, "node"):
        return None
    states = ((name, sysfs.cpu_list(f"{NODE_DIR}/{name}")) for name in _STATES)
    return tuple((name, nodes.mask) for name, nodes in states if nodes is not None)


def _node(sysfs: Sysfs, node: int, online: CPUSet) -> NUMANode:
    directory = f"{NODE_DIR}/node{node}"
    listed = _listed_cpus(sysfs, directory)
    cpus = listed & online
    memory = _memory_bytes(sysfs, f"{directory}/meminfo")
    return NUMANode(
        id=node,
        kind=_kind(cpus, memory),
        cpus=cpus,
        memory_bytes=memory,
        distances=_distances(sysfs, f"{directory}/distance"),
        hugepages=_hugepages(sysfs, f"{directory}/hugepages"),
        local_cpus=cpus,
    )


def _listed_cpus(sysfs: Sysfs, directory: str) -> CPUSet:
    """`cpulist` is authoritative; old kernels have only `cpumap`. The cpuN links may list offline CPUs."""
    for name in ("cpulist", "cpumap"):
        if (listed := sysfs.cpu_set(f"{directory}/{name}")) is not None:
            return listed
    links = CPUSet.of(sysfs.numbered(directory, "cpu"))
    if links:
        sysfs.notes.add(f"{directory} has no usable cpulist or cpumap; its cpuN links are used")
    return links


def _kind(cpus: CPUSet, memory_bytes: int | None) -> NodeKind:
    if not cpus:
        return NodeKind.MEMORY_ONLY if memory_bytes else NodeKind.EMPTY
    if memory_bytes is None:
        return NodeKind.CPU_MEMORY_UNKNOWN
    return NodeKind.CPU_AND_MEMORY if memory_bytes else NodeKind.CPU_ONLY


def _memory_bytes(sysfs: Sysfs, name: str) -> int | None:
    text = sysfs.read(name)
    if text is None:
        return None
    match = _MEM_TOTAL.search(text)
    if match is None:
        sysfs.doubt(name, "has no MemTotal line; the memory is not known")
        return None
    return int(match[1]) * 1024


def _distances(sysfs: Sysfs, name: str) -> tuple[int, ...] | None:
    text = sysfs.read(name)
    if not text:
        return None
    if not re.fullmatch(r"\d{1,9}( +\d{1,9})*", text, re.ASCII):
        sysfs.doubt(name, "is not a row of distances")
        return None
    return tuple(int(column) for column in text.split())


def _hugepages(sysfs: Sysfs, directory: str) -> tuple[HugePages, ...]:
    """Every page size that has a directory, ascending; the sizes differ between architectures."""
    sizes = sorted(int(match[1]) for name in sysfs.names(directory) if (match := _HUGEPAGES.fullmatch(name)))
    return tuple(
        HugePages(
            size_kib=size,
            nr=sysfs.number(f"{directory}/hugepages-{size}kB/nr_hugepages"),
            free=sysfs.number(f"{directory}/hugepages-{size}kB/free_hugepages"),
            surplus=sysfs.number(f"{directory}/hugepages-{size}kB/surplus_hugepages"),
        )
        for size in sizes
    )


def _local_cpus(sysfs: Sysfs, node: NUMANode, nodes: Sequence[NUMANode]) -> CPUSet:
    """The CPUs nearest to a node without CPUs: what the firmware names as initiators, else those at the least distance."""
    if node.cpus:
        return node.cpus
    near: list[NUMANode] = []
    for access in ("access0", "access1"):  # the nearest initiators of any kind, then the nearest CPUs
        initiators = set(sysfs.numbered(f"{NODE_DIR}/node{node.id}/{access}/initiators", "node"))
        near = near or [other for other in nodes if other.cpus and other.id in initiators]
    if not near and node.distances is not None and len(node.distances) == len(nodes):
        columns = [(distance, other) for distance, other in zip(node.distances, nodes, strict=True) if other.cpus]
        least = min((distance for distance, _ in columns), default=0)
        near = [other for distance, other in columns if distance == least]
    return union(other.cpus for other in near)
