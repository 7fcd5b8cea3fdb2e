"""The pods that are here, at one look: who speaks for them now, what they ask for now, and who has ended.

Nothing is released without proof: a pod's grant ends when its source no longer lists it and its containers have stopped; a source
that cannot be read releases nothing (design section 5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agent.model.pod import Pod
from agent.model.state import PodPhase, PodRecord
from agent.policy.look import Look
from agent.policy.observation import Decision, Event, Wanted
from agent.policy.removal import container_started
from agent.policy.resize_lifecycle import edited, same_sizes
from agent.policy.second import after_resize, followed, is_second
from agent.policy.wanted_pods import goes_on, speakers, without_record


def follow_known(look: Look, wanted: Sequence[Wanted]) -> None:
    """Take over what the sources say of the pods that are here, and end those that have ended."""
    by_uid = speakers(look.state, wanted)
    for uid, record in look.state.pods.items():
        each = by_uid.get(uid)
        if _is_unheard(look, record):
            if each is not None and each.source not in look.seen.silent_sources:
                record = replace(record, source=each.source)  # another source speaks for it from now on
                look.put(record)
            elif not _is_provable(look, uid):
                continue
        if each is not None and goes_on(record, each):
            _follow_resources(look, _follow_life(look, record, each), each.pod)
        else:
            _end(look, record)


def release_unknown(look: Look, wanted: Sequence[Wanted]) -> None:
    """Grants without a record end once no source names their pod and nothing of it is alive."""
    named = {each.pod.uid for each in wanted}
    for uid in without_record(look.state):
        if uid not in named and _is_provable(look, uid):
            look.free(uid)
            look.say(Event.RELEASED, Pod(uid, uid), message="its pod is not known here, and nothing of it runs")


def _is_unheard(look: Look, record: PodRecord) -> bool:
    """Whether no source says anything about this pod: its own cannot be read, or is not configured any more."""
    sources = look.seen.sources
    return record.source in look.seen.silent_sources or (sources is not None and record.source not in sources)


def _is_provable(look: Look, uid: str) -> bool:
    """Whether the end of a pod of which no source speaks is proven: all are heard, and nothing of it is alive."""
    alive = any(other == uid for other, _ in look.seen.alive)
    return look.seen.cgroups_seen and not look.seen.silent_sources and not alive


def _follow_life(look: Look, record: PodRecord, wanted: Wanted) -> PodRecord:
    """The record of a pod beside a kubelet, with the source that speaks for it now and the phase it has reached."""
    if not is_second(wanted.source):
        return record
    after = replace(record, source=wanted.source)
    after = followed(after, terminating=wanted.pod.terminating, running=bool(wanted.running))
    if after != record:
        look.put(after)
    if wanted.running:
        _started(look, record.pod, wanted.running)
    if after.phase is PodPhase.TERMINATING and record.phase is not PodPhase.TERMINATING:
        look.say(Event.TERMINATING, record.pod, message="keeps what it holds until its containers have stopped")
    return after


def _started(look: Look, pod: Pod, container: str) -> None:
    """Init containers before one that runs have ended: their memory is free for others."""
    grants = container_started(look.state.grants, pod, container)
    if grants is not look.state.grants:
        look.hold(grants)
        look.resized = True


def _follow_resources(look: Look, record: PodRecord, pod: Pod) -> None:
    """An edit of cpu and memory is a wish to resize, which is answered later in the look."""
    if record.unplaced is not None:
        if not same_sizes(record.pod, pod):
            look.put(replace(record, pod=pod))
            look.resized = True
        return
    after = edited(record, pod, look.seen.now_seconds)
    if after is record:
        return
    if is_second(record.source):
        after = after_resize(after)
    look.put(after)
    if after.resize.desired is None:
        look.say(Event.RESIZE_WITHDRAWN, pod, message="the manifest asks for what is allocated again")
    else:
        look.decisions.append(Decision(Event.RESIZE_REQUESTED, pod, before=record.pod))


def _end(look: Look, record: PodRecord) -> None:
    uid = record.pod.uid
    if any(alive == uid for alive, _ in look.seen.alive):
        if record.phase is not PodPhase.TERMINATING:
            look.put(replace(record, phase=PodPhase.TERMINATING))
            look.say(Event.TERMINATING, record.pod, message="waits for its containers to stop")
        return
    look.free(uid)
    key = record.pod.namespaced_name
    look.state = replace(
        look.state,
        pods={other: kept for other, kept in look.state.pods.items() if other != uid},
        manifest_uids={name: kept for name, kept in look.state.manifest_uids.items() if name != key},
    )
    look.say(Event.RELEASED, record.pod)
