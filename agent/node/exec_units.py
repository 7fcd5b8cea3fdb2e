"""The units of `pinfold exec` where systemd manages the cgroups: a slice for each pod, a scope in it for each container.

A scope is delegated, belongs to no service, and starts around the process that will become the command, with the grant in force:
it outlives every stop and restart of the agent. It ends by itself with its last process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import PurePosixPath

from agent.errors import BadInputError
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupGoneError
from agent.node.systemd_bus import SystemdBus, SystemdSilentError, UnitExistsError
from agent.node.tasks import Process
from agent.node.unit_writer import UnitWriter
from agent.policy.cgroup_settings import Settings
from agent.policy.systemd_units import properties_of

START_SECONDS = 10.0  # for a unit to be there: the jobs that systemd has in hand come first
_PAUSE_SECONDS = 0.005


class ExecUnits:
    """hierarchy: where the units' cgroups are. writer: keeps their settings as properties."""

    def __init__(self, hierarchy: Hierarchy, bus: SystemdBus, writer: UnitWriter) -> None:
        self._hierarchy = hierarchy
        self._bus = bus
        self._writer = writer

    def prepare(self, group: PurePosixPath, pod: Settings, container: Settings, process: Process | None) -> None:
        """Have the scope `group` in its slice, with these settings in force, around `process` unless it holds others already.

        Raises CgroupError, TaskError for a process that is not there, BadInputError without one.
        """
        if process is None:
            hint = "agent and command are of different versions: install one of them again"
            raise BadInputError("under systemd the command's process must be named", hint=hint)
        process.require()
        inside = group.parent
        if not self._hierarchy.exists(inside):
            self._bus.start_slice(inside.name, "Pod of pinfold exec", properties_of(pod))
            self._until(lambda: self._hierarchy.exists(inside), inside.name)
        if pod:
            self._writer.write(inside, pod)
        self._until(lambda: self._started(group, container, process), group.name)
        if container:
            self._writer.write(group, container)

    def end(self, group: PurePosixPath) -> None:
        """Have systemd forget the slice of a pod in which nothing runs. A scope ends by itself. Raises SystemdError."""
        self._bus.stop(group.name)

    def _started(self, group: PurePosixPath, container: Settings, process: Process) -> bool:
        """Whether the scope is there and holds a process; asks for it where it is not."""
        if self._inside(group):
            return True
        try:
            self._bus.start_scope(
                group.name, group.parent.name, process.pid, "Container of pinfold exec", properties_of(container)
            )
        except UnitExistsError:
            return False  # the one before has just ended, or is just starting: systemd needs a moment
        self._until(lambda: self._inside(group), group.name)
        return True

    def _inside(self, group: PurePosixPath) -> tuple[int, ...]:
        try:
            return self._hierarchy.processes(group)
        except CgroupGoneError:
            return ()

    def _until(self, done: Callable[[], object], unit: str) -> None:
        end = time.monotonic() + START_SECONDS
        while not done():
            if time.monotonic() > end:
                raise SystemdSilentError(unit, f"it was asked for, and is not there after {START_SECONDS:g} s")
            time.sleep(_PAUSE_SECONDS)
