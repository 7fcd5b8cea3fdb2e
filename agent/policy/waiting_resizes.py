"""The resizes that wait, at one look: new wishes are answered, deferred ones where something may have become free."""

from __future__ import annotations

from agent.model.state import PodPhase, PodRecord, ResizeState
from agent.policy import resize_events
from agent.policy.look import Look
from agent.policy.observation import Event
from agent.policy.removal import holds
from agent.policy.resize import judge_resize
from agent.policy.resize_lifecycle import answered
from agent.policy.resize_order import retry_order
from agent.policy.second import after_resize, is_second


def try_resizes(look: Look, *, retry: bool) -> None:
    """Answer new wishes, and deferred ones where something may have become free; with `retry` infeasible ones too."""
    gates = look.managers.gates
    freed = "pod_terminated" if look.released else "periodic_retry"
    for record in retry_order(look.state.pods.values(), pod_level_resources=gates.pod_level_resources):
        waiting = record.resize.state
        quiet = waiting is ResizeState.DEFERRED and look.state is look.before
        if record.phase is PodPhase.TERMINATING or (look.seen.paused and holds(look.state.grants, record.pod.uid)):
            continue
        if not retry and (quiet or waiting is ResizeState.INFEASIBLE):
            continue
        if _try_resize(look, record, freed if waiting is ResizeState.DEFERRED else ""):
            freed, look.resized = "pod_resized", True


def _try_resize(look: Look, record: PodRecord, trigger: str) -> bool:
    desired, resize = record.resize.desired, record.resize
    assert desired is not None
    running = [each.pod for each in look.state.pods.values()]
    verdict = judge_resize(look.managers, look.node, look.state.grants, running, record, desired, look.amounts)
    after = answered(record, verdict)
    if is_second(record.source):
        after = after_resize(after)
    if verdict.state is ResizeState.IN_PROGRESS:
        look.hold(verdict.grants)
        look.put(after)
        look.say(Event.RESIZE_STARTED, after.pod, trigger, resize_events.started(after.pod, resize.generation))
        return True
    if after != record:
        look.put(after)
    if verdict.state is not resize.state:
        event = Event.RESIZE_DEFERRED if verdict.state is ResizeState.DEFERRED else Event.RESIZE_INFEASIBLE
        text = resize_events.waits(desired, resize.generation, verdict.state, verdict.reason, verdict.message)
        look.say(event, desired, verdict.reason, text)
    return False
