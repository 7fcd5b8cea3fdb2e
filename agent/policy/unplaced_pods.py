"""The pods beside a kubelet for which there was no room, at one look: they run in the shared pool, and are tried again."""

from __future__ import annotations

from dataclasses import replace

from agent.model.state import PodPhase
from agent.policy.device_placement import is_awaiting
from agent.policy.look import Look
from agent.policy.observation import Decision, Event
from agent.policy.second import unplaced


def place(look: Look, *, retry: bool) -> None:
    """Try the unplaced pods again, in the order of their admission, where something has become free.

    Those that waited for their devices are tried once these are known, or have been awaited long enough.
    """
    for uid, record in look.state.pods.items():
        waited = is_awaiting(record.unplaced)
        if record.unplaced is None or record.phase is PodPhase.TERMINATING or not (retry or waited):
            continue
        if waited and look.awaited(record):
            continue
        verdict = look.judge(record.pod, record.source)
        if verdict.admitted:
            look.grant(replace(record, unplaced=None), verdict)
            look.decisions.append(Decision(Event.PLACED, record.pod, devices=look.seen.devices.of(uid)))
        elif (mark := unplaced(verdict)) != record.unplaced:
            look.put(replace(record, unplaced=mark))
            if waited:
                look.say(Event.UNPLACED, record.pod, mark.reason, verdict.message, verdict.hint)
