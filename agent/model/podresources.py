"""What PodResources tells of a node, as values: per pod and container the exclusive CPUs and the memory blocks.

Made by `agent.policy.podresources_view`, written as message bytes by `agent.formats.podresources`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.cpuset import CPUSet
from agent.model.devices import DeviceNodes
from agent.model.pod import ContainerKind
from agent.model.state import Blocks


@dataclass(frozen=True, slots=True)
class Passed:
    """What another PodResources server tells of a container beside CPUs and memory, as message bytes.

    v1: the fields devices and dynamic_resources of a v1 ContainerResources; v1alpha1: devices of that version's.
    """

    v1: bytes = b""
    v1alpha1: bytes = b""


NOTHING_PASSED = Passed()


@dataclass(frozen=True, slots=True)
class PassedDevices:
    """One answer of that server. pods: (namespace, name) -> container -> what it has. allocatable: the field devices of a v1
    AllocatableResourcesResponse. uids: of the pods that were here when it was asked: it tells no uids, and a later pod of the
    same name has other devices. nodes: as pods, of devices only. allocatable_nodes: of all devices of the node.
    """

    pods: Mapping[tuple[str, str], Mapping[str, Passed]] = field(default_factory=dict)
    allocatable: bytes = b""
    uids: frozenset[str] = frozenset()
    nodes: Mapping[tuple[str, str], Mapping[str, DeviceNodes]] = field(default_factory=dict)
    allocatable_nodes: DeviceNodes = field(default_factory=dict)

    def of(self, uid: str, namespace: str, name: str) -> Mapping[str, Passed]:
        """Container -> what this pod's containers have; nothing where the answer cannot be about this pod."""
        return self.pods.get((namespace, name), {}) if uid in self.uids else {}


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One running container: a sidecar or an app. Nothing exclusive is the empty set, no memory manager is no block."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    cpus: CPUSet = field(default_factory=CPUSet)
    memory: Blocks = ()
    passed: Passed = NOTHING_PASSED


@dataclass(frozen=True, slots=True)
class PodView:
    """One active pod. containers: sidecars first, then apps, each group in spec order.

    cpus, memory: the pod's whole bubble, which overlaps with what its containers hold: a reader takes one or the other.
    Empty in the 1.36 shape and where the pod has no bubble.
    """

    name: str
    namespace: str
    containers: tuple[ContainerView, ...] = ()
    cpus: CPUSet = field(default_factory=CPUSet)
    memory: Blocks = ()


@dataclass(frozen=True, slots=True)
class PodResourcesView:
    """Everything that PodResources answers from.

    allocatable_cpus: online minus reserved, held or not; empty with CPU policy `none`. allocatable_memory: one block per
    NUMA node and type with a non-zero amount. allocatable_devices: passed through, as message bytes.
    """

    pods: tuple[PodView, ...] = ()
    allocatable_cpus: CPUSet = field(default_factory=CPUSet)
    allocatable_memory: Blocks = ()
    allocatable_devices: bytes = b""
