"""The cgroup hierarchy of this machine behind one interface, whichever version it is: unified v2, v1, or hybrid.

A group is named by its path relative to the hierarchy, never absolute; names come checked from `agent.policy.cgroup_names`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Protocol

from agent.model.cpuset import CPUSet
from agent.node.cgroup_errors import Action, NoControllerError, explain
from agent.node.cgroup_files import CgroupFiles, KernelFiles
from agent.node.cgroup_v1 import CgroupV1
from agent.node.cgroup_v2 import CgroupV2
from agent.policy.cgroup_settings import Observed, Settings


class Hierarchy(Protocol):
    """Typed reads and writes. Everything raises a CgroupError; CgroupGoneError where the group does not exist."""

    @property
    def version(self) -> int: ...

    @property
    def controllers(self) -> frozenset[str]:
        """Which of cpuset, cpu and memory can be used."""

    def directories(self, group: PurePosixPath) -> tuple[Path, ...]:
        """The directories whose cgroup.procs a process has to join: one on v2, one for each controller on v1."""

    def exists(self, group: PurePosixPath) -> bool: ...

    def children(self, group: PurePosixPath) -> list[str]:
        """The names of the groups directly below, sorted."""

    def observe(self, group: PurePosixPath, *, resources: bool = True) -> Observed:
        """What the group says of itself; without `resources` its CPUs and memory nodes only."""

    def memory_usage(self, group: PurePosixPath) -> int | None:
        """Bytes in use by the group and those below it, page cache included. None: no memory controller here."""

    def bounds(self, group: PurePosixPath) -> tuple[CPUSet, int]:
        """The CPUs and memory nodes (as a mask) that tasks of the group can have at most, as the kernel sees it now."""

    def write(self, group: PurePosixPath, settings: Settings) -> None:
        """Tell the group these settings and make sure that they are in effect.

        Every setting is tried; the first refusal is raised after the last. An empty set is refused before the kernel sees it.
        """

    def create(self, group: PurePosixPath) -> None:
        """Make the group and its parents, ready to hold tasks: with the parent's CPUs and memory nodes. Existing is fine."""

    def inherit(self, group: PurePosixPath) -> None:
        """Give the group all CPUs and memory nodes of its parent, after hotplug for one."""

    def processes(self, group: PurePosixPath) -> tuple[int, ...]:
        """The processes in the group and in groups below it, ascending."""

    def remove(self, group: PurePosixPath) -> None:
        """Remove the group with the empty groups below it. Raises CgroupBusyError while tasks are inside. Gone is fine."""


_V1_MARKS = {"cpuset": "cpuset.cpus", "cpu": "cpu.shares", "memory": "memory.limit_in_bytes"}


def detect(
    root: Path, files: CgroupFiles | None = None, *, controllers: frozenset[str] = frozenset(_V1_MARKS)
) -> Hierarchy:
    """The hierarchy under `root`, /sys/fs/cgroup on a machine, that has the cpuset controller.

    controllers: the ones to use where they are there. Raises NoControllerError where cpuset is in no hierarchy.
    """
    files = files or KernelFiles()
    for unified in (root, root / "unified"):
        available = _v2_controllers(unified, files)
        if "cpuset" in available:
            return CgroupV2(unified, controllers & available, files)
    mounts = {name: path for name, path in _v1_mounts(root, files).items() if name in controllers}
    if "cpuset" not in mounts:
        raise NoControllerError(root, "no cgroup hierarchy here has the cpuset controller")
    return CgroupV1(mounts, files)


def _v2_controllers(unified: Path, files: CgroupFiles) -> frozenset[str]:
    try:
        return frozenset(files.read(str(unified / "cgroup.controllers")).split())
    except OSError:
        return frozenset()  # no cgroup v2 here


def _v1_mounts(root: Path, files: CgroupFiles) -> Mapping[str, Path]:
    """Controller -> mount point. Several controllers on one mount have a directory "cpu,cpuacct"."""
    try:
        names = files.children(str(root))
    except OSError as error:
        raise explain(0, Action.READ, root, error) from error
    mounts: dict[str, Path] = {}
    for name in names:
        for controller in name.split(","):
            if controller in _V1_MARKS and _readable(root / name / _V1_MARKS[controller], files):
                mounts[controller] = root / name
    return mounts


def _readable(path: Path, files: CgroupFiles) -> bool:
    try:
        files.read(str(path))
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ENOTDIR)
    return True
