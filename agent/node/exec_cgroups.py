"""The cgroups of `pinfold exec`: <parent>/<pod UID>/<container>, made with the grant in force before any process is inside.

Where systemd manages the cgroups they are a slice for each pod and a scope for each container, in <parent>.slice. A pod stays
where it began, so both kinds are looked for whatever is configured now. A container of a manifest pod runs as long as its cgroup
holds tasks, whether the agent does or not. Names are checked before they become part of a path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupBusyError, CgroupError, CgroupGoneError, OutsideParentError
from agent.node.cgroup_label import read_label, write_label
from agent.node.exec_units import ExecUnits
from agent.node.tasks import Process
from agent.policy.cgroup_names import (
    CgroupKey,
    CgroupNameError,
    ContainerCgroup,
    PodCgroup,
    exec_cgroup,
)
from agent.policy.cgroup_settings import Settings
from agent.policy.systemd_units import container_of_scope, container_scope, exec_slice, pod_slice, uid_of_slice

PARENT = PurePosixPath("pinfold")


class ExecCgroups:
    """parent: the group under which pods get theirs, relative to the hierarchy; the agent's own, nobody else's.

    units: makes slices and scopes; None where pods get plain cgroups.
    """

    def __init__(self, hierarchy: Hierarchy, parent: PurePosixPath = PARENT, units: ExecUnits | None = None) -> None:
        self._hierarchy = hierarchy
        self._parent = parent
        self._units = units
        # systemd manages no cpusets on v1, so nobody has made slices there
        self._slice = exec_slice(parent) if hierarchy.version == 2 else None
        # plain groups as `find` saw them last: joining a path takes longer than a look for it, and a cache would keep ended pods
        self._known: Mapping[CgroupKey, PurePosixPath] = {}

    def open(self) -> None:
        """Make the parent, or bring it up to what its own parent has now: at start and after hotplug. Raises CgroupError."""
        if self._units is None or self._hierarchy.exists(self._parent):
            self._hierarchy.create(self._parent)
            self._hierarchy.inherit(self._parent)

    def too_narrow(self, cpus: CPUSet) -> CgroupError | None:
        """Why containers cannot get all of these CPUs: their parent has fewer. None where it has them, or is not there."""
        parent = self._parent if self._units is None or self._slice is None else self._slice
        try:
            has, _ = self._hierarchy.bounds(parent)
        except CgroupGoneError:
            return None
        if cpus <= has:
            return None
        what = f"containers here can get CPUs {has} only, not {cpus - has}"
        return OutsideParentError(self._hierarchy.directories(parent)[0], what)

    def prepare(
        self, key: ContainerCgroup, pod: Settings, container: Settings, process: Process | None = None
    ) -> tuple[Path, ...]:
        """The directories whose cgroup.procs a process of the container must be written to, the grant in force already.

        pod, container: what the two groups shall say (`agent.policy.cgroup_intents`). process: the one that asks; under
        systemd the scope starts around it. Raises CgroupError, CgroupNameError, TaskError.
        """
        group = self.group(key)
        if self._units is not None and self._is_unit(group):
            self._units.prepare(group, pod, container, process)
            return self._hierarchy.directories(group)
        self._hierarchy.create(group.parent)
        if pod:
            self._hierarchy.write(group.parent, pod)
        self._hierarchy.create(group)
        if container:
            self._hierarchy.write(group, container)
        return self._hierarchy.directories(group)

    def label(self, uid: str, text: str) -> None:
        """Note on the pod's group whose it is, for the case that the state is lost."""
        write_label(self._hierarchy.directories(self._pod_group(uid)), text)

    def labelled(self, uid: str) -> str:
        """What was noted on the pod's group; "" where nothing was."""
        return read_label(self._hierarchy.directories(self._pod_group(uid)))

    def group(self, key: ContainerCgroup) -> PurePosixPath:
        """The container's group. Raises CgroupNameError for a UID or name that cannot be part of a path."""
        if self._slice is not None and self._is_unit(self._pod_group(key.pod)):
            return container_scope(self._slice, key.pod, key.container)
        return self._plain(key)

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
        if self._slice is not None:
            for name in self._names(self._slice):
                with contextlib.suppress(CgroupNameError):
                    found.update(self._containers(uid_of_slice(self._slice, name), self._slice / name))
        plain: dict[CgroupKey, PurePosixPath] = {}
        for uid in self._names(self._parent):
            with contextlib.suppress(CgroupNameError):
                plain.update(self._containers(uid, self._plain(PodCgroup(uid))))
        self._known = plain
        return found | plain

    def running(self, uid: str) -> tuple[str, ...]:
        """The containers of a pod that hold tasks, by name."""
        keys = (key for key in self._containers(uid, self._pod_group(uid)) if isinstance(key, ContainerCgroup))
        return tuple(key.container for key in keys if self.processes(key))

    def remove(self, key: ContainerCgroup | PodCgroup) -> bool:
        """Remove the group with what is below it, if no task is inside; says whether it is gone."""
        group = self.group(key) if isinstance(key, ContainerCgroup) else self._pod_group(key.pod)
        try:
            if self._units is None or not self._is_unit(group):
                self._hierarchy.remove(group)
            elif self._hierarchy.processes(group):
                return False
            elif isinstance(key, PodCgroup):
                self._units.end(group)
        except CgroupBusyError:
            return False
        except CgroupGoneError:
            return True
        return not self._hierarchy.exists(group)

    def _pod_group(self, uid: str) -> PurePosixPath:
        """Where a pod is, or will be: it stays where it began."""
        plain = self._plain(PodCgroup(uid))
        if self._slice is None or (self._units is not None and self._hierarchy.exists(plain)):
            return plain
        with contextlib.suppress(CgroupNameError):  # too long for a unit's name, so it never was one
            unit = pod_slice(self._slice, uid)
            if self._units is not None or self._hierarchy.exists(unit):
                return unit
        return plain

    def _plain(self, key: ContainerCgroup | PodCgroup) -> PurePosixPath:
        """Where a pod or container is that is no unit. Raises CgroupNameError."""
        container = key.container if isinstance(key, ContainerCgroup) else None
        return self._known.get(key) or exec_cgroup(self._parent, key.pod, container)

    def _is_unit(self, group: PurePosixPath) -> bool:
        return self._slice is not None and group.is_relative_to(self._slice)

    def _containers(self, uid: str, pod: PurePosixPath) -> dict[CgroupKey, PurePosixPath]:
        """The groups of one pod that is at `pod`; none where there is nothing."""
        found: dict[CgroupKey, PurePosixPath] = {PodCgroup(uid): pod}
        for name in self._names(pod):
            with contextlib.suppress(CgroupNameError):
                if self._slice is not None and self._is_unit(pod):
                    name = container_of_scope(self._slice, uid, name)
                    found[ContainerCgroup(uid, name)] = container_scope(self._slice, uid, name)
                else:
                    key = ContainerCgroup(uid, name)
                    found[key] = self._plain(key)
        return found

    def _names(self, group: PurePosixPath) -> list[str]:
        try:
            return self._hierarchy.children(group)
        except CgroupGoneError:
            return []
