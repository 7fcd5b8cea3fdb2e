"""The ordered cgroup writes that make what the kernel reports agree with what was granted.

Order (design section 7): shared sets shrink first, then exclusive sets are given, shared sets widen last. Inside a step
children shrink before their parents and parents grow before their children, because cgroup v1 refuses a child that is wider than
its parent (cpusets and quotas alike) and v2 would silently not make it effective. So a resize of several containers never
has them exceed their pod, at no moment between its writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import Grants
from agent.policy.cgroup_intents import Intent, Intents, Rules
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, PodCgroup, QOSCgroup
from agent.policy.cgroup_settings import NO_LIMIT, Observed, Settings, shares_differ


class Step(IntEnum):
    """When inside one change a write happens."""

    SHRINK = 1
    GRANT = 2
    WIDEN = 3


@dataclass(frozen=True, slots=True)
class Pin:
    """One write: tell the cgroup `key` these settings.

    own: the CPUs of the cgroup that nobody else may use. held: the CPUs its tasks could use before this write; with
    settings.cpus this gives what the write takes from it.
    """

    key: CgroupKey
    step: Step
    settings: Settings
    own: CPUSet = field(default_factory=CPUSet)
    held: CPUSet = field(default_factory=CPUSet)

    @property
    def shed(self) -> CPUSet:
        """The CPUs that tasks of this cgroup leave with this write."""
        return self.held - self.settings.cpus if self.settings.cpus is not None else CPUSet()


@dataclass(frozen=True, slots=True)
class PinPlan:
    """pins: in the order in which to write. exclusive: every CPU that is not for everybody.

    starved: cgroups that should run in the shared pool while it is empty; they are left as they are and must be reported.
    """

    pins: tuple[Pin, ...] = ()
    exclusive: CPUSet = field(default_factory=CPUSet)
    starved: tuple[CgroupKey, ...] = ()


def pins(grants: Grants, pods: Mapping[str, Pod], observed: Mapping[CgroupKey, Observed], rules: Rules) -> PinPlan:
    """What to write so that every observed cgroup says what it shall; empty where it does already.

    observed: as the kernel reports it now, never what was written last. A set counts as right when it is configured *and*
    effective.
    """
    return pins_of(Intents(grants, pods, rules), observed)


def pins_of(intents: Intents, observed: Mapping[CgroupKey, Observed]) -> PinPlan:
    """The same for a state whose intents are at hand: what a period without a change costs."""
    planned: list[Pin] = []
    starved: list[CgroupKey] = []
    for key, seen in observed.items():
        wanted = intents.of(key)
        if wanted.settings.cpus is None and intents.exclusive:
            starved.append(key)
        planned += _writes(key, seen, wanted, _stays_in_pod(key, observed, intents))
    return PinPlan(tuple(sorted(planned, key=_order)), intents.exclusive, tuple(sorted(starved, key=str)))


def _stays_in_pod(key: CgroupKey, observed: Mapping[CgroupKey, Observed], intents: Intents) -> CPUSet:
    """The CPUs that a container's pod has before, during and after the change; empty where that is unknown."""
    above = PodCgroup(key.pod) if isinstance(key, ContainerCgroup) else None
    if above is None or above not in observed:
        return CPUSet()
    return observed[above].effective & (intents.of(above).settings.cpus or CPUSet())


def _writes(key: CgroupKey, seen: Observed, wanted: Intent, stays_in_pod: CPUSet) -> list[Pin]:
    """The writes that one cgroup needs, at most one for every step."""
    sets = dict(_cpu_steps(seen, wanted, stays_in_pod))
    tightened, rest = _other_settings(seen, wanted.settings)
    if not (sets or tightened or rest):
        return []
    held = seen.effective
    writes: list[Pin] = []
    for step, others in ((Step.SHRINK, tightened), (Step.GRANT, rest), (Step.WIDEN, Settings())):
        settings = others.overlaid(Settings(cpus=sets.get(step)))
        if settings:
            writes.append(Pin(key, step, settings, wanted.own, held))
            held = sets.get(step, held)
    return writes


def _cpu_steps(seen: Observed, wanted: Intent, stays_in_pod: CPUSet) -> list[tuple[Step, CPUSet]]:
    """The CPU sets to write one after the other: what stays, plus what is its own, then everything.

    A set of which nothing stays cannot be empty in between. A shared one moves at once, to where its pod may be already; an
    exclusive one waits for its grant and leaves only what its pod leaves.
    """
    final = wanted.settings.cpus
    if final is None or (seen.cpus == final and seen.effective == final):
        return []
    stays = seen.effective & final
    if wanted.own:
        first = stays or seen.effective & stays_in_pod
        granted = stays | wanted.own
    else:
        first = stays or final & stays_in_pod or final
        granted = CPUSet()
    last, steps = seen.cpus, []
    for step, cpus in ((Step.SHRINK, first), (Step.GRANT, granted), (Step.WIDEN, final)):
        if cpus and cpus != last:
            steps.append((step, cpus))
            last = cpus
    # Configured as wanted, yet not in effect (the parent was narrower): say it again, now that the parents were mended.
    return steps or [(Step.GRANT if wanted.own else Step.WIDEN, final)]


def _other_settings(seen: Observed, wanted: Settings) -> tuple[Settings, Settings]:
    """The differing settings beside the CPUs: those that must come first, those that come with the grant."""
    quota = wanted.quota_us if seen.quota_us not in (None, wanted.quota_us) else None
    memory = wanted.memory_bytes if seen.memory_bytes not in (None, wanted.memory_bytes) else None
    less_cpu, less_memory = _tighter(seen.quota_us, quota), _tighter(seen.memory_bytes, memory)
    rest = Settings(
        mems=wanted.mems if seen.mems != wanted.mems else None,
        quota_us=None if less_cpu else quota,
        shares=wanted.shares if shares_differ(seen, wanted.shares) else None,
        memory_bytes=None if less_memory else memory,
    )
    return Settings(quota_us=quota if less_cpu else None, memory_bytes=memory if less_memory else None), rest


def _tighter(seen: int | None, wanted: int | None) -> bool:
    return wanted is not None and wanted != NO_LIMIT and (seen == NO_LIMIT or wanted < (seen or 0))


def _order(pin: Pin) -> tuple[int, bool, int, str]:
    depth = 0 if isinstance(pin.key, QOSCgroup) else 2 if isinstance(pin.key, ContainerCgroup) else 1
    if pin.step is Step.SHRINK:
        return pin.step, bool(pin.own), -depth, str(pin.key)
    return pin.step, not pin.own, depth, str(pin.key)
