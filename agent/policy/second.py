"""Being second beside a kubelet (design section 6): its pods are admitted already, whatever the managers here would have said.

A pod that would be refused runs in the shared pool, `unplaced`, until there is room; one whose accepted resize does not fit keeps
its pins, `degraded`.
"""

from __future__ import annotations

from dataclasses import replace

from agent.model.state import Mark, PodPhase, PodRecord, ResizeState
from agent.policy.verdict import Verdict

SECOND_SOURCES = frozenset({"kubelet", "pods", "apiserver"})
RESIZE_SHORT = "ResizeDoesNotFit"
PAUSED = "Paused"
PAUSED_MESSAGE = "no new exclusive CPUs or memory are given while the agent is paused"
PAUSED_HINT = "go on with: pinfold pause --off"


def is_second(source: str) -> bool:
    """Whether a kubelet has admitted the pods of this source."""
    return source in SECOND_SOURCES


def paused(verdict: Verdict) -> Verdict:
    """What becomes, while the agent is paused, of an admission that would give something exclusive."""
    return replace(verdict, admitted=False, reason=PAUSED, message=PAUSED_MESSAGE, hint=PAUSED_HINT)


def unplaced(verdict: Verdict) -> Mark:
    """Why a pod has to run in the shared pool."""
    return Mark(verdict.reason, f"{verdict.message} ({verdict.hint})" if verdict.hint else verdict.message)


def followed(record: PodRecord, *, terminating: bool, running: bool) -> PodRecord:
    """The record with the phase that its source shows. A pod that is listed again after all goes on."""
    if terminating:
        phase = PodPhase.TERMINATING
    elif running or record.phase is PodPhase.RUNNING:
        phase = PodPhase.RUNNING
    else:
        phase = PodPhase.ADMITTED
    return record if phase is record.phase else replace(record, phase=phase)


def after_resize(record: PodRecord) -> PodRecord:
    """The record of a second pod with or without the mark that its accepted resize does not fit here."""
    waits = record.resize.state in (ResizeState.DEFERRED, ResizeState.INFEASIBLE)
    ours = record.degraded is not None and record.degraded.reason == RESIZE_SHORT
    if waits:
        resize = record.resize
        return replace(record, degraded=Mark(RESIZE_SHORT, f"the kubelet resized it, its pins stay: {resize.message}"))
    return replace(record, degraded=None) if ours else record
