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


@dataclass(frozen=True, slots=True)
class _Told:
    """The reasons that were told of one pod, by kind of mark, since it has had such a mark."""

    unplaced: frozenset[str] = frozenset()
    degraded: frozenset[str] = frozenset()

    def and_now(self, record: PodRecord) -> _Told:
        unplaced, degraded = _unplaced(record), record.degraded
        return _Told(
            self.unplaced | {unplaced.reason} if unplaced else frozenset(),
            self.degraded | {degraded.reason} if degraded else frozenset(),
        )


_NOTHING = _Told()


class PodEvents:
    """What owners should hear of their pods, of one state after another: a reason once until the pod has all again or is gone.

    Reasons take turns while others come and go. state: with which the agent began; what it says was told by the process before.
    """

    def __init__(self, state: State) -> None:
        self._told: dict[str, _Told] = {}
        self.look(state)

    def look(self, state: State) -> list[PodEvent]:
        """What is to be told now; nothing of pods that the API server does not have."""
        before, self._told = self._told, {}
        events: list[PodEvent] = []
        for uid, record in state.pods.items():
            if is_second(record.source):
                told = before.get(uid, _NOTHING)
                events += _of_pod(told, record)
                self._told[uid] = told.and_now(record)
        return events


def _of_pod(told: _Told, record: PodRecord) -> Iterator[PodEvent]:
    pod, degraded = record.pod, record.degraded
    yield from _change(pod, told.unplaced, _unplaced(record), "Unplaced", "Placed", "has what it asked for now")
    reason = degraded.reason if degraded else ""
    yield from _change(pod, told.degraded, degraded, reason, "Restored", "has all of its CPUs and memory again")


def _unplaced(record: PodRecord) -> Mark | None:
    """A moment's wait for devices is nothing that anybody has to hear."""
    return None if is_awaiting(record.unplaced) else record.unplaced


def _change(pod: Pod, told: frozenset[str], now: Mark | None, bad: str, good: str, text: str) -> Iterator[PodEvent]:
    if now is not None and now.reason not in told:
        yield PodEvent(pod, bad, now.message, True)
    elif now is None and told:
        yield PodEvent(pod, good, text, False)


def device_events(before: Mapping[str, Mark], after: Mapping[str, Mark], state: State) -> Iterator[PodEvent]:
    """Pods whose devices are found to be on other NUMA nodes than their CPUs, or no longer are. before, after: UID -> why."""
    for uid, record in state.pods.items():
        if is_second(record.source):
            text = "its devices are on the NUMA nodes of its CPUs"
            told = frozenset({before[uid].reason}) if uid in before else frozenset()
            yield from _change(record.pod, told, after.get(uid), DEVICES_ELSEWHERE, "DevicesNear", text)
