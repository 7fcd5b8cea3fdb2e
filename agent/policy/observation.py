"""What a look at the node sees, and what comes of it: the values that `agent.policy.plan` takes and returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from agent.model.devices import NO_DEVICES, NodeDevices, PodDevices
from agent.model.pod import Pod
from agent.model.state import Mark, State
from agent.policy.free_hugepages import FreeHugepages

ContainerKey = tuple[str, str]  # pod UID, container name


class Event(StrEnum):
    """What can happen to a pod in one look."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    WAITING = "waiting"  # the pod before it under this name has not ended yet, or its devices are not known yet
    TERMINATING = "terminating"
    UNPLACED = "unplaced"  # runs in the shared pool: a kubelet admitted it, and there is no room for what it asks for
    PLACED = "placed"  # was unplaced, and has now what it asked for
    RELEASED = "released"
    ADOPTED = "adopted"  # it ran already, and its cgroups prove what it holds
    NOT_PROVEN = "not-proven"  # it ran already, and its cgroups prove nothing
    RESIZE_REQUESTED = "resize-requested"
    RESIZE_WITHDRAWN = "resize-withdrawn"
    RESIZE_DEFERRED = "resize-deferred"
    RESIZE_INFEASIBLE = "resize-infeasible"
    RESIZE_STARTED = "resize-started"
    RESIZE_COMPLETED = "resize-completed"
    RESIZE_ERROR = "resize-error"


@dataclass(frozen=True, slots=True)
class Decision:
    """One thing that happened to one pod.

    reason, message, hint: of a refusal, else for people. Of a resize the message is the text of the kubelet's event; the reason
    is what is lacking or (RESIZE_STARTED) what let a deferred one in, a value of kubelet_pod_deferred_accepted_resizes_total.
    before: the pod of which other sizes were asked for. devices: what the pod was known to have when it was placed.
    """

    event: Event
    pod: Pod
    reason: str = ""
    message: str = ""
    hint: str = ""
    before: Pod | None = None
    devices: PodDevices | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A pod that a source wants here and that was refused; it holds nothing.

    earlier_reasons: of the same pod at earlier looks; this one may be among them. They are as many at most as there are checks
    and resources that a pod can lack, and go with the pod.
    """

    pod: Pod
    reason: str
    message: str
    hint: str = ""
    earlier_reasons: frozenset[str] = field(default=frozenset(), compare=False)

    def after(self, last: Refused | None) -> Refused:
        """This refusal, after what the last look refused under this name: the same pod, or another one, or none."""
        if last is None or last.pod.as_asked != self.pod.as_asked:
            return self
        return replace(self, earlier_reasons=last.earlier_reasons | {last.reason})

    @property
    def is_news(self) -> bool:
        """Whether this reason has to be said. Reasons take turns while others come and go, and messages have amounts of
        others: that is shown, and no news."""
        return self.reason not in self.earlier_reasons


@dataclass(frozen=True, slots=True)
class Wanted:
    """A pod that a source wants here. fingerprint: of its manifest apart from cpu and memory, "" for other sources.

    terminal, running: what a source beside a kubelet says of its life: it has ended for good; the last container, in the order in
    which they start, that runs. controller: the kind of the owner that makes such pods anew, "" where there is none.
    """

    pod: Pod
    source: str = "manifests"
    fingerprint: str = ""
    terminal: bool = False
    running: str = ""
    controller: str = ""


@dataclass(frozen=True, slots=True)
class Observation:
    """What is seen from outside.

    wanted: what the sources want here, in their order; a pod without a UID gets one of `fresh_uids` (random, one per pod).
    silent_sources: sources that could not be read: their pods are taken as still wanted. alive: containers with tasks; those
    of pods in `ending` suffice. now_seconds: Unix time. hugepages: what is really free; None = not looked at. paused: nothing
    exclusive is given. sources: the names of all sources there are; None: every record's is among them. cgroups_seen: `alive` is
    what the kernel says, so that a pod of which no source speaks is gone once nothing of it is alive. devices: those that a
    kubelet has given to pods.
    """

    wanted: Sequence[Wanted] = ()
    silent_sources: frozenset[str] = frozenset()
    alive: frozenset[ContainerKey] = frozenset()
    fresh_uids: Sequence[str] = ()
    now_seconds: float = 0.0
    hugepages: FreeHugepages | None = None
    paused: bool = False
    sources: frozenset[str] | None = None
    cgroups_seen: bool = False
    devices: NodeDevices = NO_DEVICES


@dataclass(frozen=True, slots=True)
class Plan:
    """The next state and why. refused: by "namespace/name", everything that is wanted and not here.

    misaligned: UID -> why, pods whose devices have turned out to be on other NUMA nodes.
    """

    state: State
    refused: Mapping[str, Refused] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    misaligned: Mapping[str, Mark] = field(default_factory=dict)
