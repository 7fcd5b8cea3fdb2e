"""Which pod beside a kubelet may be evicted because there has been no room for it here for too long, so that it can go elsewhere.

Never: pods that nobody would make anew (no controller, static pods), that would come back to this node (DaemonSet), that are
critical, that no node could take (invalid), or that only wait. And none unless all is well: every source heard, the agent ready
and not paused. Disruption budgets are the API server's business, which is asked by an Eviction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.model.pod import Pod
from agent.model.state import Mark, PodPhase, PodRecord, State
from agent.policy.device_placement import DEVICES_AWAITED
from agent.policy.judgement import INVALID_POD
from agent.policy.observation import Observation, Wanted
from agent.policy.second import PAUSED, is_second

CRITICAL_PRIORITY = 2_000_000_000  # scheduling SystemCriticalPriority, that of system-cluster-critical
_CRITICAL_CLASSES = ("system-cluster-critical", "system-node-critical")
# annotations of an API server's copy and of a kubelet
_STATIC = ("kubernetes.io/config.mirror", "kubernetes.io/config.hash")
_CONFIG_SOURCE = "kubernetes.io/config.source"  # "api" where the kubelet has the pod from the API server
_KEPT_OWNERS = {"": "nobody would make it anew", "DaemonSet": "it would come back here", "Node": "it is a static pod"}
_OTHER_MARKS = {
    INVALID_POD: "it is invalid on every node",
    PAUSED: "the agent was paused",
    DEVICES_AWAITED: "it waits for its devices",
}


@dataclass(frozen=True, slots=True)
class EvictionRule:
    """after_seconds: how long a pod stays unplaced first. interval_seconds: between two evictions, successful or not."""

    after_seconds: float
    interval_seconds: float


def kept(pod: Pod, controller: str, mark: Mark) -> str:
    """Why this unplaced pod is never evicted; "" where it may be. controller: kind of the owner that manages it, "" for none."""
    if mark.reason in _OTHER_MARKS:
        return _OTHER_MARKS[mark.reason]
    if any(name in pod.annotations for name in _STATIC) or pod.annotations.get(_CONFIG_SOURCE, "api") != "api":
        return _KEPT_OWNERS["Node"]
    if controller in _KEPT_OWNERS:
        return _KEPT_OWNERS[controller]
    if (pod.priority or 0) >= CRITICAL_PRIORITY or pod.priority_class_name in _CRITICAL_CLASSES:
        return "it is critical"
    return ""


def waiting_since(
    before: Mapping[str, float], state: State, seen: Observation, *, ready: bool, now: float
) -> Mapping[str, float]:
    """UID -> since when a pod that may be evicted has been unplaced while all was well. before: the same of the last look.

    now: any clock that never goes back. Where something is wrong or paused, all begin anew afterwards.
    """
    if not ready or seen.paused or seen.silent_sources:
        return {}
    return {record.pod.uid: before.get(record.pod.uid, now) for record, _ in _evictable(state, seen)}


def next_eviction(
    state: State,
    seen: Observation,
    since: Mapping[str, float],
    not_before: Mapping[str, float],
    now: float,
    after: float,
) -> Pod | None:
    """The pod to be evicted now, if any: of the lowest priority, and of these the one that would be placed last.

    since: as `waiting_since` tells. not_before: UID -> when one that could not be evicted may be tried again. after: seconds.
    """
    chosen: Pod | None = None
    for record, wanted in _evictable(state, seen):
        uid = record.pod.uid
        if uid not in since or now < since[uid] + after or now < not_before.get(uid, now):
            continue
        if chosen is None or (wanted.pod.priority or 0) <= (chosen.priority or 0):
            chosen = wanted.pod
    return chosen


def _evictable(state: State, seen: Observation) -> Iterator[tuple[PodRecord, Wanted]]:
    """Unplaced pods that their source lists now and that may be evicted, in the order in which they would be placed."""
    listed = {each.pod.uid: each for each in seen.wanted if is_second(each.source)}
    for uid, record in state.pods.items():
        wanted = listed.get(uid)
        if wanted is None or record.unplaced is None or record.phase is PodPhase.TERMINATING or wanted.terminal:
            continue
        if not kept(wanted.pod, wanted.controller, record.unplaced):
            yield record, wanted
