"""Pod-level resources in pod scope: one bubble per pod, exclusive slices in it, a shared pool for the rest (KEP-5526)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.state import Blocks
from agent.policy.cpu_assignment import take_cpus
from agent.policy.cpu_static import CPUManager
from agent.policy.memory_static import blocks_on
from agent.policy.refusal import EmptyPodSharedPoolError


def check_shared_pool(resource: str, containers: tuple[Container, ...], slices: Mapping[str, int], budget: int) -> None:
    """Refuse a pod whose exclusive slices leave nothing to a container that has none.

    slices: container -> amount it holds exclusively; containers not in it share. budget: the pod's amount, same unit.
    Long-running containers share what all slices of sidecars and apps leave; an ordinary init container shares what the
    sidecars before it leave. Raises EmptyPodSharedPoolError.
    """
    sidecars = 0
    for container in containers:
        if container.kind is ContainerKind.SIDECAR:
            sidecars += slices.get(container.name, 0)
        elif container.kind is ContainerKind.INIT and container.name not in slices and sidecars >= budget:
            raise EmptyPodSharedPoolError.init(resource)
    long_running = [container for container in containers if container.kind is not ContainerKind.INIT]
    held = sum(slices.get(container.name, 0) for container in long_running)
    if held >= budget and any(container.name not in slices for container in long_running):
        raise EmptyPodSharedPoolError.long_running(resource)


def slice_cpus(manager: CPUManager, pod: Pod, slices: Mapping[str, int], bubble: CPUSet) -> dict[str, CPUSet]:
    """Every container's CPUs inside the bubble.

    A sidecar's slice leaves the pool for good; an ordinary init container takes from the bubble minus the sidecars so far and
    gives everything back; then every app takes its slice; what is left at the end is the pod's shared pool, also for
    sidecars without a slice. Raises NotEnoughCPUs where the slices exceed the bubble.
    """
    entries: dict[str, CPUSet] = {}
    pool = bubble
    for container in pod.containers:
        count = slices.get(container.name)
        if count is None:
            if container.kind is ContainerKind.INIT:
                entries[container.name] = pool
            continue
        cpus = take_cpus(manager.topology, pool, count, manager.pick)
        entries[container.name] = cpus
        if container.kind is not ContainerKind.INIT:
            pool -= cpus
    for container in pod.containers:
        entries.setdefault(container.name, pool)
    return entries


def slice_memory(
    pod: Pod, slices: Mapping[str, Mapping[str, int]], budget: Mapping[str, int], nodes: NodeMask
) -> dict[str, Blocks]:
    """Every container's memory blocks inside the pod's: the same order as `slice_cpus`, on the NUMA nodes of the pod.

    slices: container -> resource -> bytes it holds exclusively. budget: resource -> bytes of the pod.
    """
    entries: dict[str, Blocks] = {}
    pool = dict(budget)
    for container in pod.containers:
        held = slices.get(container.name)
        if held is None:
            if container.kind is ContainerKind.INIT:
                entries[container.name] = blocks_on(nodes, pool)
            continue
        entries[container.name] = blocks_on(nodes, held)
        if container.kind is not ContainerKind.INIT:
            pool = {resource: size - held.get(resource, 0) for resource, size in pool.items()}
    for container in pod.containers:
        entries.setdefault(container.name, blocks_on(nodes, pool))
    return entries
