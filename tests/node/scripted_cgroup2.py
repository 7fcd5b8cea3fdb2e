"""A script of cgroup v2, not a kernel: real directories in a temporary folder whose files answer as a 6.1 kernel was seen to.

That is errno by errno, and the silent fall-back of cpuset.cpus.effective. What v2 really does is tested in a virtual machine.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path, PurePosixPath

from agent.model.cpuset import CPUListError, CPUSet

CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
_FILES = {
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.effective": "", "cpuset.mems.effective": ""},
    "cpu": {"cpu.max": "max 100000", "cpu.weight": "100"},
    "memory": {"memory.max": "max"},
}


def _refuse(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class ScriptedV2:
    """online, possible: CPUs. nodes: memory nodes. fail: (file name, errno) answered to the next write of such a file."""

    def __init__(self, root: Path, *, online: str = "0-7", possible: str = "0-7", nodes: str = "0-1") -> None:
        self.root = root
        self.online = CPUSet.parse(online)
        self._possible = CPUSet.parse(possible)
        self._nodes = CPUSet.parse(nodes)
        self.fail: dict[str, int] = {}
        self.alive: set[int] = set()
        self.writes: list[tuple[str, str]] = []
        root.mkdir(exist_ok=True)
        self._put(root / "cgroup.controllers", " ".join(CONTROLLERS))
        self._put(root / "cgroup.subtree_control", "cpu memory")
        self._put(root / "cgroup.procs", "")

    # The system calls, as agent.node.cgroup_files.CgroupFiles has them.

    def read(self, path: str | Path) -> str:
        path = Path(path)
        if path.name.endswith(".effective") and path.exists():
            name = path.name.removesuffix(".effective")
            return str(self._effective(path.parent, name))
        return path.read_text().strip()

    def write(self, path: str | Path, text: str) -> None:
        path = Path(path)
        if not path.exists():
            raise _refuse(errno.ENOENT)
        if path.name in self.fail:
            raise _refuse(self.fail.pop(path.name))
        value = text.strip()
        match path.name:
            case "cgroup.procs":
                self._move(path, int(value))
            case "cgroup.subtree_control":
                self._enable(path, value)
            case "cpuset.cpus" | "cpuset.mems":
                self._check_set(path.name, value)
                self._put(path, value)
            case "cpu.max":
                self._check_quota(value)
                self._put(path, value)
            case "cpu.weight":
                if not 1 <= int(value) <= 10_000:
                    raise _refuse(errno.ERANGE)
                self._put(path, value)
            case "memory.max":
                self._put(path, value)
            case _:
                raise _refuse(errno.EACCES)
        self.writes.append((str(path.relative_to(self.root)), value))

    def mkdir(self, path: str | Path) -> None:
        path = Path(path)
        path.mkdir()
        self._put(path / "cgroup.procs", "")
        self._put(path / "cgroup.subtree_control", "")
        self._populate(path)

    def rmdir(self, path: str | Path) -> None:
        path = Path(path)
        if not path.exists():
            raise _refuse(errno.ENOENT)
        if self.children(path) or self.read(path / "cgroup.procs"):
            raise _refuse(errno.EBUSY)
        for file in path.iterdir():
            file.unlink()
        path.rmdir()

    def children(self, path: str | Path) -> list[str]:
        return sorted(entry.name for entry in Path(path).iterdir() if entry.is_dir())

    # What the kernel does behind them.

    def _put(self, path: Path, text: str) -> None:
        path.write_text(text + "\n")

    def _populate(self, path: Path) -> None:
        enabled = self.read(path.parent / "cgroup.subtree_control").split()
        self._put(path / "cgroup.controllers", " ".join(enabled))
        for controller in enabled:
            for name, text in _FILES.get(controller, {}).items():
                if not (path / name).exists():
                    self._put(path / name, text)

    def _effective(self, path: Path, name: str) -> CPUSet:
        if path == self.root:
            return self.online if name == "cpuset.cpus" else self._nodes
        above = self._effective(path.parent, name)
        own = path / name
        return (CPUSet.parse(own.read_text()) & above if own.exists() else above) or above

    def _check_set(self, name: str, value: str) -> None:
        try:
            wanted = CPUSet.parse(value)
        except CPUListError:
            raise _refuse(errno.EINVAL) from None
        if name == "cpuset.cpus" and not wanted <= self._possible:
            raise _refuse(errno.ERANGE)
        if name == "cpuset.mems" and not wanted <= self._nodes:
            raise _refuse(errno.EINVAL)

    def _check_quota(self, value: str) -> None:
        quota, period = value.split()
        if (quota != "max" and int(quota) < 1000) or not 1000 <= int(period) <= 1_000_000:
            raise _refuse(errno.EINVAL)

    def _enable(self, path: Path, value: str) -> None:
        wanted = {word.removeprefix("+") for word in value.split()}
        if not wanted <= set(self.read(path.parent / "cgroup.controllers").split()):
            raise _refuse(errno.ENOENT)
        if path.parent != self.root and self.read(path.parent / "cgroup.procs"):
            raise _refuse(errno.EBUSY)
        self._put(path, " ".join(sorted(wanted | set(self.read(path).split()))))
        for name in self.children(path.parent):
            self._populate(path.parent / name)

    def _move(self, path: Path, pid: int) -> None:
        if pid not in self.alive:
            raise _refuse(errno.ESRCH)
        if path.parent != self.root and self.read(path.parent / "cgroup.subtree_control"):
            raise _refuse(errno.EBUSY)
        for procs in self.root.rglob("cgroup.procs"):
            self._put(procs, "\n".join(line for line in self.read(procs).split() if line != str(pid)))
        self._put(path, "\n".join([*self.read(path).split(), str(pid)]))

    def run(self, group: PurePosixPath, pid: int) -> None:
        """A process begins in the group."""
        self.alive.add(pid)
        self.write(self.root / group / "cgroup.procs", str(pid))

    def end(self, pid: int) -> None:
        """The process ends."""
        self.alive.discard(pid)
        for procs in self.root.rglob("cgroup.procs"):
            self._put(procs, "\n".join(line for line in self.read(procs).split() if line != str(pid)))
