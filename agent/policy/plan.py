"""One look at the node: which pods should be here, which have ended, and the whole next state.

`decide` reads what the sources list and what runs, and returns the next state with what happened, for logs, events and
metrics. Its steps are modules of their own, each about one kind of pods; `settle` and `start_container` enter what the kernel and
a runtime have done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.model.state import PodPhase, State
from agent.policy import resize_events
from agent.policy.device_placement import misaligned
from agent.policy.known_pods import follow_known, release_unknown
from agent.policy.look import Look
from agent.policy.managers import Managers
from agent.policy.new_pods import admit_new
from agent.policy.node_fit import NodeCapacity, PodAmounts
from agent.policy.observation import Decision, Event, Observation, Plan, Refused
from agent.policy.removal import container_started
from agent.policy.resize_lifecycle import Actuation, in_progress, settled
from agent.policy.unplaced_pods import place
from agent.policy.waiting_resizes import try_resizes
from agent.policy.wanted_pods import with_uids


def decide(
    managers: Managers,
    node: NodeCapacity,
    state: State,
    seen: Observation,
    refused: Mapping[str, Refused],
    *,
    retry: bool = False,
    amounts: PodAmounts | None = None,
) -> Plan:
    """The next state. refused: what the last look refused; tried again where something became free, or with `retry`.

    retry: something may have changed since the last look that the state does not show by itself (the rules, the machine).
    amounts: kept from one look to the next, so that only new pods are added up.

    Unchanged input gives an unchanged state (same generation) and no decisions.
    """
    look = Look(managers, node, state, seen, state, amounts or PodAmounts())
    waiting = {key: each.pod for key, each in refused.items() if each.pod.uid not in state.pods}
    known = with_uids(state, seen.wanted)  # those who are yet to come need none here
    follow_known(look, known)
    release_unknown(look, known)
    # a pod that has just ended gives its name a new uid
    wanted = with_uids(look.state, seen.wanted, seen.fresh_uids, waiting)
    try_resizes(look, retry=retry)
    free = retry or look.released or look.resized
    place(look, retry=free)
    admit_new(look, wanted, refused, retry=free)
    after = replace(look.state, generation=state.generation + 1) if look.state != state else state
    return Plan(after, look.refused, tuple(look.decisions), misaligned(managers, after, seen.devices))


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
        elif after.resize.error != before.error:
            text = resize_events.failed(after.pod, before.generation, after.resize.error)
            decisions.append(Decision(Event.RESIZE_ERROR, after.pod, message=text))
    if pods == state.pods:
        return Plan(state)
    return Plan(replace(state, pods=pods, generation=state.generation + 1), decisions=tuple(decisions))
