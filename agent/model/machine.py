"""A machine as the policies see it: CPUs grouped by core, socket, NUMA node and uncore cache, memory per NUMA node.

The plain facts of sysfs are `agent.model.topology`; this is the kubelet's "discovered" form, on which all picking works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask, node_mask


@dataclass(frozen=True, slots=True)
class RawCPU:
    """One online logical CPU as Linux reports it.

    core: may repeat in every socket and node. uncore: id of the uncore (L3) cache, None where the machine reports none.
    """

    id: int
    core: int
    socket: int
    numa: int
    uncore: int | None = None


@dataclass(frozen=True, slots=True)
class CPUInfo:
    """One online logical CPU after renumbering: `core` is the lowest CPU id of the core, so it is unique."""

    id: int
    core: int
    socket: int
    numa: int
    uncore: int


def _masks(pairs: Iterable[tuple[int, int]]) -> dict[int, int]:
    masks: dict[int, int] = {}
    for key, cpu in pairs:
        masks[key] = masks.get(key, 0) | 1 << cpu
    return dict(sorted(masks.items()))


def _touching(element: int, masks: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(mask for mask in masks.values() if mask & element)


@dataclass(frozen=True)
class CPUTopology:
    """The online CPUs of a machine, ascending by id, and the bitmask of CPUs of every core, socket, NUMA node, uncore cache.

    The `*_masks` mappings are ordered by ascending element id. NUMA nodes without CPUs do not appear here.
    """

    cpus: tuple[CPUInfo, ...]
    core_masks: Mapping[int, int] = field(compare=False)
    socket_masks: Mapping[int, int] = field(compare=False)
    numa_masks: Mapping[int, int] = field(compare=False)
    uncore_masks: Mapping[int, int] = field(compare=False)

    @cached_property
    def all(self) -> CPUSet:
        """Every online CPU."""
        return CPUSet.of(cpu.id for cpu in self.cpus)

    @cached_property
    def by_id(self) -> Mapping[int, CPUInfo]:
        """CPU id -> CPU."""
        return {cpu.id: cpu for cpu in self.cpus}

    @property
    def num_cpus(self) -> int:
        return len(self.cpus)

    @property
    def numa_is_outer(self) -> bool:
        """Whether NUMA nodes hold sockets, in the kubelet's picking order; otherwise sockets hold NUMA nodes."""
        return len(self.socket_masks) >= len(self.numa_masks)

    @cached_property
    def outer_masks(self) -> tuple[int, ...]:
        """The first level of picking: the CPUs of every NUMA node, or of every socket, ascending by id."""
        return tuple((self.numa_masks if self.numa_is_outer else self.socket_masks).values())

    @cached_property
    def inner_of(self) -> Mapping[int, tuple[int, ...]]:
        """Mask of an element of the first level -> masks of the elements of the second level that it touches."""
        inner = self.socket_masks if self.numa_is_outer else self.numa_masks
        return {outer: _touching(outer, inner) for outer in self.outer_masks}

    @cached_property
    def cores_of(self) -> Mapping[int, tuple[int, ...]]:
        """Mask of a NUMA node, socket or uncore cache -> masks of its cores, ascending by core id."""
        elements = {*self.numa_masks.values(), *self.socket_masks.values(), *self.uncore_masks.values()}
        return {element: _touching(element, self.core_masks) for element in elements}

    @cached_property
    def uncores_of(self) -> Mapping[int, tuple[int, ...]]:
        """Mask of a NUMA node -> masks of the uncore caches that it touches, ascending by id."""
        return {numa: _touching(numa, self.uncore_masks) for numa in self.numa_masks.values()}

    @property
    def cpus_per_core(self) -> int:
        """The machine-wide integer average that the kubelet uses; 0 on an empty machine."""
        return len(self.cpus) // len(self.core_masks) if self.core_masks else 0

    @property
    def cpus_per_socket(self) -> int:
        """The machine-wide integer average that the kubelet uses; 0 on an empty machine."""
        return len(self.cpus) // len(self.socket_masks) if self.socket_masks else 0

    @property
    def cpus_per_uncore(self) -> int:
        """The machine-wide integer average that the kubelet uses; 0 on an empty machine."""
        return len(self.cpus) // len(self.uncore_masks) if self.uncore_masks else 0


def discover(raw: Iterable[RawCPU]) -> CPUTopology:
    """The kubelet's renumbering (cm/cpumanager/topology, Discover).

    CPUs of one (NUMA node, socket, core) are one core, named by its lowest CPU id; a core's uncore id is the first one
    reported for it, and the socket id where the machine reports none.
    """
    ordered = sorted(raw, key=lambda cpu: cpu.id)
    cores: dict[tuple[int, int, int], RawCPU] = {}
    uncores: dict[tuple[int, int, int], int] = {}
    for cpu in ordered:
        key = (cpu.numa, cpu.socket, cpu.core)
        cores.setdefault(key, cpu)
        if cpu.uncore is not None:
            uncores.setdefault(key, cpu.uncore)
    infos = []
    for cpu in ordered:
        key = (cpu.numa, cpu.socket, cpu.core)
        infos.append(CPUInfo(cpu.id, cores[key].id, cpu.socket, cpu.numa, uncores.get(key, cpu.socket)))
    return CPUTopology(
        cpus=tuple(infos),
        core_masks=_masks((cpu.core, cpu.id) for cpu in infos),
        socket_masks=_masks((cpu.socket, cpu.id) for cpu in infos),
        numa_masks=_masks((cpu.numa, cpu.id) for cpu in infos),
        uncore_masks=_masks((cpu.uncore, cpu.id) for cpu in infos),
    )


@dataclass(frozen=True)
class Machine:
    """What the policies know of a machine.

    numa_memory: NUMA id -> resource ("memory", "hugepages-<size>") -> bytes; "memory" is the node's total, hugepages are the
    pre-allocated bytes. Holds every NUMA node, memory-only ones included. distances: NUMA id -> row of the distance file,
    one column per online node in ascending id order.
    """

    topology: CPUTopology
    numa_memory: Mapping[int, Mapping[str, int]]
    distances: Mapping[int, tuple[int, ...]]

    @cached_property
    def numa_nodes(self) -> tuple[int, ...]:
        """Every NUMA node id, ascending: those with memory only included."""
        return tuple(sorted(set(self.numa_memory) | set(self.topology.numa_masks)))

    @cached_property
    def numa_mask(self) -> NodeMask:
        """`numa_nodes` as a mask: the topology manager's default affinity."""
        return node_mask(self.numa_nodes)
