"""Containers that run and that the state does not know, taken over before anything new is given.

After a state was lost, or when the agent begins on a node that works already, cgroups know more than the state. Order: what
has ended is released, what the cgroups prove is adopted (`agent.policy.adopt`), CPUs of running pods that nobody names are held
back; only then new pods are admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.model.cpuset import union
from agent.model.pod import Pod
from agent.model.state import CPUState, FirstGrant, Grants, PodPhase, PodRecord, State
from agent.policy.adopt import EffectiveCpuset, RunningPod, adopt
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Event, Observation, Refused, Wanted
from agent.policy.plan import decide
from agent.policy.removal import holds
from agent.policy.repair_plan import Rule
from agent.policy.wanted_pods import with_uids


@dataclass(frozen=True, slots=True)
class Running:
    """What the cgroups show. containers: pod UID -> container -> where it may run, only those with tasks.

    names: pod UID -> "namespace/name", where the cgroup says it.
    """

    containers: Mapping[str, Mapping[str, EffectiveCpuset]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


def recover(
    managers: Managers,
    node: NodeCapacity,
    state: State,
    seen: Observation,
    running: Running,
    refused: Mapping[str, Refused],
) -> tuple[State, tuple[Decision, ...]]:
    """The state with what runs and was not in it, and what happened. The same state where nothing comes to it.

    A pod that proves nothing is left to its admission, after everything that is proven. refused: by the last look; that they
    prove nothing was said then.
    """
    unknown = {uid for uid in running.containers if uid not in state.pods and not holds(state.grants, uid)}
    if not unknown:
        return state, ()
    known = [each for each in with_uids(state, seen.wanted) if each.pod.uid in state.pods]
    before = decide(managers, node, state, replace(seen, wanted=known, fresh_uids=()), refused)
    wanted = _named(before.state, seen.wanted, unknown, running.names)
    pods = {uid: record.pod for uid, record in before.state.pods.items()}
    pods.update((uid, each.pod) for uid, each in wanted.items())
    everything = {
        uid: RunningPod(pods.get(uid, Pod(uid, uid)), containers) for uid, containers in running.containers.items()
    }
    grants, steps = adopt(managers, before.state.grants, everything)
    decisions = list(before.decisions)
    said = {each.pod.uid for each in refused.values()}
    for step in steps:
        event = Event.ADOPTED if step.rule is Rule.ADOPTED else Event.NOT_PROVEN
        if step.pods[0] in unknown and not (event is Event.NOT_PROVEN and step.pods[0] in said):
            decisions.append(Decision(event, pods[step.pods[0]], message=step.text))
    grants, held = _hold_back(managers, grants, {uid: running.containers[uid] for uid in unknown if uid not in pods})
    decisions += held
    records = {
        uid: PodRecord(
            each.pod,
            PodPhase.RUNNING,
            seen.now_seconds,
            each.source,
            each.fingerprint,
            FirstGrant.of(grants, uid),
        )
        for uid, each in wanted.items()
        if holds(grants, uid)
    }
    uids = {record.pod.namespaced_name: uid for uid, record in records.items()}
    uids.update((each.pod.namespaced_name, uid) for uid, each in wanted.items())
    after = replace(
        before.state,
        grants=grants,
        pods={**before.state.pods, **records},
        manifest_uids={**before.state.manifest_uids, **uids},
    )
    return (state if after == state else after), tuple(decisions)


def _named(
    state: State, wanted: Iterable[Wanted], unknown: Iterable[str], names: Mapping[str, str]
) -> dict[str, Wanted]:
    """The wanted pods among the unknown running ones, by UID: the source's own, or the one in the cgroup of that name."""
    uids = {name: uid for uid, name in names.items() if uid in unknown}
    found: dict[str, Wanted] = {}
    for each in wanted:
        uid = each.pod.uid or uids.get(each.pod.namespaced_name, "")
        if uid in unknown and uid not in state.pods and not each.terminal:
            found.setdefault(uid, replace(each, pod=replace(each.pod, uid=uid)))
    return found


def _hold_back(
    managers: Managers, grants: Grants, strangers: Mapping[str, Mapping[str, EffectiveCpuset]]
) -> tuple[Grants, list[Decision]]:
    """Grants without a record for running pods that nobody names and that look as if they had CPUs of their own: smaller than
    what is shared, none of them reserved, with nobody else on them. They end when nothing of the pod is alive any more."""
    decisions: list[Decision] = []
    if managers.cpu is None:
        return grants, decisions
    for uid, containers in sorted(strangers.items()):
        cpu = grants.cpu
        sets = {name: seen.cpus for name, seen in sorted(containers.items()) if seen.cpus}
        mine = union(sets.values())
        others = union(seen.cpus for other, each in strangers.items() if other != uid for seen in each.values())
        if not mine or mine & others or not mine <= (cpu.default & managers.cpu.allocatable) or mine == cpu.default:
            continue
        grants = Grants(CPUState(cpu.default - mine, {**cpu.entries, uid: sets}, cpu.pod_entries), grants.memory)
        text = f"a pod that no source names runs on CPUs {mine} of its own: they are held until it is gone"
        decisions.append(Decision(Event.ADOPTED, Pod(uid, uid), message=text))
    return grants, decisions
