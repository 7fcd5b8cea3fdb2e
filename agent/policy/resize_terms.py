"""The terms of a pod that is being resized: desired, allocated, actual, and what follows from them for others.

Conditions are the kubelet's (`PodResizePending`, `PodResizeInProgress`, KEP-1287). The effective request of a pod is computed
from `as_status` by the helper that the scheduler uses, so that both always agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.model.pod import (
    Container,
    ContainerKind,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatusResources,
    ResourceRequirements,
    StatusList,
)
from agent.model.quantity import Quantity
from agent.model.resources import maximum
from agent.model.state import PodRecord, Resize, ResizeState
from agent.policy.pod_resources import (
    RESIZE_PENDING,
    SizingOptions,
    container_requests,
    pod_requests,
    resize_infeasible,
)

RESIZE_IN_PROGRESS = "PodResizeInProgress"
_PENDING_REASONS = {ResizeState.DEFERRED: "Deferred", ResizeState.INFEASIBLE: "Infeasible"}
EFFECTIVE = SizingOptions(use_status_resources=True, in_place_pod_level_resources=True)


def conditions(resize: Resize) -> tuple[PodCondition, ...]:
    """The kubelet's conditions for these terms. Both can be there: one resize in progress, the next one waiting."""
    result = []
    if resize.desired is not None and resize.state in _PENDING_REASONS:
        result.append(PodCondition(RESIZE_PENDING, "True", _PENDING_REASONS[resize.state], resize.message))
    if resize.actual is not None:
        result.append(PodCondition(RESIZE_IN_PROGRESS, "True", "Error" if resize.error else "", resize.error))
    return tuple(result)


def headline(resize: Resize) -> ResizeState:
    """The state of a pod of which no resize waits."""
    if resize.actual is None:
        return ResizeState.NONE
    return ResizeState.ERROR if resize.error else ResizeState.IN_PROGRESS


def as_status(record: PodRecord) -> Pod:
    """The pod as an API server would show it: the spec as desired, allocated and actual sizes in the status."""
    allocated, desired = record.pod, record.resize.desired or record.pod
    actual = record.resize.actual or allocated
    in_force = {container.name: container.resources for container in actual.containers}
    statuses = sorted(
        (_container_status(each, in_force.get(each.name, each.resources)) for each in allocated.containers),
        key=lambda status: status.listed is StatusList.INIT,
    )
    status = replace(record.pod.status, conditions=conditions(record.resize), container_statuses=tuple(statuses))
    if allocated.resources is not None:
        own = actual.resources or allocated.resources
        status = replace(
            status,
            allocated_resources=allocated.resources.requests,
            resources=PodStatusResources(own.requests, own.limits),
        )
    return replace(allocated, containers=desired.containers, resources=desired.resources, status=status)


def _container_status(container: Container, in_force: ResourceRequirements) -> ContainerStatus:
    listed = StatusList.APP if container.kind is ContainerKind.APP else StatusList.INIT
    return ContainerStatus(container.name, container.resources.requests, in_force, listed=listed)


def effective_requests(record: PodRecord) -> Mapping[str, Quantity]:
    """What this pod counts for: the largest of desired, allocated and actual; not the desired one while it is Infeasible."""
    return pod_requests(as_status(record), EFFECTIVE)


def effective_container_requests(pod: Pod) -> Mapping[str, Mapping[str, Quantity]]:
    """The same per container, before any aggregation. pod: as `as_status` gives it."""
    statuses = {status.name: status for status in pod.status.container_statuses}
    infeasible = resize_infeasible(pod)
    return {
        each.name: container_requests(each, statuses.get(each.name), infeasible=infeasible) for each in pod.containers
    }


def largest(one: Pod | None, other: Pod) -> Pod:
    """The most of two sizes of a pod: what may be in force between them. A limit that one of them lacks is none."""
    if one is None:
        return other
    sizes = {container.name: container.resources for container in one.containers}
    containers = tuple(
        replace(each, resources=_largest(sizes.get(each.name, each.resources), each.resources))
        for each in other.containers
    )
    own = other.resources
    if own is not None and one.resources is not None:
        own = _largest(one.resources, own)
    return replace(other, containers=containers, resources=own)


def _largest(one: ResourceRequirements, other: ResourceRequirements) -> ResourceRequirements:
    limits = maximum(one.limits, other.limits)
    return ResourceRequirements(
        maximum(one.requests, other.requests),
        {name: amount for name, amount in limits.items() if name in one.limits and name in other.limits},
    )
