"""A machine as the kernel describes it: the plain facts of sysfs as one immutable value.

How the facts are read is `agent.node`; what the policies make of them is `agent.policy.policy_machine`. Words are the
kernel's (Documentation/admin-guide/cputopology.rst, ABI/testing/sysfs-devices-system-cpu, ABI/stable/sysfs-devices-node):
a package is what the policies call a socket.

The three partitions package, NUMA node and last-level cache do not nest in each other; only cores nest in all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask


@dataclass(frozen=True, slots=True)
class CPULists:
    """Which logical CPUs exist in which sense. None: the tree has no such file.

    directories: the `cpuN` that exist; an offline CPU may have one, and a possible CPU need not. offline_file: what
    `cpu/offline` says, which may run far beyond `possible` (8-1023).
    """

    online: CPUSet
    directories: CPUSet
    possible: CPUSet | None = None
    present: CPUSet | None = None
    offline_file: CPUSet | None = None

    @property
    def offline(self) -> CPUSet:
        """CPUs that have a directory and do not run."""
        return self.directories - self.online


@dataclass(frozen=True, slots=True)
class CPU:
    """One online logical CPU.

    `*_id` are the numbers that the kernel states: they repeat between packages, and -1 or 65535 mean none; None means the
    kernel states nothing. `package`, `core`, `die`, `cluster` and `llc` are the resolved groups: the lowest online CPU of
    the group, so unique over the machine (None: the machine has no such level).

    node: the NUMA node, the lowest one where several list the CPU, None where none does. capacity: `cpu_capacity`.
    """

    id: int
    package: int
    core: int
    llc: int
    node: int | None
    die: int | None = None
    cluster: int | None = None
    package_id: int | None = None
    core_id: int | None = None
    die_id: int | None = None
    cluster_id: int | None = None
    book_id: int | None = None
    drawer_id: int | None = None
    capacity: int | None = None


@dataclass(frozen=True, slots=True)
class Package:
    """A physical package. key: its lowest online CPU. id: the stated `physical_package_id`, -1 and None included."""

    key: int
    id: int | None
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Cache:
    """The last-level cache of the CPUs in `cpus`: the highest-level Data or Unified cache that sysfs shows for them.

    level None: sysfs shows no usable cache and the group is simply what these CPUs' package leaves over. id: the kernel's
    cache id, unique only per level and absent on many machines.
    """

    key: int
    cpus: CPUSet
    level: int | None = None
    type: str | None = None
    size_kib: int | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class HugePages:
    """The pre-allocated huge pages of one size on one NUMA node, counted in pages. None: no such file."""

    size_kib: int
    nr: int | None
    free: int | None
    surplus: int | None


class NodeKind(StrEnum):
    """What a NUMA node consists of. FALLBACK: the machine has no node directories and this node stands for all of it."""

    CPU_AND_MEMORY = "cpu+memory"
    CPU_ONLY = "cpu-only"
    MEMORY_ONLY = "memory-only"
    EMPTY = "empty"
    CPU_MEMORY_UNKNOWN = "cpu, memory unknown"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class NUMANode:
    """One NUMA node. None: the tree does not say.

    cpus: online CPUs that the node lists; broken firmware lets several nodes list one CPU. memory_bytes: MemTotal.
    distances: the row of the `distance` file, one column per node of the machine in id order; only to be compared.
    local_cpus: the CPUs nearest to a node without CPUs (`access0/initiators`, else least distance); else `cpus`.
    """

    id: int
    kind: NodeKind
    cpus: CPUSet
    memory_bytes: int | None
    distances: tuple[int, ...] | None
    hugepages: tuple[HugePages, ...]
    local_cpus: CPUSet


@dataclass(frozen=True, slots=True)
class Hybrid:
    """Kinds of cores. capacities: distinct `cpu_capacity` values where they differ; pmu_groups: cpu_core, cpu_atom."""

    capacities: tuple[int, ...] = ()
    pmu_groups: tuple[tuple[str, CPUSet], ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine. Groups hold online CPUs only and are ordered by lowest CPU, NUMA nodes by id.

    dies, clusters: None where the kernel does not describe such a level, or where it repeats the cores. node_states: name of
    the file in the node directory -> nodes; None without a node directory. notes: odd facts and what was made of them, for
    people.
    """

    lists: CPULists
    cpus: tuple[CPU, ...]
    packages: tuple[Package, ...]
    cores: tuple[CPUSet, ...]
    llc: tuple[Cache, ...]
    numa: tuple[NUMANode, ...]
    dies: tuple[CPUSet, ...] | None = None
    clusters: tuple[CPUSet, ...] | None = None
    node_states: tuple[tuple[str, NodeMask], ...] | None = None
    hybrid: Hybrid | None = None
    notes: tuple[str, ...] = ()

    @property
    def llc_is_package(self) -> bool:
        """True where sysfs shows no usable cache at all, so that `llc` only repeats the packages."""
        return all(cache.level is None for cache in self.llc)

    @property
    def threads_per_core(self) -> tuple[int, ...]:
        """The distinct numbers of online CPUs per core, ascending: more than one on hybrid or half-offline machines."""
        return tuple(sorted({len(core) for core in self.cores}))
