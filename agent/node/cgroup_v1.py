"""cgroup v1: one hierarchy for each controller, all with the same group names (kernel: cgroup-v1/cpusets.rst).

What is special: a child must lie inside its parent, for CPU sets and quotas alike; a new cpuset has no CPUs and no memory nodes
and takes no task; the kernel takes an offlined CPU out of every cpuset for good. An accepted write is in effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.node.cgroup_errors import (
    Action,
    CgroupBusyError,
    CgroupError,
    CgroupGoneError,
    CgroupPermissionError,
    OutsideParentError,
    explain,
    make_all,
)
from agent.node.cgroup_files import CgroupFiles
from agent.node.cgroup_paths import directory, levels, subgroups
from agent.policy.cgroup_settings import CFS_PERIOD_US, NO_LIMIT, Observed, Settings

_NO_MEMORY_LIMIT = 1 << 62  # unlimited reads as 2^63 rounded down to a page; no machine has half of that


class CgroupV1:
    """mounts: controller (cpuset, and where there: cpu, memory) -> its mount point."""

    version = 1

    def __init__(self, mounts: Mapping[str, Path], files: CgroupFiles) -> None:
        # cpuset first: it is the one that may refuse a task
        self._mounts = {name: str(path) for name, path in {"cpuset": mounts["cpuset"], **mounts}.items()}
        self._files = files

    @property
    def controllers(self) -> frozenset[str]:
        return frozenset(self._mounts)

    def directories(self, group: PurePosixPath) -> tuple[Path, ...]:
        return tuple(Path(directory(mount, group)) for mount in self._mounts.values())

    def exists(self, group: PurePosixPath) -> bool:
        return Path(self._dir("cpuset", group)).is_dir()

    def children(self, group: PurePosixPath) -> list[str]:
        path = self._dir("cpuset", group)
        try:
            return self._files.children(path)
        except OSError as error:
            raise explain(1, Action.READ, path, error) from error

    def observe(self, group: PurePosixPath, *, resources: bool = True) -> Observed:
        base = self._dir("cpuset", group)
        cpus = CPUSet.parse(self._read_file(f"{base}/cpuset.cpus"))
        mems = CPUSet.parse(self._read_file(f"{base}/cpuset.mems")).mask
        return Observed(
            cpus=cpus,
            effective=cpus,  # on v1 the two never differ (kernel/cgroup/cpuset.c, legacy hierarchy)
            mems=mems,
            quota_us=self._quota(group),
            shares=self._number("cpu", group, "cpu.shares") if resources else None,
            memory_bytes=self._memory(group) if resources else None,
        )

    def memory_usage(self, group: PurePosixPath) -> int | None:
        return self._number("memory", group, "memory.usage_in_bytes")

    def bounds(self, group: PurePosixPath) -> tuple[CPUSet, NodeMask]:
        return (
            CPUSet.parse(self._read("cpuset", group, "cpuset.effective_cpus")),
            CPUSet.parse(self._read("cpuset", group, "cpuset.effective_mems")).mask,
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
        if wanted.memory_bytes is not None and "memory" in self._mounts:
            limit = str(wanted.memory_bytes)
            writes.append(lambda: self._write("memory", group, "memory.limit_in_bytes", limit, Action.MEMORY))
        if wanted.shares is not None and "cpu" in self._mounts:
            shares = str(wanted.shares)
            writes.append(lambda: self._write("cpu", group, "cpu.shares", shares, Action.SHARES))
        if wanted.quota_us is not None and "cpu" in self._mounts:
            quota = wanted.quota_us
            writes.append(lambda: self._write_quota(group, quota))
        return writes

    def create(self, group: PurePosixPath) -> None:
        for controller, mount in self._mounts.items():
            for level in levels(group)[1:]:
                made = self._make(directory(mount, level))
                if controller == "cpuset" and (made or not self._read("cpuset", level, "cpuset.cpus")):
                    self.inherit(level)

    def inherit(self, group: PurePosixPath) -> None:
        cpus, mems = self.bounds(group.parent)
        self.write(group, Settings(cpus=cpus, mems=mems))

    def processes(self, group: PurePosixPath) -> tuple[int, ...]:
        found: set[int] = set()
        for path in subgroups(self._dir("cpuset", group), self._files):
            try:
                found.update(int(line) for line in self._files.read(f"{path}/cgroup.procs").split())
            except OSError as error:
                gone = explain(1, Action.READ, path, error)
                if not isinstance(gone, CgroupGoneError) or path == self._dir("cpuset", group):
                    raise gone from error
        return tuple(sorted(found))

    def remove(self, group: PurePosixPath) -> None:
        for mount in self._mounts.values():
            for path in reversed(subgroups(directory(mount, group), self._files)):
                try:
                    self._files.rmdir(path)
                except OSError as error:
                    failed = explain(1, Action.REMOVE, path, error)
                    if not isinstance(failed, CgroupGoneError):
                        raise failed from error

    def _dir(self, controller: str, group: PurePosixPath) -> str:
        return directory(self._mounts[controller], group)

    def _make(self, path: str) -> bool:
        try:
            self._files.mkdir(path)
        except FileExistsError:
            return False
        except OSError as error:
            raise explain(1, Action.CREATE, path, error) from error
        return True

    def _read(self, controller: str, group: PurePosixPath, name: str) -> str:
        return self._read_file(f"{self._dir(controller, group)}/{name}")

    def _read_file(self, path: str) -> str:
        try:
            return self._files.read(path)
        except OSError as error:
            raise explain(1, Action.READ, path, error) from error

    def _write(self, controller: str, group: PurePosixPath, name: str, value: str, action: Action) -> None:
        path = f"{self._dir(controller, group)}/{name}"
        try:
            self._files.write(path, value)
        except OSError as error:
            raise explain(1, action, path, error, value) from error

    def _write_set(self, group: PurePosixPath, name: str, wanted: CPUSet, action: Action) -> None:
        if not wanted:
            raise ValueError(f"{group}/{name}: an empty set is never written")
        try:
            self._write("cpuset", group, name, str(wanted), action)
        except CgroupBusyError:
            self._shrink_inside(group, name, wanted, action)
            self._write("cpuset", group, name, str(wanted), action)
        except OutsideParentError as error:
            raise self._outside(group, name, wanted, error) from error

    def _outside(self, group: PurePosixPath, name: str, wanted: CPUSet, error: CgroupError) -> CgroupError:
        """EACCES says "wider than the parent" and "you may not write here" with one number: the parent's set decides."""
        parent = CPUSet.parse(self._read("cpuset", group.parent, name))
        path = f"{self._dir('cpuset', group)}/{name}"
        if wanted <= parent:
            return CgroupPermissionError(
                path, f"cannot write {str(wanted)!r}: not permitted (EACCES)", number=error.errno
            )
        why = f"the parent cgroup has {str(parent)!r} only"
        return OutsideParentError(path, f"cannot write {str(wanted)!r}: {why} (EACCES)", number=error.errno)

    def _shrink_inside(self, group: PurePosixPath, name: str, wanted: CPUSet, action: Action) -> None:
        """Make every group inside fit, deepest first: a pause container and a workload's own cgroups are pinned by nobody."""
        for path in reversed(subgroups(self._dir("cpuset", group), self._files)[1:]):
            try:
                held = CPUSet.parse(self._files.read(f"{path}/{name}"))
                if not held <= wanted:
                    self._files.write(f"{path}/{name}", str(held & wanted or wanted))
            except OSError as error:
                failed = explain(1, action, f"{path}/{name}", error)
                if not isinstance(failed, CgroupGoneError):
                    raise failed from error

    def _quota(self, group: PurePosixPath) -> int | None:
        quota = self._number("cpu", group, "cpu.cfs_quota_us")
        if quota is None or quota < 0:
            return quota if quota is None else NO_LIMIT
        period = self._number("cpu", group, "cpu.cfs_period_us") or CFS_PERIOD_US
        return quota * CFS_PERIOD_US // period

    def _write_quota(self, group: PurePosixPath, quota: int) -> None:
        if quota != NO_LIMIT and self._number("cpu", group, "cpu.cfs_period_us") != CFS_PERIOD_US:
            self._write("cpu", group, "cpu.cfs_quota_us", str(NO_LIMIT), Action.QUOTA)  # a period alone may be refused
            self._write("cpu", group, "cpu.cfs_period_us", str(CFS_PERIOD_US), Action.QUOTA)
        self._write("cpu", group, "cpu.cfs_quota_us", str(quota), Action.QUOTA)

    def _memory(self, group: PurePosixPath) -> int | None:
        limit = self._number("memory", group, "memory.limit_in_bytes")
        return NO_LIMIT if limit is not None and limit >= _NO_MEMORY_LIMIT else limit

    def _number(self, controller: str, group: PurePosixPath, name: str) -> int | None:
        """None where the controller is not mounted, or the group is not in its hierarchy, or it is the root."""
        if controller not in self._mounts:
            return None
        try:
            return int(self._read(controller, group, name))
        except CgroupGoneError:
            return None
