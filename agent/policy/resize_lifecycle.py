"""How a resize goes on in a pod's record: asked for, withdrawn, answered, in force.

Every step gives the next record; `agent.policy.plan` puts it in the state, so that each is durable before anything follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.model.pod import Pod
from agent.model.state import PodRecord, Resize, ResizeState, State
from agent.policy.resize import ResizeVerdict
from agent.policy.resize_terms import headline, largest


def same_sizes(one: Pod, other: Pod) -> bool:
    """Whether two pods differ in nothing that a resize changes."""
    return _sizes(one) == _sizes(other)


def _sizes(pod: Pod) -> object:
    return [(container.name, container.resources) for container in pod.containers], pod.resources


def edited(record: PodRecord, pod: Pod, now_seconds: float) -> PodRecord:
    """The record once its source wants the sizes of `pod`; the same one where it wanted these before."""
    resize = record.resize
    wanted = resize.desired if resize.desired is not None else record.pod
    if same_sizes(wanted, pod):
        return record
    generation = resize.generation + 1
    if same_sizes(record.pod, pod):
        return replace(record, resize=_nothing_waits(record, generation))
    waits_already = resize.state is ResizeState.DEFERRED  # as the transition time of the kubelet's condition
    return replace(
        record,
        resize=replace(
            resize,
            state=ResizeState.PENDING,
            reason="",
            message="",
            desired=pod,
            since_seconds=resize.since_seconds if waits_already else now_seconds,
            generation=generation,
            shortfall=(),
        ),
    )


def _nothing_waits(record: PodRecord, generation: int) -> Resize:
    resize = record.resize
    return replace(
        resize,
        state=headline(resize),
        reason="",
        message="",
        desired=None,
        since_seconds=0.0,
        generation=generation,
        shortfall=(),
    )


def answered(record: PodRecord, verdict: ResizeVerdict) -> PodRecord:
    """The record after a verdict about its desired sizes."""
    resize, desired = record.resize, record.resize.desired
    assert desired is not None
    if verdict.state is not ResizeState.IN_PROGRESS:
        return replace(
            record,
            resize=replace(
                resize,
                state=verdict.state,
                reason=verdict.reason,
                message=verdict.message,
                shortfall=verdict.shortfall,
            ),
        )
    started = replace(resize, actual=largest(resize.actual, record.pod), error="")
    allocated = replace(desired, status=record.pod.status)
    moved = replace(record, pod=allocated, resize=started, affinities={**record.affinities, **verdict.affinities})
    return replace(moved, resize=_nothing_waits(moved, resize.generation))


@dataclass(frozen=True, slots=True)
class Actuation:
    """What became of the sizes in the kernel. errors: pod UID -> why its sizes are not in force.

    unsettled: pods whose cgroups do not all say what they shall yet.
    """

    errors: Mapping[str, str] = field(default_factory=dict)
    unsettled: frozenset[str] = frozenset()


def settled(record: PodRecord, done: Actuation) -> PodRecord:
    """The record after its sizes were written, or could not be; the same one where nothing is on its way."""
    resize, uid = record.resize, record.pod.uid
    if resize.actual is None:
        return record
    if uid in done.errors:
        resize = replace(resize, error=done.errors[uid])
    elif uid not in done.unsettled:
        resize = replace(resize, actual=None, error="")
    if resize.desired is None:
        resize = replace(resize, state=headline(resize))
    return record if resize == record.resize else replace(record, resize=resize)


def in_progress(state: State) -> frozenset[str]:
    """The pods whose allocated sizes may not be in force."""
    return frozenset(uid for uid, record in state.pods.items() if record.resize.actual is not None)
