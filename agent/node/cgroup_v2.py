"""cgroup v2, the unified hierarchy (kernel: cgroup-v2.rst).

What is special: an accepted CPU set proves nothing. CPUs that the parent does not have, or that are offline, are kept in
cpuset.cpus while the tasks run on all of the parent's; so every set is read back from the `.effective` file. Controllers have to
be enabled in every parent, and processes live in leaves only.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.node.cgroup_errors import (
    Action,
    CgroupError,
    CgroupGoneError,
    NoControllerError,
    NotEffectiveError,
    explain,
    make_all,
)
from agent.node.cgroup_files import CgroupFiles
from agent.node.cgroup_paths import directory, levels, subgroups
from agent.policy.cgroup_settings import CFS_PERIOD_US, NO_LIMIT, Observed, Settings, weight_of

_MAX = "max"


class CgroupV2:
    """root: where cgroup2 is mounted. controllers: the ones to enable and use."""

    version = 2

    def __init__(self, root: Path, controllers: frozenset[str], files: CgroupFiles) -> None:
        self._root = str(root)
        self._controllers = controllers
        self._files = files

    @property
    def controllers(self) -> frozenset[str]:
        return self._controllers

    def directories(self, group: PurePosixPath) -> tuple[Path, ...]:
        return (Path(self._dir(group)),)

    def exists(self, group: PurePosixPath) -> bool:
        return Path(self._dir(group)).is_dir()

    def children(self, group: PurePosixPath) -> list[str]:
        path = self._dir(group)
        try:
            return self._files.children(path)
        except OSError as error:
            raise explain(2, Action.READ, path, error) from error

    def observe(self, group: PurePosixPath, *, resources: bool = True) -> Observed:
        cpus = self._optional(group, "cpuset.cpus")
        effective = CPUSet.parse(self._read(group, "cpuset.cpus.effective"))
        mems = self._optional(group, "cpuset.mems")
        quota = _quota_of(self._optional(group, "cpu.max"))
        if not resources:
            return Observed(CPUSet.parse(cpus or ""), effective, CPUSet.parse(mems or "").mask, quota)
        weight, memory = self._optional(group, "cpu.weight"), self._optional(group, "memory.max")
        return Observed(
            cpus=CPUSet.parse(cpus or ""),
            effective=effective,
            mems=CPUSet.parse(mems or "").mask,
            quota_us=quota,
            weight=int(weight) if weight else None,
            memory_bytes=None if memory is None else NO_LIMIT if memory == _MAX else int(memory),
        )

    def memory_usage(self, group: PurePosixPath) -> int | None:
        usage = self._optional(group, "memory.current")
        return None if usage is None else int(usage)

    def bounds(self, group: PurePosixPath) -> tuple[CPUSet, NodeMask]:
        return (
            CPUSet.parse(self._read(group, "cpuset.cpus.effective")),
            CPUSet.parse(self._read(group, "cpuset.mems.effective")).mask,
        )

    def write(self, group: PurePosixPath, settings: Settings) -> None:
        make_all(self._writes(group, settings))

    def _writes(self, group: PurePosixPath, wanted: Settings) -> list[Callable[[], None]]:
        writes: list[Callable[[], None]] = []
        if wanted.mems is not None:
            mems = CPUSet(wanted.mems)
            writes.append(lambda: self._write_set(group, "cpuset.mems", mems, Action.MEMS))
        if wanted.cpus is not None:
            cpus = wanted.cpus
            writes.append(lambda: self._write_set(group, "cpuset.cpus", cpus, Action.CPUS))
        if wanted.memory_bytes is not None and "memory" in self._controllers:
            limit = _MAX if wanted.memory_bytes == NO_LIMIT else str(wanted.memory_bytes)
            writes.append(lambda: self._write(group, "memory.max", limit, Action.MEMORY))
        if "cpu" in self._controllers:
            if wanted.shares is not None:
                weight = str(weight_of(wanted.shares))
                writes.append(lambda: self._write(group, "cpu.weight", weight, Action.SHARES))
            if wanted.quota_us is not None:
                quota = _MAX if wanted.quota_us == NO_LIMIT else str(wanted.quota_us)
                writes.append(lambda: self._write(group, "cpu.max", f"{quota} {CFS_PERIOD_US}", Action.QUOTA))
        return writes

    def create(self, group: PurePosixPath) -> None:
        for level in levels(group):
            if level.parts:
                self._make(self._dir(level))
            if level != group:
                self._enable(level)

    def inherit(self, group: PurePosixPath) -> None:
        for name, action in (("cpuset.cpus", Action.CPUS), ("cpuset.mems", Action.MEMS)):
            if self._read(group, name):
                self._write(group, name, "\n", action)  # the empty set is v2's word for "the parent's"

    def processes(self, group: PurePosixPath) -> tuple[int, ...]:
        found: set[int] = set()
        for path in subgroups(self._dir(group), self._files):
            try:
                found.update(int(line) for line in self._files.read(f"{path}/cgroup.procs").split())
            except OSError as error:
                failed = explain(2, Action.READ, path, error)
                # EOPNOTSUPP: a threaded group; its processes show in the group above
                if error.errno == errno.EOPNOTSUPP or (
                    isinstance(failed, CgroupGoneError) and path != self._dir(group)
                ):
                    continue
                raise failed from error
        return tuple(sorted(found))

    def remove(self, group: PurePosixPath) -> None:
        for path in reversed(subgroups(self._dir(group), self._files)):
            try:
                self._files.rmdir(path)
            except OSError as error:
                failed = explain(2, Action.REMOVE, path, error)
                if not isinstance(failed, CgroupGoneError):
                    raise failed from error

    def _dir(self, group: PurePosixPath) -> str:
        return directory(self._root, group)

    def _make(self, path: str) -> None:
        try:
            self._files.mkdir(path)
        except FileExistsError:
            return
        except OSError as error:
            raise explain(2, Action.CREATE, path, error) from error

    def _enable(self, group: PurePosixPath) -> None:
        """Let the groups below have our controllers."""
        missing = self._controllers - set(self._read(group, "cgroup.subtree_control").split())
        if missing:
            text = " ".join(f"+{controller}" for controller in sorted(missing))
            self._write(group, "cgroup.subtree_control", text, Action.CONTROL)

    def _read(self, group: PurePosixPath, name: str) -> str:
        path = f"{self._dir(group)}/{name}"
        try:
            return self._files.read(path)
        except OSError as error:
            raise self._explained(Action.READ, path, error) from error

    def _optional(self, group: PurePosixPath, name: str) -> str | None:
        """None where this group has no such file: the root, or a controller that is not enabled for it."""
        path = f"{self._dir(group)}/{name}"
        try:
            return self._files.read(path)
        except OSError as error:
            if error.errno == errno.ENOENT:
                return None
            raise self._explained(Action.READ, path, error) from error

    def _write(self, group: PurePosixPath, name: str, value: str, action: Action) -> None:
        path = f"{self._dir(group)}/{name}"
        try:
            self._files.write(path, value)
        except OSError as error:
            raise self._explained(action, path, error, value) from error

    def _explained(self, action: Action, path: str, error: OSError, value: str = "") -> CgroupError:
        file = Path(path)
        if error.errno == errno.ENOENT and file.parent.is_dir() and not file.exists():
            controller = file.name.partition(".")[0]
            return NoControllerError(
                path, f"the {controller} controller is not enabled for this cgroup", number=errno.ENOENT
            )
        return explain(2, action, path, error, value)

    def _write_set(self, group: PurePosixPath, name: str, wanted: CPUSet, action: Action) -> None:
        if not wanted:
            raise ValueError(f"{group}/{name}: an empty set is never written")
        self._write(group, name, str(wanted), action)
        effective = CPUSet.parse(self._read(group, f"{name}.effective"))
        if effective != wanted:
            above = self._read(group.parent, f"{name}.effective")
            raise NotEffectiveError(
                f"{self._dir(group)}/{name}",
                f"{str(wanted)!r} was accepted, but its tasks get {str(effective)!r}; the parent cgroup has {above!r}",
            )


def _quota_of(text: str | None) -> int | None:
    """cpu.max ("max 100000", "50000 100000") in microseconds per CFS_PERIOD_US."""
    if text is None:
        return None
    quota, _, period = text.partition(" ")
    return NO_LIMIT if quota == _MAX else int(quota) * CFS_PERIOD_US // int(period or CFS_PERIOD_US)
