"""What the node has given away: the value that every decision reads and returns, and that the state file holds.

CPUs as in the kubelet's `cpu_manager_state`, memory as in its `memory_manager_state`; `agent.formats` writes either form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask


@dataclass(frozen=True, slots=True)
class CPUState:
    """default: the shared pool (`defaultCpuSet`); entries: pod UID -> container -> set; pod_entries: pod UID -> bubble.

    A container in a pod's shared pool has that pool in `entries`, as in the kubelet's file (KEP-5526).
    """

    default: CPUSet = field(default_factory=CPUSet)
    entries: Mapping[str, Mapping[str, CPUSet]] = field(default_factory=dict)
    pod_entries: Mapping[str, CPUSet] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """One resource type of one NUMA node, bytes: total - system_reserved - hugepages = allocatable = reserved + free."""

    total: int
    system_reserved: int
    allocatable: int
    reserved: int
    free: int


@dataclass(frozen=True, slots=True)
class NUMANodeState:
    """One NUMA node of the memory manager's machine state.

    assignments: blocks placed here, zero-sized ones included. cells: the group this node belongs to, itself included;
    one bit where it stands alone. memory: resource type -> table.
    """

    assignments: int
    cells: NodeMask
    memory: Mapping[str, MemoryTable]


@dataclass(frozen=True, slots=True)
class MemoryBlock:
    """A promise of memory to a container or pod: `size` bytes of resource `type` from the NUMA nodes of `nodes` together."""

    type: str
    size: int
    nodes: NodeMask


Blocks = tuple[MemoryBlock, ...]


@dataclass(frozen=True, slots=True)
class MemoryState:
    """machine: NUMA id -> its tables (empty with memory policy None); entries: pod UID -> container -> blocks."""

    machine: Mapping[int, NUMANodeState] = field(default_factory=dict)
    entries: Mapping[str, Mapping[str, Blocks]] = field(default_factory=dict)
    pod_entries: Mapping[str, Blocks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Grants:
    """Everything the resource managers hold: the whole input and output of a decision."""

    cpu: CPUState = field(default_factory=CPUState)
    memory: MemoryState = field(default_factory=MemoryState)
