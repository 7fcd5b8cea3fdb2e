"""An explanation as people and programs get it, from the command and from the running agent alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.formats import derivation as derivation_format
from agent.model.devices import NO_DEVICES, NodeDevices
from agent.model.pod import Pod
from agent.model.state import Grants, PodRecord, State
from agent.policy.free_hugepages import FreeHugepages, FreeHugepagesRule, missing_hugepages
from agent.policy.judgement import judge
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity, PodAmounts
from agent.policy.pod_lint import lint_pod
from agent.policy.reasons import derive
from agent.policy.removal import holds
from agent.policy.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Explanation:
    """One pod: the verdict, and why. text: lines for people; encoded: the same as JSON."""

    pod: Pod
    verdict: Verdict
    text: str
    encoded: Mapping[str, Any]

    def after(self, state: State) -> State:
        """The state as if the pod had come, for the pods after it: nothing is saved."""
        if not self.verdict.admitted:
            return state
        record = state.pods.get(self.pod.uid, PodRecord(self.pod))
        return replace(state, grants=self.verdict.grants, pods={**state.pods, self.pod.uid: record})


def explain(
    managers: Managers,
    capacity: NodeCapacity,
    state: State,
    pod: Pod,
    devices: NodeDevices = NO_DEVICES,
    hugepages: FreeHugepages | None = None,
) -> Explanation:
    """Judge `pod` on the node as it is, and say why. A pod that holds something already is shown as it runs.

    devices: what is known of those that pods have. hugepages: what is really free; None where nobody looks.
    """
    known = {record.pod.namespaced_name: record.pod for record in state.pods.values()}
    held = known.get(pod.namespaced_name)
    if held is not None:
        pod, hugepages = held, None  # its own are among those that are not free
    elif not pod.uid:
        pod = replace(pod, uid=f"explained-{pod.namespace}-{pod.name}")
    held_devices, amounts = devices.of(pod.uid), PodAmounts()
    verdict = judge(managers, capacity, state, pod, hugepages, held_devices, amounts)
    owners = {uid: record.pod.namespaced_name for uid, record in state.pods.items()}

    def try_with(grants: Grants, changed: Pod) -> Verdict:
        """A pod that holds nothing in these grants and did before has been taken away to try: node fit must not count it."""
        here = {uid: record for uid, record in state.pods.items() if holds(grants, uid) or not holds(state.grants, uid)}
        here_now = replace(state, grants=grants, pods=here)
        return judge(managers, capacity, here_now, changed, hugepages, held_devices, amounts)

    derivation = derive(managers, state.grants, pod, verdict, owners, try_with)
    notes = [str(finding) for finding in lint_pod(pod, managers.gates, managers.topology.scope)]
    if hugepages is not None and verdict.admitted and hugepages.rule is FreeHugepagesRule.WARN:
        notes += [f"too few free hugepages, {each}" for each in missing_hugepages(verdict.grants, pod, hugepages.free)]
    lines = [
        *derivation_format.render(derivation, verdict.grants, managers.gates),
        *(f"  note: {note}" for note in notes),
    ]
    encoded = {**derivation_format.encode(derivation, verdict.grants, managers.gates), "notes": notes}
    return Explanation(pod, verdict, "\n".join(lines), encoded)


def explain_each(
    managers: Managers,
    capacity: NodeCapacity,
    state: State,
    pods: Iterable[Pod],
    hugepages: FreeHugepages | None = None,
) -> Iterator[Explanation]:
    """Judge pods one after the other, each as if those before it that fit had come."""
    for pod in pods:
        explanation = explain(managers, capacity, state, pod, hugepages=hugepages)
        yield explanation
        state = explanation.after(state)
