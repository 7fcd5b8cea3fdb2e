"""What a pod as a whole asks for and may use: the numbers of its own cgroup.

Source: kubelet cm/helpers_linux.go, ResourceConfigForPod.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.model.pod import Container, ContainerKind, Pod
from agent.model.quantity import Quantity


@dataclass(frozen=True, slots=True)
class PodBounds:
    """cpu_request_millis: for cpu.shares. cpu_limit_millis, memory_limit_bytes: None where the pod has no such bound,
    that is where a container declares no limit and the pod itself none either."""

    cpu_request_millis: int
    cpu_limit_millis: int | None
    memory_limit_bytes: int | None


def pod_bounds(pod: Pod) -> PodBounds:
    """The bounds of a pod: its own (pod-level) amounts before the peak of its containers' sums; overhead on top."""
    return PodBounds(_request(pod), _limit(pod, "cpu", Quantity.milli_value), _limit(pod, "memory", Quantity.value))


def _request(pod: Pod) -> int:
    level = pod.resources.requests.get("cpu") if pod.resources else None
    overhead = _amount(pod.overhead.get("cpu"), Quantity.milli_value)
    if level:
        return level.milli_value() + overhead
    return _peak(pod, lambda one: _amount(one.resources.requests.get("cpu"), Quantity.milli_value)) + overhead


def _limit(pod: Pod, resource: str, unit: Callable[[Quantity], int]) -> int | None:
    level = pod.resources.limits.get(resource) if pod.resources else None
    overhead = _amount(pod.overhead.get(resource), unit)
    if level:
        return unit(level) + overhead
    if not pod.containers or not all(one.resources.limits.get(resource) for one in pod.containers):
        return None
    return _peak(pod, lambda one: _amount(one.resources.limits.get(resource), unit)) + overhead


def _amount(quantity: Quantity | None, unit: Callable[[Quantity], int]) -> int:
    return unit(quantity) if quantity is not None else 0


def _peak(pod: Pod, amount: Callable[[Container], int]) -> int:
    """The most that the containers use at one time: an init container runs beside the sidecars started before it."""
    peak = sidecars = apps = 0
    for container in pod.containers:
        match container.kind:
            case ContainerKind.SIDECAR:
                sidecars += amount(container)
            case ContainerKind.INIT:
                peak = max(peak, sidecars + amount(container))
            case ContainerKind.APP:
                apps += amount(container)
    return max(peak, sidecars + apps)
