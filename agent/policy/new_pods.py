"""The pods that are wanted and not here, at one look: admitted, or refused and told so once for each reason.

What was refused is tried again where something has become free, where the pod itself has changed, or where the rules have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.model.state import PodPhase, PodRecord
from agent.policy.device_placement import awaiting
from agent.policy.free_hugepages import HUGEPAGES_IN_USE, FreeHugepagesRule, missing_hugepages
from agent.policy.look import Look
from agent.policy.observation import Decision, Event, Refused, Wanted
from agent.policy.second import followed, is_second, unplaced
from agent.policy.verdict import Verdict

DUPLICATE_UID = "DuplicateUID"
WAITING = "Waiting"  # for the end of the pod before it


def admit_new(look: Look, wanted: Sequence[Wanted], before: Mapping[str, Refused], *, retry: bool) -> None:
    """Admit those for which there is room, in the order of their sources. before: what the last look refused."""
    names = {record.pod.namespaced_name: record for record in look.state.pods.values()}
    here = (record.pod for record in look.state.pods.values() if record.phase is not PodPhase.TERMINATING)
    seen_uids = {pod.uid: pod.namespaced_name for pod in here}
    for each in wanted:
        if each.terminal:
            continue
        pod = each.pod
        key = pod.namespaced_name
        twin = seen_uids.setdefault(pod.uid, key)
        if key in look.refused:
            continue  # one pod speaks for each name, the first that is listed
        last = before.get(key)
        if twin != key:
            _refuse(look, last, Refused(pod, DUPLICATE_UID, f"pod {key} has the uid of pod {twin}: {pod.uid}"))
            continue
        holder = names.get(key)
        known = look.state.pods.get(pod.uid)
        goes_on = known is not None and (known.phase is not PodPhase.TERMINATING or is_second(each.source))
        if goes_on and holder is known:
            continue
        if (before_it := holder or known) is not None:
            message = f"waits until the pod before it has ended (uid {before_it.pod.uid})"
            _refuse(look, last, Refused(pod, WAITING, message), Event.WAITING)
            continue
        if last is not None and not retry and last.pod == pod and last.reason != WAITING:
            look.refused[key] = last
            continue
        _try(look, each, last)
        if pod.uid in look.state.pods:
            names[key] = look.state.pods[pod.uid]


def _try(look: Look, wanted: Wanted, last: Refused | None) -> None:
    pod = wanted.pod
    record = PodRecord(pod, PodPhase.ADMITTED, look.seen.now_seconds, wanted.source, wanted.fingerprint)
    if is_second(wanted.source):
        record = followed(record, terminating=pod.terminating, running=bool(wanted.running))
        if missing := look.awaited(record):
            mark = awaiting(missing)
            look.put(replace(record, unplaced=mark))
            look.say(Event.WAITING, pod, mark.reason, mark.message)
            return
    verdict = look.judge(pod, wanted.source)
    if verdict.admitted:
        _admit(look, record, verdict)
    elif is_second(wanted.source):
        mark = unplaced(verdict)
        look.put(replace(record, unplaced=mark))
        look.say(Event.UNPLACED, pod, mark.reason, verdict.message, verdict.hint)
    else:
        _refuse(look, last, Refused(pod, verdict.reason, verdict.message, verdict.hint))


def _admit(look: Look, record: PodRecord, verdict: Verdict) -> None:
    pod, hugepages = record.pod, look.seen.hugepages
    look.grant(record, verdict)
    uids = {**look.state.manifest_uids, pod.namespaced_name: pod.uid}
    look.state = replace(look.state, manifest_uids=uids)
    warn = hugepages is not None and hugepages.rule is FreeHugepagesRule.WARN
    lacking = missing_hugepages(verdict.grants, pod, hugepages.free) if hugepages is not None and warn else ()
    reason, message = HUGEPAGES_IN_USE if lacking else "", "; ".join(map(str, lacking))
    devices = look.seen.devices.of(pod.uid)
    look.decisions.append(Decision(Event.ADMITTED, pod, reason, message, devices=devices))


def _refuse(look: Look, last: Refused | None, refused: Refused, event: Event = Event.REFUSED) -> None:
    refused = refused.after(last)
    look.refused[refused.pod.namespaced_name] = refused
    if refused.is_news:
        look.say(event, refused.pod, refused.reason, refused.message, refused.hint)
