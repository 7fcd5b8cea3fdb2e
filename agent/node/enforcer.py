"""Makes the kernel obey: looks at the cgroups, notices drift, applies planned writes and measures how well that went.

What to write is decided in `agent.policy.pins`; this edge writes in the order given and never remembers instead of looking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Protocol

from agent.errors import AgentError
from agent.node.cgroup_errors import CgroupError, CgroupGoneError
from agent.policy.cgroup_names import CgroupKey
from agent.policy.cgroup_settings import Observed, Settings
from agent.policy.isolation import Drift, drift, isolation_gap
from agent.policy.pins import Pin, PinPlan

Find = Callable[[], Mapping[CgroupKey, PurePosixPath]]


@dataclass(frozen=True, slots=True)
class CgroupsNow:
    """groups: what every cgroup says now. drift: what somebody else changed since we wrote it.

    unreadable: cgroups that are there and could not be read, with the reason.
    """

    groups: Mapping[CgroupKey, Observed] = field(default_factory=dict)
    drift: tuple[Drift, ...] = ()
    unreadable: Mapping[CgroupKey, AgentError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """written: how many writes are in effect. gone: cgroups that had ended meanwhile. failed: the others, with the reason.

    seconds: from the first write to the last. gap_seconds: the isolation gap of this change.
    """

    written: int = 0
    gone: tuple[CgroupKey, ...] = ()
    failed: Mapping[CgroupKey, CgroupError] = field(default_factory=dict)
    seconds: float = 0.0
    gap_seconds: float = 0.0


class Enforcer(Protocol):
    """A backend of `enforcement.backend`. Neither method raises for a single cgroup: that is in the answer."""

    @property
    def name(self) -> str: ...

    def observe(self) -> CgroupsNow:
        """Look at every cgroup that containers run in. Raises CgroupError where the hierarchy itself cannot be read."""

    def apply(self, plan: PinPlan) -> Applied:
        """Write what the plan says, in its order; a failed write does not stop the rest."""

    def memory_usage(self, keys: Iterable[CgroupKey]) -> Mapping[CgroupKey, int]:
        """Bytes in use by these of the cgroups observed last; without those that are gone or cannot say."""

    def settle(self, settings: Mapping[CgroupKey, Settings]) -> None:
        """These cgroups were found as they should be: a later change of them is drift, whoever wrote them first."""


class ObserveOnly:
    """Backend `none`: nothing is looked at, nothing is written."""

    name = "none"

    def observe(self) -> CgroupsNow:
        return CgroupsNow()

    def apply(self, plan: PinPlan) -> Applied:
        return Applied()

    def memory_usage(self, keys: Iterable[CgroupKey]) -> Mapping[CgroupKey, int]:
        return {}

    def settle(self, settings: Mapping[CgroupKey, Settings]) -> None:
        return


class Groups(Protocol):
    """What is needed of a hierarchy here; `agent.node.cri` has it too, with the runtime as the one who writes."""

    def observe(self, group: PurePosixPath) -> Observed: ...

    def write(self, group: PurePosixPath, settings: Settings) -> None: ...

    def memory_usage(self, group: PurePosixPath) -> int | None: ...


class CgroupEnforcer:
    """Backends `cgroup` and `cri`. find: the groups to hold, looked up anew for every observation. clock: seconds, monotonic.

    hold: told of the groups that say already what they should.
    """

    def __init__(
        self,
        hierarchy: Groups,
        find: Find,
        clock: Callable[[], float],
        name: str = "cgroup",
        hold: Callable[[Mapping[PurePosixPath, Settings]], None] = lambda settings: None,
    ) -> None:
        self.name = name
        self._hold = hold
        self._hierarchy = hierarchy
        self._find = find
        self._clock = clock
        self._groups: Mapping[CgroupKey, PurePosixPath] = {}
        self._written: dict[CgroupKey, Settings] = {}

    def observe(self) -> CgroupsNow:
        groups = self._find()
        # A restarted container has another group under the same key: what was written went to the one before.
        self._written = {key: told for key, told in self._written.items() if groups.get(key) == self._groups.get(key)}
        self._groups = groups
        seen: dict[CgroupKey, Observed] = {}
        unreadable: dict[CgroupKey, AgentError] = {}
        for key, group in groups.items():
            try:
                seen[key] = self._hierarchy.observe(group)
            except CgroupGoneError:
                continue
            except AgentError as error:
                unreadable[key] = error
        return CgroupsNow(seen, drift(self._written, seen), unreadable)

    def apply(self, plan: PinPlan) -> Applied:
        started = last = self._clock()
        timeline: list[tuple[Pin, float | None]] = []
        gone: dict[CgroupKey, None] = {}
        failed: dict[CgroupKey, CgroupError] = {}
        for pin in plan.pins:
            group = self._groups.get(pin.key)
            try:
                if group is not None:
                    self._hierarchy.write(group, pin.settings)
            except CgroupGoneError:
                group = None
            except CgroupError as error:
                failed[pin.key] = error
                timeline.append((pin, None))
                continue
            if group is None:
                gone[pin.key] = None
                continue
            last = self._clock()
            timeline.append((pin, last))
            # Only to tell drift from a change of intent; what is right is decided from the kernel's files alone.
            self._written[pin.key] = self._written.get(pin.key, Settings()).overlaid(pin.settings)
        written = sum(time is not None for _, time in timeline)
        return Applied(written, tuple(gone), failed, last - started, isolation_gap(plan.exclusive, timeline, started))

    def memory_usage(self, keys: Iterable[CgroupKey]) -> Mapping[CgroupKey, int]:
        used: dict[CgroupKey, int] = {}
        for key in keys:
            group = self._groups.get(key)
            try:
                usage = self._hierarchy.memory_usage(group) if group is not None else None
            except CgroupError:
                continue  # gone, or its next write will say what is wrong
            if usage is not None:
                used[key] = usage
        return used

    def settle(self, settings: Mapping[CgroupKey, Settings]) -> None:
        self._written.update(settings)
        self._hold({self._groups[key]: each for key, each in settings.items() if key in self._groups})
