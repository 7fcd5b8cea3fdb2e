"""A machine as nested blocks, for the text tree and the picture: sockets, dies, NUMA nodes and caches around cores.

The partitions do not nest by nature (one NUMA node over two sockets, one L3 over two nodes), so the coarser one goes outside and
a block that is cut by its surroundings says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from agent.model.cpuset import CPUSet
from agent.model.topology import Cache, NUMANode, Topology


class Level(StrEnum):
    """What a block stands for; the values are also the CSS classes of the picture."""

    SOCKET = "socket"
    DIE = "die"
    NUMA_NODE = "node"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Block:
    """One group. cpus: its online CPUs within the surrounding block; whole: False where it has more elsewhere.

    facts: what is worth saying about it beside the name. cores: the cores of `cpus`, only in innermost blocks.
    """

    level: Level
    name: str
    facts: tuple[str, ...]
    cpus: CPUSet
    whole: bool
    inner: tuple[Block, ...]
    cores: tuple[CPUSet, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    facts: tuple[str, ...]
    cpus: CPUSet


_Layer = tuple[Level, Sequence[_Group]]


def topology_blocks(topology: Topology) -> tuple[Block, ...]:
    """The outermost blocks, in order of their lowest CPU. Together they hold every online CPU once."""
    layers: list[_Layer] = [(Level.SOCKET, _sockets(topology)), (Level.NUMA_NODE, _nodes(topology))]
    if topology.dies is not None and _differs(topology.dies, topology):
        layers.append((Level.DIE, [_Group(f"die {index}", (), cpus) for index, cpus in enumerate(topology.dies)]))
    if _caches_matter(topology):
        layers.append(
            (Level.CACHE, [_Group(cache_name(cache), cache_facts(cache), cache.cpus) for cache in topology.llc])
        )
    layers.sort(key=lambda layer: (len(layer[1]), list(Level).index(layer[0])))
    return _nest(topology.lists.online, layers, topology.cores)


def _caches_matter(topology: Topology) -> bool:
    """Whether caches are worth a layer: shared by more than a core, and not the kernel's guess that all packages share one."""
    package = {cpu.id: cpu.package for cpu in topology.cpus}
    if any(len({package[cpu] for cpu in cache.cpus}) > 1 for cache in topology.llc):
        return False
    return any(cache.level is not None and cache.cpus not in topology.cores for cache in topology.llc)


def _differs(groups: Sequence[CPUSet], topology: Topology) -> bool:
    """Whether a level says something that packages and cores do not."""
    return tuple(groups) not in (tuple(package.cpus for package in topology.packages), topology.cores)


def _nest(cpus: CPUSet, layers: Sequence[_Layer], cores: Sequence[CPUSet]) -> tuple[Block, ...]:
    if not layers:
        return ()
    (level, groups), rest = layers[0], layers[1:]
    blocks = []
    for group in groups:
        if part := group.cpus & cpus:
            inner = _nest(part, rest, cores)
            own = () if inner else tuple(shared for core in cores if (shared := core & part))
            blocks.append(Block(level, group.name, group.facts, part, group.cpus <= cpus, inner, own))
    return tuple(blocks)


def _sockets(topology: Topology) -> list[_Group]:
    """Named by the kernel's id where that tells sockets apart, as the policies do, else by the lowest CPU."""
    ids = [package.id for package in topology.packages]
    unique = len(set(ids)) == len(ids) and all(package_id is not None and package_id >= 0 for package_id in ids)
    return [_Group(f"socket {row.id if unique else row.key}", (), row.cpus) for row in topology.packages]


def _nodes(topology: Topology) -> list[_Group]:
    """By each CPU's one node, so that a CPU listed by several nodes is shown once."""
    groups = []
    for node in topology.numa:
        cpus = CPUSet.of(cpu.id for cpu in topology.cpus if cpu.node == node.id)
        if cpus:
            groups.append(_Group(f"NUMA node {node.id}", node_facts(node), cpus))
    if homeless := CPUSet.of(cpu.id for cpu in topology.cpus if cpu.node is None):
        groups.append(_Group("no NUMA node", (), homeless))
    return sorted(groups, key=lambda group: min(group.cpus))


def node_facts(node: NUMANode) -> tuple[str, ...]:
    """Memory and huge pages of a node in words."""
    if node.memory_bytes is None:
        memory = "memory unknown"
    else:
        memory = format_bytes(node.memory_bytes) if node.memory_bytes else "no memory"
    pages = (
        f"{size.nr} huge page{'s' if size.nr > 1 else ''} of {format_bytes(size.size_kib * 1024)}"
        + (f" ({size.free} free)" if size.free is not None else "")
        for size in node.hugepages
        if size.nr
    )
    return (memory, *pages)


def cache_name(cache: Cache) -> str:
    """ "L3", or what stands for a cache where sysfs shows none."""
    return "no cache shown" if cache.level is None else f"L{cache.level}"


def cache_facts(cache: Cache) -> tuple[str, ...]:
    """The size, where it is known."""
    return () if cache.size_kib is None else (format_bytes(cache.size_kib * 1024),)


def format_bytes(count: int) -> str:
    """A size for people: "62.8 GiB", "2 MiB"."""
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if amount == int(amount) or amount >= 100 else f"{amount:.1f} {unit}"
