"""Which pods the sources want here, and which of those that are here they list: these keep their place, others have to end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.model.pod import Pod
from agent.model.state import PodPhase, PodRecord, State
from agent.policy.observation import Wanted
from agent.policy.second import is_second

_NOBODY: Mapping[str, Pod] = {}


def ending(state: State, wanted: Sequence[Wanted], silent_sources: frozenset[str] = frozenset()) -> frozenset[str]:
    """UIDs of the pods that nobody wants any more, or not like this: they go once their containers have stopped.

    Grants without a record of their pod are among them as long as no source names the pod.
    """
    by_uid = speakers(state, with_uids(state, wanted))
    known = (
        uid
        for uid, record in state.pods.items()
        if record.source not in silent_sources and not goes_on(record, by_uid.get(uid))
    )
    return frozenset((*known, *(uid for uid in without_record(state) if uid not in by_uid)))


def without_record(state: State) -> list[str]:
    """UIDs that hold something and of which nothing else is known."""
    return [uid for uid in state.grants.holders if uid not in state.pods]


def with_uids(
    state: State,
    wanted: Sequence[Wanted],
    fresh_uids: Sequence[str] = (),
    waiting: Mapping[str, Pod] = _NOBODY,
) -> list[Wanted]:
    """The wanted pods, each with a UID: its own, the one remembered for its manifest, or a fresh one ("" where none is left).

    waiting: by "namespace/name", pods that were refused: they keep the UID under which that was said.
    """
    fresh = iter(fresh_uids)
    remembered = dict(waiting)
    result = []
    for each in wanted:
        if not each.pod.uid:
            key = each.pod.namespaced_name
            uid = state.manifest_uids.get(key) or _same_uid(remembered.pop(key, None), each.pod) or next(fresh, "")
            each = replace(each, pod=replace(each.pod, uid=uid))
        result.append(each)
    return result


def _same_uid(before: Pod | None, pod: Pod) -> str:
    if before is not None and before.as_asked == replace(pod, uid=before.uid).as_asked:
        return before.uid
    return ""


def speakers(state: State, wanted: Iterable[Wanted]) -> dict[str, Wanted]:
    """Who speaks for each UID. Where two pods claim one, or two files one name, a pod that is here keeps its own place."""
    found: dict[str, Wanted] = {}
    for each in wanted:
        record = state.pods.get(each.pod.uid)
        before = found.get(each.pod.uid)
        if before is None or record is None or _is_of(record, each) or not _is_of(record, before):
            found[each.pod.uid] = each
    return found


def _is_of(record: PodRecord, wanted: Wanted) -> bool:
    return record.pod.namespaced_name == wanted.pod.namespaced_name and goes_on(record, wanted)


def goes_on(record: PodRecord, wanted: Wanted | None) -> bool:
    """Whether a pod that is here stays, with what its source wants now; None where it wants it no more."""
    if wanted is None or wanted.terminal:
        return False
    if is_second(wanted.source):
        return True
    if record.phase is PodPhase.TERMINATING:
        return False
    return record.fingerprint in ("", wanted.fingerprint)  # "": imported, or written before fingerprints were kept
