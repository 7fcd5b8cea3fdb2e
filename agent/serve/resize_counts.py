"""What the steps of a resize add to the kubelet's counters (names and labels: `agent.serve.series`)."""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.pod import ContainerKind, Pod, ResourceList, ResourceRequirements
from agent.policy.observation import Decision, Event
from agent.serve.series import Tally


class ResizeCounts:
    """Counts resizes, and remembers when those on their way began."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._started: dict[str, float] = {}

    def count(self, decision: Decision, now: float) -> None:
        """Count one decision. now: seconds of a monotonic clock."""
        uid = decision.pod.uid
        match decision.event:
            case Event.RESIZE_REQUESTED if decision.before is not None:
                for resource, requirement, operation in _changes(decision.before, decision.pod):
                    self._tally.add(
                        "kubelet_container_requested_resizes_total",
                        resource=resource,
                        requirement=requirement,
                        operation=operation,
                    )
            case Event.RESIZE_INFEASIBLE:
                self._tally.add("kubelet_pod_infeasible_resizes_total", reason_detail=decision.reason)
            case Event.RESIZE_STARTED:
                self._tally.add("pinfold_decisions_total", outcome="resized")
                self._started[uid] = now
                if decision.reason:
                    self._tally.add("kubelet_pod_deferred_accepted_resizes_total", retry_trigger=decision.reason)
            case Event.RESIZE_COMPLETED | Event.RESIZE_ERROR:
                started = self._started.pop(uid, None)
                if started is not None:
                    success = "true" if decision.event is Event.RESIZE_COMPLETED else "false"
                    name = "kubelet_pod_resize_duration_milliseconds"
                    self._tally.observe(name, 1000 * (now - started), success=success)
            case Event.RELEASED:
                self._started.pop(uid, None)


def _changes(before: Pod, after: Pod) -> Iterator[tuple[str, str, str]]:
    """(resource, limits or requests, add / remove / increase / decrease) of every container's change."""
    sizes = {container.name: container.resources for container in before.containers}
    for container in after.containers:
        if container.kind is ContainerKind.INIT:
            continue
        had = sizes.get(container.name, ResourceRequirements())
        for resource in ("cpu", "memory"):
            for requirement, old, new in (
                ("limits", had.limits, container.resources.limits),
                ("requests", had.requests, container.resources.requests),
            ):
                operation = _operation(resource, old, new)
                if operation:
                    yield resource, requirement, operation


def _operation(resource: str, old: ResourceList, new: ResourceList) -> str:
    had, has = old.get(resource), new.get(resource)
    if had == has:
        return ""
    if had is None or has is None:
        return "add" if had is None else "remove"
    return "increase" if has > had else "decrease"
