"""Arithmetic on resource lists, and how those of a pod's containers add up (KEP-753).

A resource that a list does not name is absent, which is not zero: sums and maxima name what any of the lists names.
"""

from __future__ import annotations

from collections.abc import Iterable

from agent.model.pod import ContainerKind, ResourceList
from agent.model.quantity import Quantity

CPU = "cpu"
MEMORY = "memory"
HUGEPAGES_PREFIX = "hugepages-"


def is_hugepages(name: str) -> bool:
    """Whether a resource is huge pages of some size: "hugepages-2Mi"."""
    return name.startswith(HUGEPAGES_PREFIX)


def is_memory(name: str) -> bool:
    """Whether a resource is memory of some kind, which the memory manager places: memory itself, or huge pages."""
    return name == MEMORY or is_hugepages(name)


def is_pod_level_resource(name: str) -> bool:
    """Whether `.spec.resources` can hold this resource: cpu, memory, hugepages (KEP-2837)."""
    return name == CPU or is_memory(name)


def add(*lists: ResourceList) -> dict[str, Quantity]:
    """The sum per resource."""
    total: dict[str, Quantity] = {}
    for each in lists:
        for name, amount in each.items():
            total[name] = total[name] + amount if name in total else amount
    return total


def maximum(*lists: ResourceList) -> dict[str, Quantity]:
    """The largest amount per resource."""
    largest: dict[str, Quantity] = {}
    for each in lists:
        for name, amount in each.items():
            if name not in largest or amount > largest[name]:
                largest[name] = amount
    return largest


def aggregate(containers: Iterable[tuple[ContainerKind, ResourceList]]) -> dict[str, Quantity]:
    """What a pod's containers need at the busiest moment of its life. `containers`: init ones in the order they start.

    Either everything that stays (apps and sidecars) runs together, or an init container runs beside the sidecars before it.
    Source: KEP-753, "Resources calculation for scheduling and pod admission".
    """
    parts = list(containers)
    apps = add(*(resources for kind, resources in parts if kind is ContainerKind.APP))
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for kind, resources in parts:
        if kind is ContainerKind.SIDECAR:
            sidecars = add(sidecars, resources)
            starting = maximum(starting, sidecars)
        elif kind is ContainerKind.INIT:
            starting = maximum(starting, add(resources, sidecars))
    if not starting:
        return apps
    # Apps before sidecars, as upstream adds them: where suffixes differ the first one decides how a sum is spelt.
    return maximum(add(apps, sidecars), starting)


def most_at_once(amounts: Iterable[tuple[ContainerKind, int]]) -> int:
    """The most of one amount that containers of these kinds hold at one time, in the order in which they start."""
    most = sidecars = apps = 0
    for kind, amount in amounts:
        match kind:
            case ContainerKind.SIDECAR:
                sidecars += amount
                most = max(most, sidecars)
            case ContainerKind.INIT:
                most = max(most, sidecars + amount)
            case ContainerKind.APP:
                apps += amount
    return max(most, sidecars + apps)
