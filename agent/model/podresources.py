"""What PodResources tells of a node, as values: per pod and container the exclusive CPUs and the memory blocks.

Made by `agent.policy.podresources_view`, written as message bytes by `agent.formats.podresources`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.model.cpuset import CPUSet
from agent.model.pod import ContainerKind
from agent.model.state import Blocks


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One running container: a sidecar or an app. Nothing exclusive is the empty set, no memory manager is no block."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    cpus: CPUSet = field(default_factory=CPUSet)
    memory: Blocks = ()


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
    NUMA node and type with a non-zero amount.
    """

    pods: tuple[PodView, ...] = ()
    allocatable_cpus: CPUSet = field(default_factory=CPUSet)
    allocatable_memory: Blocks = ()
