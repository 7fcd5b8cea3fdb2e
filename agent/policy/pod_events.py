"""What Kubernetes Events tell of pods beside a kubelet: that they run with less than they asked for or held, or no longer do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.model.pod import Pod
from agent.model.state import Mark, PodRecord, State
from agent.policy.device_placement import DEVICES_ELSEWHERE, is_awaiting
from agent.policy.second import is_second


@dataclass(frozen=True, slots=True)
class PodEvent:
    """One Event about a pod. reason: in CamelCase, as Events have it."""

    pod: Pod
    reason: str
    message: str
    warning: bool


def pod_events(before: State, after: State) -> Iterator[PodEvent]:
    """What changed between two states that the owners of pods should hear; nothing of pods that the API server does not have."""
    for uid, record in after.pods.items():
        old = before.pods.get(uid)
        if is_second(record.source) and record is not old:
            yield from _of_pod(old, record)


def _of_pod(old: PodRecord | None, new: PodRecord) -> Iterator[PodEvent]:
    pod = new.pod
    before = _unplaced(old) if old else None
    yield from _change(pod, before, _unplaced(new), "Unplaced", "Placed", "has what it asked for now")
    was = old.degraded if old else None
    reason = new.degraded.reason if new.degraded else ""
    yield from _change(pod, was, new.degraded, reason, "Restored", "has all of its CPUs and memory again")


def _unplaced(record: PodRecord) -> Mark | None:
    """A moment's wait for devices is nothing that anybody has to hear."""
    return None if is_awaiting(record.unplaced) else record.unplaced


def _change(pod: Pod, was: Mark | None, now: Mark | None, bad: str, good: str, text: str) -> Iterator[PodEvent]:
    if now is not None and (was is None or was.reason != now.reason):
        yield PodEvent(pod, bad, now.message, True)
    elif now is None and was is not None:
        yield PodEvent(pod, good, text, False)


def device_events(before: Mapping[str, Mark], after: Mapping[str, Mark], state: State) -> Iterator[PodEvent]:
    """Pods whose devices are found to be on other NUMA nodes than their CPUs, or no longer are. before, after: UID -> why."""
    for uid, record in state.pods.items():
        if is_second(record.source):
            text = "its devices are on the NUMA nodes of its CPUs"
            yield from _change(record.pod, before.get(uid), after.get(uid), DEVICES_ELSEWHERE, "DevicesNear", text)
