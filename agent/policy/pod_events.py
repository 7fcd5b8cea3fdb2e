"""What Kubernetes Events tell of pods beside a kubelet: that they run with less than they asked for or held, or no longer do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from agent.model.pod import Pod
from agent.model.state import Mark, PodRecord, State
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
    yield from _change(
        pod, old.unplaced if old else None, new.unplaced, "Unplaced", "Placed", "has what it asked for now"
    )
    was = old.degraded if old else None
    reason = new.degraded.reason if new.degraded else ""
    yield from _change(pod, was, new.degraded, reason, "Restored", "has all of its CPUs and memory again")


def _change(pod: Pod, was: Mark | None, now: Mark | None, bad: str, good: str, text: str) -> Iterator[PodEvent]:
    if now is not None and (was is None or was.reason != now.reason):
        yield PodEvent(pod, bad, now.message, True)
    elif now is None and was is not None:
        yield PodEvent(pod, good, text, False)
