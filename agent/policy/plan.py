"""One look at the node: which pods should be here, which have ended, and the whole next state.

`decide` reads what the sources list and what runs, and returns the next state with what happened, for logs, events and
metrics. Nothing is released without proof: a pod's grant ends when its source no longer lists it and its containers have
stopped; a source that cannot be read releases nothing (design section 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from agent.model.pod import Pod
from agent.model.state import Affinity, FirstGrant, Grants, PodPhase, PodRecord, ResizeState, State
from agent.policy import resize_events
from agent.policy.device_placement import awaited, awaiting, is_awaiting, misaligned
from agent.policy.free_hugepages import FreeHugepagesRule, missing_hugepages
from agent.policy.judgement import judge
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Event, Observation, Plan, Refused, Wanted
from agent.policy.removal import container_started, holds, remove
from agent.policy.resize import judge_resize
from agent.policy.resize_lifecycle import Actuation, answered, edited, in_progress, same_sizes, settled
from agent.policy.resize_order import retry_order
from agent.policy.second import after_resize, followed, is_second, paused, unplaced
from agent.policy.verdict import Verdict

_NOBODY: Mapping[str, Pod] = {}
HUGEPAGES_IN_USE = "HugepagesInUse"  # of an admission: fewer are really free than the pod was given


def ending(state: State, wanted: Sequence[Wanted], silent_sources: frozenset[str] = frozenset()) -> frozenset[str]:
    """UIDs of the pods that nobody wants any more, or not like this: they go once their containers have stopped.

    Grants without a record of their pod are among them as long as no source names the pod.
    """
    by_uid = _by_uid(state, with_uids(state, wanted))
    known = (
        uid
        for uid, record in state.pods.items()
        if record.source not in silent_sources and not _goes_on(record, by_uid.get(uid))
    )
    return frozenset((*known, *(uid for uid in _without_record(state) if uid not in by_uid)))


def _without_record(state: State) -> list[str]:
    cpu, memory = state.grants.cpu, state.grants.memory
    held = {**cpu.entries, **cpu.pod_entries, **memory.entries, **memory.pod_entries}
    return [uid for uid in held if uid not in state.pods]


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


def _by_uid(state: State, wanted: Iterable[Wanted]) -> dict[str, Wanted]:
    """Who speaks for each UID. Where two pods claim one, or two files one name, a pod that is here keeps its own place."""
    found: dict[str, Wanted] = {}
    for each in wanted:
        record = state.pods.get(each.pod.uid)
        before = found.get(each.pod.uid)
        if before is None or record is None or _is_of(record, each) or not _is_of(record, before):
            found[each.pod.uid] = each
    return found


def _is_of(record: PodRecord, wanted: Wanted) -> bool:
    return record.pod.namespaced_name == wanted.pod.namespaced_name and _goes_on(record, wanted)


def _goes_on(record: PodRecord, wanted: Wanted | None) -> bool:
    if wanted is None or wanted.terminal:
        return False
    if is_second(wanted.source):
        return True
    if record.phase is PodPhase.TERMINATING:
        return False
    return record.fingerprint in ("", wanted.fingerprint)  # "": imported, or written before fingerprints were kept


def decide(
    managers: Managers,
    node: NodeCapacity,
    state: State,
    seen: Observation,
    refused: Mapping[str, Refused],
    *,
    retry: bool = False,
) -> Plan:
    """The next state. refused: what the last look refused; tried again where something became free, or with `retry`.

    retry: something may have changed since the last look that the state does not show by itself (the rules, the machine).

    Unchanged input gives an unchanged state (same generation) and no decisions.
    """
    run = _Run(managers, node, state, seen)
    waiting = {key: each.pod for key, each in refused.items() if each.pod.uid not in state.pods}
    known = with_uids(state, seen.wanted, seen.fresh_uids, waiting)
    run.follow_known(known)
    run.release_unknown(known)
    # a pod that has just ended gives its name a new uid
    wanted = with_uids(run.state, seen.wanted, seen.fresh_uids, waiting)
    run.try_resizes(retry=retry)
    free = retry or run.released or run.resized
    run.place(retry=free)
    run.admit_new(wanted, refused, retry=free)
    after = replace(run.state, generation=state.generation + 1) if run.state != state else state
    return Plan(after, run.refused, tuple(run.decisions), misaligned(managers, after, seen.devices))


class _Run:
    """One call of `decide` in progress."""

    def __init__(self, managers: Managers, node: NodeCapacity, state: State, seen: Observation) -> None:
        self.managers = managers
        self.node = node
        self.state = state
        self.seen = seen
        self.before = state
        self.released = False
        self.resized = False
        self.refused: dict[str, Refused] = {}
        self.decisions: list[Decision] = []

    def say(self, event: Event, pod: Pod, reason: str = "", message: str = "", hint: str = "") -> None:
        self.decisions.append(Decision(event, pod, reason, message, hint))

    # --- pods that hold something ---

    def follow_known(self, wanted: Sequence[Wanted]) -> None:
        by_uid = _by_uid(self.state, wanted)
        for uid, record in self.state.pods.items():
            each = by_uid.get(uid)
            if self._unheard(record):
                if each is not None and each.source not in self.seen.silent_sources:
                    record = replace(record, source=each.source)  # another source speaks for it from now on
                    self._put(record)
                elif not self._provable(uid):
                    continue
            if each is not None and _goes_on(record, each):
                self._follow_resources(self._follow_life(record, each), each.pod)
            else:
                self._end(record)

    def _unheard(self, record: PodRecord) -> bool:
        """Whether no source says anything about this pod: its own cannot be read, or is not configured any more."""
        sources = self.seen.sources
        return record.source in self.seen.silent_sources or (sources is not None and record.source not in sources)

    def _provable(self, uid: str) -> bool:
        """Whether the end of a pod of which no source speaks is proven: all are heard, and nothing of it is alive."""
        alive = any(other == uid for other, _ in self.seen.alive)
        return self.seen.cgroups_seen and not self.seen.silent_sources and not alive

    def release_unknown(self, wanted: Sequence[Wanted]) -> None:
        """Grants without a record end once no source names their pod and nothing of it is alive."""
        named = {each.pod.uid for each in wanted}
        for uid in _without_record(self.state):
            if uid not in named and self._provable(uid):
                self.state = replace(self.state, grants=remove(self.managers, self.state.grants, uid))
                self.released = True
                self.say(Event.RELEASED, Pod(uid, uid), message="its pod is not known here, and nothing of it runs")

    def _follow_life(self, record: PodRecord, wanted: Wanted) -> PodRecord:
        """Of a pod beside a kubelet: who speaks for it, and how far it has come."""
        if not is_second(wanted.source):
            return record
        after = replace(record, source=wanted.source)
        after = followed(after, terminating=wanted.pod.terminating, running=bool(wanted.running))
        if after != record:
            self._put(after)
        if wanted.running:
            self._started(record.pod, wanted.running)
        if after.phase is PodPhase.TERMINATING and record.phase is not PodPhase.TERMINATING:
            self.say(Event.TERMINATING, record.pod, message="keeps what it holds until its containers have stopped")
        return after

    def _started(self, pod: Pod, container: str) -> None:
        """Init containers before one that runs have ended: their memory is free for others."""
        grants = container_started(self.state.grants, pod, container)
        if grants is not self.state.grants:
            self.state = replace(self.state, grants=grants)
            self.resized = True

    def _follow_resources(self, record: PodRecord, pod: Pod) -> None:
        """An edit of cpu and memory is a wish to resize; `try_resizes` answers it."""
        if record.unplaced is not None:
            if not same_sizes(record.pod, pod):
                self._put(replace(record, pod=pod))
                self.resized = True
            return
        after = edited(record, pod, self.seen.now_seconds)
        if after is record:
            return
        if is_second(record.source):
            after = after_resize(after)
        self._put(after)
        if after.resize.desired is None:
            self.say(Event.RESIZE_WITHDRAWN, pod, message="the manifest asks for what is allocated again")
        else:
            self.decisions.append(Decision(Event.RESIZE_REQUESTED, pod, before=record.pod))

    # --- pods that shall have other sizes ---

    def try_resizes(self, *, retry: bool) -> None:
        """Answer new wishes, and deferred ones where something may have become free; with `retry` infeasible ones too."""
        gates = self.managers.gates
        freed = "pod_terminated" if self.released else "periodic_retry"
        for record in retry_order(self.state.pods.values(), pod_level_resources=gates.pod_level_resources):
            waiting = record.resize.state
            quiet = waiting is ResizeState.DEFERRED and self.state is self.before
            if record.phase is PodPhase.TERMINATING or (self.seen.paused and holds(self.state.grants, record.pod.uid)):
                continue
            if not retry and (quiet or waiting is ResizeState.INFEASIBLE):
                continue
            if self._try_resize(record, freed if waiting is ResizeState.DEFERRED else ""):
                freed, self.resized = "pod_resized", True

    def _try_resize(self, record: PodRecord, trigger: str) -> bool:
        desired, resize = record.resize.desired, record.resize
        assert desired is not None
        running = [each.pod for each in self.state.pods.values()]
        verdict = judge_resize(self.managers, self.node, self.state.grants, running, record, desired)
        after = answered(record, verdict)
        if is_second(record.source):
            after = after_resize(after)
        if verdict.state is ResizeState.IN_PROGRESS:
            self.state = replace(self.state, grants=verdict.grants)
            self._put(after)
            self.say(Event.RESIZE_STARTED, after.pod, trigger, resize_events.started(after.pod, resize.generation))
            return True
        if after != record:
            self._put(after)
        if verdict.state is not resize.state:
            event = Event.RESIZE_DEFERRED if verdict.state is ResizeState.DEFERRED else Event.RESIZE_INFEASIBLE
            text = resize_events.waits(desired, resize.generation, verdict.state, verdict.reason, verdict.message)
            self.say(event, desired, verdict.reason, text)
        return False

    def _end(self, record: PodRecord) -> None:
        uid = record.pod.uid
        if any(alive == uid for alive, _ in self.seen.alive):
            if record.phase is not PodPhase.TERMINATING:
                self._put(replace(record, phase=PodPhase.TERMINATING))
                self.say(Event.TERMINATING, record.pod, message="waits for its containers to stop")
            return
        key = record.pod.namespaced_name
        self.state = replace(
            self.state,
            grants=remove(self.managers, self.state.grants, uid),
            pods={other: kept for other, kept in self.state.pods.items() if other != uid},
            manifest_uids={name: kept for name, kept in self.state.manifest_uids.items() if name != key},
        )
        self.released = True
        self.say(Event.RELEASED, record.pod)

    def _put(self, record: PodRecord) -> None:
        self.state = replace(self.state, pods={**self.state.pods, record.pod.uid: record})

    # --- pods beside a kubelet for which there was no room ---

    def place(self, *, retry: bool) -> None:
        """Try the unplaced pods again, in the order of their admission, where something has become free.

        Those that waited for their devices are tried once these are known, or have been awaited long enough.
        """
        for uid, record in self.state.pods.items():
            waited = is_awaiting(record.unplaced)
            if record.unplaced is None or record.phase is PodPhase.TERMINATING or not (retry or waited):
                continue
            if waited and self._awaited(record):
                continue
            verdict = self._judge(record.pod, record.source)
            if verdict.admitted:
                self.state = replace(self.state, grants=verdict.grants)
                self._put(replace(_granted(record, verdict), unplaced=None))
                self.decisions.append(Decision(Event.PLACED, record.pod, devices=self.seen.devices.of(uid)))
            elif (mark := unplaced(verdict)) != record.unplaced:
                self._put(replace(self.state.pods[uid], unplaced=mark))
                if waited:
                    self.say(Event.UNPLACED, record.pod, mark.reason, verdict.message, verdict.hint)

    def _awaited(self, record: PodRecord) -> tuple[str, ...]:
        return awaited(self.managers, record, self.seen.devices, self.seen.now_seconds)

    def _judge(self, pod: Pod, source: str) -> Verdict:
        """A kubelet has seen to it already that its pods fit the node as a whole."""
        node = None if is_second(source) else self.node
        verdict = judge(self.managers, node, self.state, pod, self.seen.hugepages, self.seen.devices.of(pod.uid))
        given = verdict.admitted and holds(verdict.grants, pod.uid)
        return paused(verdict) if given and self.seen.paused else verdict

    # --- pods that are new ---

    def admit_new(self, wanted: Sequence[Wanted], before: Mapping[str, Refused], *, retry: bool) -> None:
        names = {record.pod.namespaced_name: record for record in self.state.pods.values()}
        here = (record.pod for record in self.state.pods.values() if record.phase is not PodPhase.TERMINATING)
        seen_uids = {pod.uid: pod.namespaced_name for pod in here}
        for each in wanted:
            if each.terminal:
                continue
            pod = each.pod
            key = pod.namespaced_name
            twin = seen_uids.setdefault(pod.uid, key)
            if key in self.refused:
                continue  # one pod speaks for each name, the first that is listed
            if twin != key:
                self._refuse(before, Refused(pod, "DuplicateUID", f"pod {key} has the uid of pod {twin}: {pod.uid}"))
                continue
            holder = names.get(key)
            known = self.state.pods.get(pod.uid)
            goes_on = known is not None and (known.phase is not PodPhase.TERMINATING or is_second(each.source))
            if goes_on and holder is known:
                continue
            if holder is not None or known is not None:
                before_it = holder if holder is not None else known
                message = f"waits until the pod before it has ended (uid {before_it.pod.uid if before_it else pod.uid})"
                self._refuse(before, Refused(pod, "Waiting", message), Event.WAITING)
                continue
            last = before.get(key)
            if last is not None and not retry and _same_wish(last.pod, pod) and last.reason != "Waiting":
                self.refused[key] = last
                continue
            self._try(each, before)
            if pod.uid in self.state.pods:
                names[key] = self.state.pods[pod.uid]

    def _try(self, wanted: Wanted, before: Mapping[str, Refused]) -> None:
        pod = wanted.pod
        hugepages = self.seen.hugepages
        record = PodRecord(pod, PodPhase.ADMITTED, self.seen.now_seconds, wanted.source, wanted.fingerprint)
        if is_second(wanted.source):
            record = followed(record, terminating=pod.terminating, running=bool(wanted.running))
            if missing := self._awaited(record):
                mark = awaiting(missing)
                self._put(replace(record, unplaced=mark))
                self.say(Event.WAITING, pod, mark.reason, mark.message)
                return
        verdict = self._judge(pod, wanted.source)
        if not verdict.admitted and is_second(wanted.source):
            mark = unplaced(verdict)
            self._put(replace(record, unplaced=mark))
            self.say(Event.UNPLACED, pod, mark.reason, verdict.message, verdict.hint)
            return
        if not verdict.admitted:
            self._refuse(before, Refused(pod, verdict.reason, verdict.message, verdict.hint))
            return
        record = _granted(record, verdict)
        self.state = replace(
            self.state,
            grants=verdict.grants,
            pods={**self.state.pods, pod.uid: record},
            manifest_uids={**self.state.manifest_uids, pod.namespaced_name: pod.uid},
        )
        warn = hugepages is not None and hugepages.rule is FreeHugepagesRule.WARN
        lacking = missing_hugepages(verdict.grants, pod, hugepages.free) if hugepages is not None and warn else ()
        message = "; ".join(map(str, lacking))
        reason, devices = HUGEPAGES_IN_USE if lacking else "", self.seen.devices.of(pod.uid)
        self.decisions.append(Decision(Event.ADMITTED, pod, reason, message, devices=devices))

    def _refuse(self, before: Mapping[str, Refused], refused: Refused, event: Event = Event.REFUSED) -> None:
        key = refused.pod.namespaced_name
        refused = refused.after(before.get(key))
        self.refused[key] = refused
        if refused.is_news:
            self.say(event, refused.pod, refused.reason, refused.message, refused.hint)


def _granted(record: PodRecord, verdict: Verdict) -> PodRecord:
    affinities = {name: Affinity(hint.affinity, hint.preferred) for name, hint in verdict.affinities.items()}
    return replace(record, first=first_grant(verdict.grants, record.pod.uid), affinities=affinities)


def first_grant(grants: Grants, uid: str) -> FirstGrant:
    """What the pod holds now, as its first-admission set (KEP-5554)."""
    return FirstGrant(
        grants.cpu.entries.get(uid, {}),
        grants.memory.entries.get(uid, {}),
        grants.cpu.pod_entries.get(uid),
        grants.memory.pod_entries.get(uid),
    )


def start_container(state: State, uid: str, container: str) -> State:
    """The state once this container starts: earlier init containers have ended, the pod runs."""
    record = state.pods[uid]
    grants = container_started(state.grants, record.pod, container)
    phase = PodPhase.RUNNING if record.phase is PodPhase.ADMITTED else record.phase
    if grants == state.grants and phase is record.phase:
        return state
    pods = {**state.pods, uid: replace(record, phase=phase)}
    return replace(state, grants=grants, pods=pods, generation=state.generation + 1)


def settle(state: State, done: Actuation) -> Plan:
    """The state once the kernel was told: resizes that are in force end, those that cannot be put in force say why."""
    pods = dict(state.pods)
    decisions = []
    for uid in sorted(in_progress(state)):
        before, after = pods[uid].resize, settled(pods[uid], done)
        pods[uid] = after
        if after.resize.actual is None:
            text = resize_events.completed(after.pod, before.generation)
            decisions.append(Decision(Event.RESIZE_COMPLETED, after.pod, message=text))
        elif after.resize.error and after.resize.error != before.error:
            text = resize_events.failed(after.pod, before.generation, after.resize.error)
            decisions.append(Decision(Event.RESIZE_ERROR, after.pod, message=text))
    if pods == state.pods:
        return Plan(state)
    return Plan(replace(state, pods=pods, generation=state.generation + 1), decisions=tuple(decisions))


def _same_wish(one: Pod, other: Pod) -> bool:
    return replace(one, uid="") == replace(other, uid="")
