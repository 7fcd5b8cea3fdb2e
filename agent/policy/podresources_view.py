"""What PodResources tells of the pods and their grants, in the kubelet's shape of release 1.36 or 1.37.

Sources: kubelet apis/podresources/server_v1.go (which containers, in which order), KEP-3695 (Get, active pods), KEP-753
(restartable init containers), KEP-5526 (pod level).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from agent.model.cpuset import CPUSet
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.podresources import NOTHING_PASSED, ContainerView, Passed, PodResourcesView, PodView
from agent.model.state import Blocks, Grants, MemoryBlock
from agent.policy.cgroup_intents import has_slice
from agent.policy.qos import container_equivalent_guaranteed


class Shape(StrEnum):
    """How a pod with a bubble is told.

    V1_36: only containers, with what the state holds; every member of the pod's shared pool repeats that pool.
    V1_37: the whole bubble at pod level; a container repeats its own slice, a member of the shared pool tells nothing.
    """

    V1_36 = "1.36"
    V1_37 = "1.37"


_NONE_PASSED: Mapping[str, Mapping[str, Passed]] = {}


def podresources_view(
    pods: Iterable[Pod],
    grants: Grants,
    allocatable_cpus: CPUSet,
    shape: Shape = Shape.V1_37,
    passed: Mapping[str, Mapping[str, Passed]] = _NONE_PASSED,
    allocatable_devices: bytes = b"",
) -> PodResourcesView:
    """What a client of PodResources may see.

    pods: in the order in which they are told; those that have succeeded, failed or been refused are left out. allocatable_cpus:
    online minus reserved, empty with CPU policy `none`. passed: pod UID -> container -> devices of another server.
    """
    return PodResourcesView(
        pods=tuple(_pod_view(pod, grants, shape, passed.get(pod.uid, {})) for pod in pods if not pod.terminal),
        allocatable_cpus=allocatable_cpus,
        allocatable_memory=_allocatable_memory(grants),
        allocatable_devices=allocatable_devices,
    )


def _pod_view(pod: Pod, grants: Grants, shape: Shape, passed: Mapping[str, Passed]) -> PodView:
    ordered = [
        container
        for kind in (ContainerKind.SIDECAR, ContainerKind.APP)
        for container in pod.containers
        if container.kind is kind
    ]
    containers = tuple(
        _container_view(pod, container, grants, shape, passed.get(container.name, NOTHING_PASSED))
        for container in ordered
    )
    if shape is Shape.V1_36:
        return PodView(pod.name, pod.namespace, containers)
    bubble = grants.cpu.pod_entries.get(pod.uid, CPUSet())
    return PodView(pod.name, pod.namespace, containers, bubble, grants.memory.pod_entries.get(pod.uid, ()))


def _container_view(pod: Pod, container: Container, grants: Grants, shape: Shape, passed: Passed) -> ContainerView:
    cpus = grants.cpu.entries.get(pod.uid, {}).get(container.name, CPUSet())
    memory = grants.memory.entries.get(pod.uid, {}).get(container.name, ())
    if shape is Shape.V1_37:
        if pod.uid in grants.cpu.pod_entries and not has_slice(grants.cpu, pod, container):
            cpus = CPUSet()
        if pod.uid in grants.memory.pod_entries and not container_equivalent_guaranteed(container):
            memory = ()  # a share of the pod's memory; a fractional CPU request does not cost a container its own blocks
    return ContainerView(container.name, container.kind, cpus, memory, passed)


def _allocatable_memory(grants: Grants) -> Blocks:
    return tuple(
        MemoryBlock(resource, table.allocatable, 1 << node)
        for node, state in sorted(grants.memory.machine.items())
        for resource, table in sorted(state.memory.items())
        if table.allocatable
    )
