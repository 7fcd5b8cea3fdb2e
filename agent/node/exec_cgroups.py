"""The cgroups of `pinfold exec`: <parent>/<pod UID>/<container>, made with the grant in force before any process is inside.

A container of a manifest pod runs as long as its cgroup holds tasks, whether the agent does or not. Names are checked before
they become part of a path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupBusyError, CgroupError, CgroupGoneError, OutsideParentError
from agent.node.cgroup_label import read_label, write_label
from agent.policy.cgroup_names import (
    CgroupKey,
    CgroupNameError,
    ContainerCgroup,
    PodCgroup,
    exec_cgroup,
)
from agent.policy.cgroup_settings import Settings

PARENT = PurePosixPath("pinfold")


class ExecCgroups:
    """parent: the group under which pods get theirs, relative to the hierarchy; the agent's own, nobody else's."""

    def __init__(self, hierarchy: Hierarchy, parent: PurePosixPath = PARENT) -> None:
        self._hierarchy = hierarchy
        self._parent = parent

    def open(self) -> None:
        """Make the parent, or bring it up to what its own parent has now: at start and after hotplug. Raises CgroupError."""
        self._hierarchy.create(self._parent)
        self._hierarchy.inherit(self._parent)

    def too_narrow(self, cpus: CPUSet) -> CgroupError | None:
        """Why containers cannot get all of these CPUs: their parent has fewer. None where it has them, or is not there."""
        try:
            has, _ = self._hierarchy.bounds(self._parent)
        except CgroupGoneError:
            return None
        if cpus <= has:
            return None
        what = f"containers here can get CPUs {has} only, not {cpus - has}"
        return OutsideParentError(self._hierarchy.directories(self._parent)[0], what)

    def prepare(self, key: ContainerCgroup, pod: Settings, container: Settings) -> tuple[Path, ...]:
        """The directories whose cgroup.procs a process of the container must be written to, the grant in force already.

        pod, container: what the two groups shall say (`agent.policy.cgroup_intents`). Raises CgroupError, CgroupNameError.
        """
        group = self.group(key)
        self._hierarchy.create(group.parent)
        if pod:
            self._hierarchy.write(group.parent, pod)
        self._hierarchy.create(group)
        if container:
            self._hierarchy.write(group, container)
        return self._hierarchy.directories(group)

    def label(self, uid: str, text: str) -> None:
        """Note on the pod's group whose it is, for the case that the state is lost."""
        write_label(self._hierarchy.directories(exec_cgroup(self._parent, uid)), text)

    def labelled(self, uid: str) -> str:
        """What was noted on the pod's group; "" where nothing was."""
        return read_label(self._hierarchy.directories(exec_cgroup(self._parent, uid)))

    def group(self, key: ContainerCgroup) -> PurePosixPath:
        """The container's group. Raises CgroupNameError for a UID or name that cannot be part of a path."""
        return exec_cgroup(self._parent, key.pod, key.container)

    def processes(self, key: ContainerCgroup) -> tuple[int, ...]:
        """The processes of the container, ascending; none where it has no group."""
        try:
            return self._hierarchy.processes(self.group(key))
        except CgroupGoneError:
            return ()

    def alive(self, key: ContainerCgroup) -> bool:
        """Whether the container runs."""
        return bool(self.processes(key))

    def find(self) -> Mapping[CgroupKey, PurePosixPath]:
        """Every group there is, also of pods that nobody knows any more. Directories with other names are not ours."""
        found: dict[CgroupKey, PurePosixPath] = {}
        for uid in self._names(self._parent):
            with contextlib.suppress(CgroupNameError):
                pod = exec_cgroup(self._parent, uid)
                found[PodCgroup(uid)] = pod
                for name in self._names(pod):
                    with contextlib.suppress(CgroupNameError):
                        found[ContainerCgroup(uid, name)] = exec_cgroup(self._parent, uid, name)
        return found

    def running(self, uid: str) -> tuple[str, ...]:
        """The containers of a pod that hold tasks, by name."""
        names = self._names(exec_cgroup(self._parent, uid))
        return tuple(name for name in names if self.processes(ContainerCgroup(uid, name)))

    def remove(self, key: ContainerCgroup | PodCgroup) -> bool:
        """Remove the group with what is below it, if no task is inside; says whether it is gone."""
        group = self.group(key) if isinstance(key, ContainerCgroup) else exec_cgroup(self._parent, key.pod)
        try:
            self._hierarchy.remove(group)
        except CgroupBusyError:
            return False
        return True

    def _names(self, group: PurePosixPath) -> list[str]:
        try:
            return self._hierarchy.children(group)
        except CgroupGoneError:
            return []
