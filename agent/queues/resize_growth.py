"""What a resize adds to what a pod occupies: CPU and memory, the two resources that can be resized.

Source: KAI-Scheduler v0.18 admission check for pods/resize, and the design document "In-Place Pod Resize Accounting and Queue
Admission". Pod-level requests are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from agent.model.pod import Pod
from agent.model.quantity import ZERO, Quantity
from agent.model.resources import CPU, MEMORY, is_pod_level_resource
from agent.policy.pod_resources import SizingOptions, aggregate_container_requests, pod_requests

_SPEC = SizingOptions()
_EFFECTIVE = SizingOptions(use_status_resources=True)
_POD_LEVEL_SPEC = SizingOptions(skip_container_level_resources=True, exclude_overhead=True)
_POD_LEVEL_EFFECTIVE = SizingOptions(
    use_status_resources=True,
    in_place_pod_level_resources=True,
    skip_container_level_resources=True,
    exclude_overhead=True,
)


class CPUMemory(NamedTuple):
    """The two resources that can be resized, in whole units: millicores and bytes."""

    cpu_millis: int = 0
    memory_bytes: int = 0

    @classmethod
    def of(cls, amounts: Mapping[str, Quantity]) -> CPUMemory:
        """Both rounded up to whole units; absent is 0."""
        return cls(amounts.get(CPU, ZERO).milli_value(), amounts.get(MEMORY, ZERO).value())


NOTHING = CPUMemory()


def is_allocated(pod: Pod) -> bool:
    """Whether queues are charged for the pod: running, or pending and scheduled (its first PodScheduled condition is
    True).
    """
    if pod.status.phase == "Pending":
        return next((each.status == "True" for each in pod.status.conditions if each.type == "PodScheduled"), False)
    return pod.status.phase == "Running"


def growth(old: Pod, new: Pod, *, pod_level: bool) -> dict[str, Quantity]:
    """What a resize adds to the pod's occupancy, resources that grow only.

    Per resource whose spec aggregate changes: the new spec aggregate less what the pod occupies now (the largest of
    spec, allocated and actual). So moving requests between containers and changing limits is free, and the step back
    from an infeasible size is not. With `pod_level`, the same of the pod-level requests, and the larger of the two
    counts.
    """
    before, after = aggregate_container_requests(old, _SPEC), aggregate_container_requests(new, _SPEC)
    occupied = aggregate_container_requests(old, _EFFECTIVE)
    delta = _growth(before, after, occupied)
    if pod_level and (old.resources is not None or new.resources is not None):
        # Without a pod-level request so far, the pod holds what its containers do.
        held = {**occupied, **pod_requests(old, _POD_LEVEL_EFFECTIVE)}
        more = _growth(pod_requests(old, _POD_LEVEL_SPEC), pod_requests(new, _POD_LEVEL_SPEC), held)
        delta |= {
            name: amount
            for name, amount in more.items()
            if is_pod_level_resource(name) and amount > delta.get(name, ZERO)
        }
    return delta


def _growth(
    before: Mapping[str, Quantity], after: Mapping[str, Quantity], occupied: Mapping[str, Quantity]
) -> dict[str, Quantity]:
    changed = {name: amount for name, amount in after.items() if amount != before.get(name, ZERO)}
    return {name: more for name, amount in changed.items() if (more := amount - occupied.get(name, ZERO)) > ZERO}
