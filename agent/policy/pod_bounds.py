"""What a pod as a whole asks for and may use: the numbers of its own cgroup.

Source: kubelet cm/helpers_linux.go, ResourceConfigForPod.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.model.pod import Pod
from agent.policy.pod_resources import SizingOptions, pod_limits, pod_requests

_SPEC = SizingOptions()  # a pod's record holds its allocated resources as the spec


@dataclass(frozen=True, slots=True)
class PodBounds:
    """cpu_request_millis: for cpu.shares. cpu_limit_millis, memory_limit_bytes: None where the pod has no such bound.

    A pod is bounded by its own (pod-level) limit, or where every container has one by the most they add up to at one time.
    """

    cpu_request_millis: int
    cpu_limit_millis: int | None
    memory_limit_bytes: int | None


def pod_bounds(pod: Pod) -> PodBounds:
    """The bounds of a pod, its overhead included."""
    request = pod_requests(pod, _SPEC).get("cpu")
    limits = pod_limits(pod, _SPEC)
    return PodBounds(
        cpu_request_millis=request.milli_value() if request else 0,
        cpu_limit_millis=limits["cpu"].milli_value() if _is_bounded(pod, "cpu") else None,
        memory_limit_bytes=limits["memory"].value() if _is_bounded(pod, "memory") else None,
    )


def _is_bounded(pod: Pod, resource: str) -> bool:
    if pod.resources is not None and pod.resources.limits.get(resource):
        return True
    return bool(pod.containers) and all(one.resources.limits.get(resource) for one in pod.containers)
