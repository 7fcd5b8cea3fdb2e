"""What a pod asks for and may use in all: containers, pod-level resources, overhead, and during a resize the status.

Kubernetes' own aggregation (component-helpers resource/helpers.go of 1.36), which the scheduler, quotas and the kubelet share.
Sizes of a running pod come from three sources: spec (desired), allocated (admitted by the node) and actual (what the runtime
reports). Until a resize has ended the largest counts, since any of them may be in force; a resize that is infeasible never will
be, so then the spec has no say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.pod import Container, ContainerKind, ContainerStatus, Pod, ResourceList, StatusList
from agent.model.quantity import ZERO, Quantity
from agent.model.resources import add, aggregate, is_pod_level_resource, maximum

RESIZE_PENDING = "PodResizePending"


@dataclass(frozen=True, slots=True)
class SizingOptions:
    """What counts (component-helpers, PodResourcesOptions).

    use_status_resources: the status counts, where it carries sizes.
    in_place_pod_level_resources: with that, the pod-level status counts too.
    skip_pod_level_resources: `.spec.resources` does not count.
    skip_container_level_resources: the containers do not count; for requests only.
    exclude_overhead: `.spec.overhead` does not count.
    non_missing_container_requests: what a container requests where it sets nothing.
    """

    use_status_resources: bool = False
    skip_pod_level_resources: bool = False
    skip_container_level_resources: bool = False
    exclude_overhead: bool = False
    in_place_pod_level_resources: bool = False
    non_missing_container_requests: ResourceList = field(default_factory=dict)


def pod_requests(pod: Pod, options: SizingOptions) -> Mapping[str, Quantity]:
    """The requests of the pod: of its containers together, overridden by pod-level ones per resource, plus overhead."""
    total = {} if options.skip_container_level_resources else aggregate_container_requests(pod, options)
    if pod.resources is not None and not options.skip_pod_level_resources:
        effective = _pod_level_requests(pod, options)
        total |= {name: effective.get(name, ZERO) for name in pod.resources.requests if is_pod_level_resource(name)}
    return total if options.exclude_overhead else add(total, pod.overhead)


def pod_limits(pod: Pod, options: SizingOptions) -> Mapping[str, Quantity]:
    """The limits of the pod, in the same way; overhead is added only to limits that are not zero."""
    total = aggregate_container_limits(pod, options)
    if pod.resources is not None and not options.skip_pod_level_resources:
        effective = _pod_level_limits(pod, options)
        total |= {name: effective.get(name, ZERO) for name in pod.resources.limits if is_pod_level_resource(name)}
    if not options.exclude_overhead:
        total |= {name: total[name] + more for name, more in pod.overhead.items() if total.get(name)}
    return total


def _pod_level_requests(pod: Pod, options: SizingOptions) -> ResourceList:
    spec = pod.resources.requests if pod.resources is not None else {}
    actual = pod.status.resources
    if actual is None or not (options.in_place_pod_level_resources and options.use_status_resources):
        return spec
    allocated = pod.status.allocated_resources or {}
    return maximum({} if resize_infeasible(pod) else spec, actual.requests, allocated)


def _pod_level_limits(pod: Pod, options: SizingOptions) -> ResourceList:
    spec = pod.resources.limits if pod.resources is not None else {}
    actual = pod.status.resources
    if actual is None or not (options.in_place_pod_level_resources and options.use_status_resources):
        return spec
    if resize_infeasible(pod):
        return spec if actual.limits is None else actual.limits
    return maximum(spec, actual.limits or {})


def aggregate_container_requests(pod: Pod, options: SizingOptions) -> dict[str, Quantity]:
    """The requests of the containers at the busiest moment of the pod's life, without pod-level resources and overhead."""
    statuses, infeasible = _statuses(pod, options), resize_infeasible(pod)
    return aggregate(
        (
            container.kind,
            {
                **options.non_missing_container_requests,
                **container_requests(container, statuses.get(container.name), infeasible=infeasible),
            },
        )
        for container in pod.containers
    )


def aggregate_container_limits(pod: Pod, options: SizingOptions) -> dict[str, Quantity]:
    """The limits of the containers, in the same way."""
    statuses, infeasible = _statuses(pod, options), resize_infeasible(pod)
    return aggregate(
        (container.kind, container_limits(container, statuses.get(container.name), infeasible=infeasible))
        for container in pod.containers
    )


def container_requests(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> ResourceList:
    """The largest of spec, allocated and actual per resource; without the spec while the pod's resize is infeasible.

    status: None, one without `resources` or that of an ordinary init container leaves the spec alone.
    """
    if status is None or status.resources is None or container.kind is ContainerKind.INIT:
        return container.resources.requests
    desired = {} if infeasible else container.resources.requests
    return maximum(desired, status.resources.requests, status.allocated_resources or {})


def container_limits(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> ResourceList:
    """The larger of spec and actual per resource (limits are not allocated), in the same way."""
    if status is None or status.resources is None or container.kind is ContainerKind.INIT:
        return container.resources.limits
    return maximum({} if infeasible else container.resources.limits, status.resources.limits)


def _statuses(pod: Pod, options: SizingOptions) -> Mapping[str, ContainerStatus]:
    if not options.use_status_resources:
        return {}
    return {each.name: each for each in pod.status.container_statuses if each.listed is not StatusList.EPHEMERAL}


def resize_infeasible(pod: Pod) -> bool:
    """Whether the node has said that it can never grant the pod's resize."""
    return _resize_pending_reason(pod) == "Infeasible"


def resize_deferred(pod: Pod) -> bool:
    """Whether the pod's resize waits until something frees up."""
    return _resize_pending_reason(pod) == "Deferred"


def _resize_pending_reason(pod: Pod) -> str:
    # Only the first such condition counts, and whatever its status field says: the reason alone decides upstream.
    return next((each.reason for each in pod.status.conditions if each.type == RESIZE_PENDING), "")


def pod_level_requests_set(pod: Pod) -> bool:
    """Whether `.spec.resources` requests a resource that it can hold."""
    return pod.resources is not None and any(map(is_pod_level_resource, pod.resources.requests))


def pod_level_limits_set(pod: Pod) -> bool:
    """Whether `.spec.resources` limits a resource that it can hold."""
    return pod.resources is not None and any(map(is_pod_level_resource, pod.resources.limits))


def pod_level_resources_set(pod: Pod) -> bool:
    """Whether the pod has pod-level resources: "a pod-level pod" in KEP-5526."""
    return pod_level_requests_set(pod) or pod_level_limits_set(pod)
