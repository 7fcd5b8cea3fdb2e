"""Makes the cgroups say what the state says, keeps what has been worked out for it, and makes cgroups for `pinfold exec`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.model.state import State
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupError
from agent.node.enforcer import Enforcer
from agent.node.exec_cgroups import ExecCgroups
from agent.node.kubelet_cgroups import Instances, KubeletCgroups
from agent.node.kubepods import pod_processes
from agent.node.tasks import Process
from agent.node.unit_writer import UnitWriter
from agent.policy.cgroup_intents import Intents, Rules
from agent.policy.cgroup_names import CgroupKey, CgroupNameError, ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.cgroup_settings import Settings
from agent.policy.isolation import Drift
from agent.policy.memory_shrink import HeldBack, hold_back, limits_to_check
from agent.policy.pins import Pin, pins_of
from agent.policy.release import released
from agent.policy.resize_lifecycle import Actuation, in_progress
from agent.policy.second import is_second


@dataclass(frozen=True, slots=True)
class Enforced:
    """One look at the cgroups and what was written. faults: cgroups that are not as they should be, with the reason.

    starved: cgroups that should run in the shared pool while it is empty; they are left as they are. actuation: what became of
    the sizes of pods that are being resized.
    """

    written: int = 0
    drift: tuple[Drift, ...] = ()
    faults: Mapping[CgroupKey, AgentError] = field(default_factory=dict)
    starved: tuple[CgroupKey, ...] = ()
    gap_seconds: float = 0.0
    seconds: float = 0.0
    actuation: Actuation = field(default_factory=Actuation)


@dataclass(slots=True)
class Enforcement:
    """One backend. exec_cgroups, hierarchy: None with backend `none`, which sees nothing.

    kubelet: the cgroups of a kubelet's pods, where a source beside one is configured. kubelet_root: the kubelet's `cgroupRoot`.
    widened: the CPUs and memory nodes that everybody may use after a release; None while grants are in force.
    units: writes what systemd manages; None where it manages nothing here.
    """

    enforcer: Enforcer
    exec_cgroups: ExecCgroups | None
    strict_pod_quota: bool = False
    hierarchy: Hierarchy | None = None
    kubelet: KubeletCgroups | None = None
    kubelet_root: str = "/"
    widened: tuple[CPUSet, NodeMask] | None = None
    units: UnitWriter | None = None
    _for: tuple[State, bool, object] | None = None
    _intents: Intents | None = None

    def apply(self, state: State) -> Enforced:
        """Write what the cgroups lack. Raises CgroupError where the hierarchy itself cannot be read."""
        seen = self.enforcer.observe()
        intents = self._intents_of(state)
        plan = pins_of(intents, seen.groups)
        pinned = {pin.key for pin in plan.pins}
        resizing = in_progress(state)
        limits = limits_to_check(plan, resizing)
        plan, held = hold_back(plan, limits, self.enforcer.memory_usage(limits))
        applied = self.enforcer.apply(plan)
        self.enforcer.settle({key: intents.of(key).settings for key in seen.groups if key not in pinned})
        faults: dict[CgroupKey, AgentError] = {**seen.unreadable, **applied.failed}
        faults.update(self._sweep(state))
        actuation = self._actuation(resizing, intents, {**faults, **{each.key: each for each in held}})
        return Enforced(
            applied.written, seen.drift, faults, plan.starved, applied.gap_seconds, applied.seconds, actuation
        )

    def _actuation(
        self, resizing: frozenset[str], intents: Intents, wrong: Mapping[CgroupKey, AgentError | HeldBack]
    ) -> Actuation:
        """A resize has ended when the kernel is seen to say so, not when it was told."""
        if not resizing:
            return Actuation()
        lacking = {pin.key for pin in pins_of(intents, self.enforcer.observe().groups).pins}
        errors = {key.pod: str(why) for key, why in wrong.items() if not isinstance(key, QOSCgroup)}
        unsettled = {key.pod for key in lacking if not isinstance(key, QOSCgroup)}
        return Actuation({uid: why for uid, why in errors.items() if uid in resizing}, frozenset(unsettled))

    def prepare(
        self, state: State, key: ContainerCgroup, process: Process | None = None
    ) -> tuple[Settings, tuple[Path, ...]]:
        """Make a container's cgroup with its grant in force: what it says, and the directories to join.

        process: the one that waits to run there. Raises CgroupError, TaskError.
        """
        assert self.exec_cgroups is not None
        intents = self._intents_of(state)
        wanted = intents.of(key).settings
        self.exec_cgroups.open()
        groups = self.exec_cgroups.prepare(key, intents.of(PodCgroup(key.pod)).settings, wanted, process)
        self.exec_cgroups.label(key.pod, state.pods[key.pod].pod.namespaced_name)
        return wanted, groups

    def running(self, uid: str) -> tuple[str, ...]:
        """The containers of a pod that hold tasks, by name; none with backend `none`."""
        if self.exec_cgroups is None:
            return ()
        try:
            return self.exec_cgroups.running(uid)
        except CgroupNameError:
            return ()  # a UID that no cgroup can have: out of somebody's file

    def alive(self, uid: str) -> tuple[str, ...]:
        """`running`, and "" for a pod of whose cgroup under kubepods tasks are seen. Raises CgroupError."""
        here = self.running(uid)
        beside = self.hierarchy is not None and bool(pod_processes(self.hierarchy, uid, self.kubelet_root))
        return (*here, "") if beside else here

    def open(self) -> None:
        """Bring our own cgroups up to what the machine has now. Raises CgroupError."""
        if self.exec_cgroups is not None:
            self.exec_cgroups.open()

    def too_narrow(self, cpus: CPUSet) -> AgentError | None:
        """Why containers cannot get all of the machine's CPUs, if they cannot. Raises CgroupError."""
        return self.exec_cgroups.too_narrow(cpus) if self.exec_cgroups is not None else None

    def lacking(self, state: State) -> tuple[Pin, ...]:
        """What `apply` would write now. Raises CgroupError."""
        return pins_of(self._intents_of(state), self.enforcer.observe().groups).pins

    def problems(self) -> tuple[str, ...]:
        """What is in force and might not stay so, one sentence each."""
        return self.units.problems() if self.units is not None else ()

    def tell_instances(self, instances: Instances) -> None:
        """Whose containers are running, as the pod sources say: container id -> container."""
        if self.kubelet is not None:
            self.kubelet.told = instances

    def label(self, uid: str) -> str:
        """ "namespace/name" as noted on the pod's cgroup; "" where nothing was."""
        return self.exec_cgroups.labelled(uid) if self.exec_cgroups is not None else ""

    def _intents_of(self, state: State) -> Intents:
        if (
            self._intents is None
            or self._for is None
            or self._for[0] is not state
            or self._for[1:] != (self.strict_pod_quota, self.widened)
        ):
            pods = {uid: record.pod for uid, record in state.pods.items()}
            owned = frozenset(uid for uid, record in state.pods.items() if not is_second(record.source))
            rules = Rules(owned, self.strict_pod_quota, os.sysconf("SC_PAGE_SIZE"))
            if self.widened is None:
                self._intents = Intents(state.grants, pods, rules)
            else:
                self._intents = released(state.grants, pods, rules, *self.widened)
            self._for = (state, self.strict_pod_quota, self.widened)
        return self._intents

    def _sweep(self, state: State) -> Mapping[CgroupKey, AgentError]:
        """Remove the empty cgroups of pods that hold nothing any more."""
        faults: dict[CgroupKey, AgentError] = {}
        if self.exec_cgroups is None:
            return faults
        for key in self.exec_cgroups.find():
            if isinstance(key, PodCgroup) and key.pod not in state.pods:
                try:
                    self.exec_cgroups.remove(key)
                except CgroupError as error:
                    faults[key] = error
        return faults
