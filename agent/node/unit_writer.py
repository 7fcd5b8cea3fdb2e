"""Writes cgroups that are systemd's through unit properties, so that they outlive a daemon-reload, and all others directly.

What systemd answers is not taken for the truth: the cgroup is read back, and what it does not say is written to its files. Then
the setting is in force but not kept, which is told for as long as it is so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from agent.node.cgroup import Hierarchy
from agent.node.systemd_bus import SystemdBus, SystemdError
from agent.policy.cgroup_settings import Observed, Settings, lacking
from agent.policy.systemd_units import properties_of, unit_of, whole_percents


class UnitWriter:
    """hierarchy: the cgroup v2 whose slices and scopes are the units of the manager behind `bus`."""

    def __init__(self, hierarchy: Hierarchy, bus: SystemdBus) -> None:
        self._hierarchy = hierarchy
        self._bus = bus
        self._told: dict[PurePosixPath, Settings] = {}
        self._fresh: set[PurePosixPath] = set()  # written since the last `hold`
        self._not_kept: dict[PurePosixPath, SystemdError] = {}

    def observe(self, group: PurePosixPath) -> Observed:
        return self._hierarchy.observe(group)

    def memory_usage(self, group: PurePosixPath) -> int | None:
        return self._hierarchy.memory_usage(group)

    def write(self, group: PurePosixPath, settings: Settings) -> None:
        """Put these settings in force. Raises CgroupError where not even the files take them, ValueError for an empty set."""
        unit = unit_of(group)
        if unit is not None:
            self._tell(group, unit, settings)
            seen = self._hierarchy.observe(group)
            left = lacking(seen, settings)
            # what is configured and not in effect is for the parent or an offline CPU to answer
            lost = lacking(replace(seen, effective=seen.cpus), whole_percents(settings))
            if not left:
                return
            if lost and group not in self._not_kept:
                said = " ".join(name for name, _ in properties_of(lost))
                self._not_kept[group] = SystemdError(unit, f"systemd took {said}, and the cgroup does not say so")
            settings = left
        self._hierarchy.write(group, settings)

    def hold(self, settings: Mapping[PurePosixPath, Settings]) -> None:
        """These cgroups have these settings already, whoever wrote them: tell systemd too, once for each, until it has worked."""
        for group, exact in settings.items():
            unit, wanted = unit_of(group), whole_percents(exact)
            told = self._told.get(group, Settings())
            if unit is not None and told.overlaid(wanted) != told:
                self._tell(group, unit, wanted)
        here = settings.keys() | self._fresh
        self._fresh.clear()
        self._told = {group: told for group, told in self._told.items() if group in here}
        self._not_kept = {group: error for group, error in self._not_kept.items() if group in here}

    def problems(self) -> tuple[str, ...]:
        """What a daemon-reload would undo until the next look, one sentence for all."""
        if not self._not_kept:
            return ()
        error = next(iter(self._not_kept.values()))
        text = f"{len(self._not_kept)} cgroups are written past systemd, a daemon-reload undoes that for a moment"
        return (f"{text}: {error} ({error.hint})",)

    def _tell(self, group: PurePosixPath, unit: str, settings: Settings) -> None:
        self._fresh.add(group)
        try:
            self._bus.set_properties(unit, properties_of(settings))
        except SystemdError as error:
            self._told.pop(group, None)
            self._not_kept[group] = error
        else:
            self._told[group] = self._told.get(group, Settings()).overlaid(settings)
            self._not_kept.pop(group, None)
