"""In which order waiting resizes are tried (kubelet allocation/allocation_manager.go, sortPendingResizes; KEP-1287)."""

from __future__ import annotations

from collections.abc import Iterable

from agent.model.pod import Pod, QOSClass
from agent.model.quantity import ZERO
from agent.model.state import PodRecord, ResizeState
from agent.policy.pod_resources import SizingOptions, pod_requests
from agent.policy.qos import pod_qos


def retry_order(records: Iterable[PodRecord], *, pod_level_resources: bool) -> list[PodRecord]:
    """The records with a resize that waits: first those that increase nothing, then by priority, quality of service
    (Guaranteed first), deferred ones before new ones, and by the time they have waited. The rest as given.
    """

    def key(record: PodRecord) -> tuple[bool, int, bool, bool, float]:
        desired = record.resize.desired or record.pod
        return (
            increases(record.pod, desired),
            -(record.pod.priority or 0),
            pod_qos(record.pod, pod_level_resources=pod_level_resources) is not QOSClass.GUARANTEED,
            record.resize.state is not ResizeState.DEFERRED,
            record.resize.since_seconds,
        )

    return sorted((record for record in records if record.resize.desired is not None), key=key)


def increases(allocated: Pod, desired: Pod) -> bool:
    """Whether the pod would request more cpu or memory than it has."""
    before, after = pod_requests(allocated, SizingOptions()), pod_requests(desired, SizingOptions())
    return any(after.get(name, ZERO) > before.get(name, ZERO) for name in ("cpu", "memory"))
