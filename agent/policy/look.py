"""One look in progress: the state as far as it has come, and what has happened on the way.

A look lives inside one call of `agent.policy.plan.decide`, which has the steps go over it in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.model.pod import Pod
from agent.model.state import Affinity, FirstGrant, Grants, PodRecord, State
from agent.policy.device_placement import awaited
from agent.policy.judgement import judge
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity, PodAmounts
from agent.policy.observation import Decision, Event, Observation, Refused
from agent.policy.removal import holds, remove
from agent.policy.second import is_second, paused
from agent.policy.verdict import Verdict


@dataclass(slots=True)
class Look:
    """before: the state with which the look began. released, resized: whether something has become free since, by the end of a
    pod or by other sizes. refused: by "namespace/name"."""

    managers: Managers
    node: NodeCapacity
    before: State
    seen: Observation
    state: State
    amounts: PodAmounts
    released: bool = False
    resized: bool = False
    refused: dict[str, Refused] = field(default_factory=dict)
    decisions: list[Decision] = field(default_factory=list)

    def say(self, event: Event, pod: Pod, reason: str = "", message: str = "", hint: str = "") -> None:
        """Something has happened that people shall hear."""
        self.decisions.append(Decision(event, pod, reason, message, hint))

    def put(self, record: PodRecord) -> None:
        """The pod's record is this one now."""
        self.state = replace(self.state, pods={**self.state.pods, record.pod.uid: record})

    def hold(self, grants: Grants) -> None:
        """This is what pods hold now."""
        self.state = replace(self.state, grants=grants)

    def grant(self, record: PodRecord, verdict: Verdict) -> None:
        """The pod of this record holds from now on what the verdict gives it."""
        self.hold(verdict.grants)
        affinities = {name: Affinity(hint.affinity, hint.preferred) for name, hint in verdict.affinities.items()}
        self.put(replace(record, first=FirstGrant.of(verdict.grants, record.pod.uid), affinities=affinities))

    def free(self, uid: str) -> None:
        """This pod holds nothing any more."""
        self.hold(remove(self.managers, self.state.grants, uid))
        self.released = True

    def awaited(self, record: PodRecord) -> tuple[str, ...]:
        """The devices for which this pod still waits before it is placed."""
        return awaited(self.managers, record, self.seen.devices, self.seen.now_seconds)

    def judge(self, pod: Pod, source: str) -> Verdict:
        """Would this pod of this source be admitted now. A kubelet has seen to it already that its pods fit the node."""
        node = None if is_second(source) else self.node
        devices = self.seen.devices.of(pod.uid)
        verdict = judge(self.managers, node, self.state, pod, self.seen.hugepages, devices, self.amounts)
        given = verdict.admitted and holds(verdict.grants, pod.uid)
        return paused(verdict) if given and self.seen.paused else verdict
