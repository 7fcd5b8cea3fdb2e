"""Quality of service: which class a pod is in, and which of its containers could own CPUs and memory.

Source: kubernetes pkg/apis/core/v1/helper/qos, KEP-2837 (pod-level resources), KEP-5526 (their resource managers).
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.model.pod import Container, Pod, QOSClass, ResourceList, ResourceRequirements
from agent.model.resources import CPU, MEMORY, add

_COUNTED = (CPU, MEMORY)  # no other resource has a say


def qos_class(pod: Pod, *, pod_level_resources: bool) -> QOSClass:
    """The class that the spec means. pod_level_resources: the feature gate PodLevelResources.

    With a `.spec.resources` object, even an empty one, only that counts; otherwise all containers do, init containers included.
    BestEffort: neither requests nor limits. Guaranteed: limits for cpu and memory everywhere, and the sums of the requests equal
    those of the limits, so that unequal containers may cancel out. A zero amount counts as absent. Burstable: the rest.
    """
    if pod_level_resources and pod.resources is not None:
        return _classify([pod.resources])
    return _classify([container.resources for container in pod.containers])


def _classify(parts: Sequence[ResourceRequirements]) -> QOSClass:
    requests = add(*(_counted(part.requests) for part in parts))
    limits = add(*(_counted(part.limits) for part in parts))
    if not requests and not limits:
        return QOSClass.BEST_EFFORT
    if all(len(_counted(part.limits)) == len(_COUNTED) for part in parts) and requests == limits:
        return QOSClass.GUARANTEED
    return QOSClass.BURSTABLE


def _counted(resources: ResourceList) -> ResourceList:
    return {name: resources[name] for name in _COUNTED if name in resources and resources[name].number > 0}


def pod_qos(pod: Pod, *, pod_level_resources: bool) -> QOSClass:
    """The class the managers act on: what the status says, else what the spec means.

    The API server fixes the class at creation, so a later edit of the resources never changes what a running pod is. A word
    in the status that is no class is passed over.
    """
    try:
        return QOSClass(pod.status.qos_class)
    except ValueError:
        return qos_class(pod, pod_level_resources=pod_level_resources)


def container_equivalent_guaranteed(container: Container) -> bool:
    """Whether this container alone would be Guaranteed: cpu and memory requests set, not zero, and equal to the limits.

    In a pod with pod-level resources this decides who may get CPUs and memory of its own.
    """
    requests, limits = _counted(container.resources.requests), _counted(container.resources.limits)
    return len(requests) == len(_COUNTED) and requests == limits
