"""What a node's pods occupy, as one report for schedulers and accountants (design section 10). Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from agent.model.cpuset import CPUSet
from agent.model.pod import ContainerKind, QOSClass, ResourceList
from agent.model.state import Epoch, PodPhase, ResizeState, Shortfall


@dataclass(frozen=True, slots=True)
class Terms:
    """Requests of a pod or container: as its source wants them, as admitted here, as in force, and what it counts for."""

    desired: ResourceList = field(default_factory=dict)
    allocated: ResourceList = field(default_factory=dict)
    actual: ResourceList = field(default_factory=dict)
    effective: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Held:
    """What is held exclusively in one NUMA zone. memory: resource type -> bytes."""

    cpus: CPUSet = field(default_factory=CPUSet)
    memory: Mapping[str, int] = field(default_factory=dict)


Holdings = Mapping[int, Held]  # NUMA node -> what is held there; nodes without anything are absent


@dataclass(frozen=True, slots=True)
class ContainerOccupancy:
    """One container. held: what is its alone, a slice of its pod's bubble included."""

    name: str
    kind: ContainerKind
    terms: Terms
    held: Holdings


@dataclass(frozen=True, slots=True)
class ResizeReport:
    """How far the pod's resize is. reason: a word; shortfall: what a deferred or infeasible one lacks."""

    state: ResizeState = ResizeState.NONE
    reason: str = ""
    message: str = ""
    shortfall: tuple[Shortfall, ...] = ()


class GPUMemory(NamedTuple):
    """GPUs that are asked for by their memory: so many MiB of each of so many devices."""

    devices: int
    mebibytes: int

    def hundredths(self, device_memory_mib: int | None) -> int:
        """In hundredths of a device, rounded up for each. device_memory_mib: of one GPU of the node; 0 where it is not known."""
        return self.devices * -(-self.mebibytes * 100 // device_memory_mib) if device_memory_mib else 0


@dataclass(frozen=True, slots=True)
class PodOccupancy:
    """One pod. held: all that is the pod's, its bubble or its containers' sets together.

    preemptible: None where the node cannot tell. unplaced, degraded: the messages, "" where the pod is neither.
    gpu_hundredths, requested_gpu_hundredths: GPUs as KAI counts them, of the effective and the desired terms; gpu_memory: what
    is asked for by memory, in neither of them.
    """

    uid: str
    namespace: str
    name: str
    qos: QOSClass
    phase: PodPhase
    priority: int | None
    queue: str
    pod_group: str
    preemptible: bool | None
    terms: Terms
    resize: ResizeReport
    held: Holdings
    containers: tuple[ContainerOccupancy, ...]
    unplaced: str = ""
    degraded: str = ""
    gpu_hundredths: int = 0
    requested_gpu_hundredths: int = 0
    gpu_memory: GPUMemory | None = None


@dataclass(frozen=True, slots=True)
class Amounts:
    """One resource of one NUMA zone, CPUs or bytes. held: exclusively; free: of what is allocatable."""

    capacity: int
    allocatable: int
    held: int
    free: int


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node. resources: "cpu" and the memory types. cpus, reserved, exclusive: the ids behind the CPU amounts.

    distances: other NUMA node -> ACPI distance, itself included.
    """

    node: int
    resources: Mapping[str, Amounts]
    cpus: CPUSet
    reserved: CPUSet
    exclusive: CPUSet
    distances: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class NodePolicies:
    """The resource managers in force, in the kubelet's spelling."""

    cpu: str
    memory: str
    topology: str
    scope: str


@dataclass(frozen=True, slots=True)
class Occupancy:
    """A node occupancy report. (epoch, generation) names the state that it is of.

    time_seconds: Unix time at which it was made. totals: the effective requests of all pods together.
    """

    node: str
    boot_id: str
    epoch: Epoch
    generation: int
    time_seconds: float
    policies: NodePolicies
    capacity: ResourceList
    allocatable: ResourceList
    reserved: ResourceList
    totals: ResourceList
    zones: tuple[Zone, ...]
    pods: Mapping[str, PodOccupancy]

    @property
    def stamp(self) -> tuple[Epoch, int]:
        """What orders reports of one node."""
        return self.epoch, self.generation
