"""Which processes run where, from the kernel: allowed CPUs and memory nodes, the CPU a task is on, its cgroup (proc(5))."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask

_PF_KTHREAD = 0x00200000  # include/linux/sched.h
_FLAGS, _STARTED = 9 - 3, 22 - 3  # fields of /proc/PID/stat, counted from the one after the name


class TaskError(AgentError):
    """A process whose state cannot be read."""

    hint = "it may have ended; look again"


@dataclass(frozen=True, slots=True)
class Process:
    """One process and no later one of its number, nor one that has this number in another PID namespace.

    started: ticks after the boot.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int, proc: Path = Path("/proc")) -> Process:
        """The process that has this number now. Raises TaskError."""
        try:
            stat = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
            return cls(pid, int(stat.rpartition(")")[2].split()[_STARTED]))
        except (OSError, IndexError, ValueError) as error:
            raise TaskError(f"process {pid} cannot be looked at: {error}") from error

    def require(self, proc: Path = Path("/proc")) -> None:
        """Raises TaskError where this process is not, or no longer, here."""
        if Process.of(self.pid, proc) != self:
            hint = "run the command on the node itself, outside containers"
            raise TaskError(f"process {self.pid} here is another than the one that asks", hint=hint)


@dataclass(frozen=True, slots=True)
class Task:
    """One process, by its main thread.

    name: comm, at most 15 characters. allowed, mems: where it may run and take memory from.
    kernel: a kernel thread.
    """

    pid: int
    name: str
    allowed: CPUSet
    mems: NodeMask
    kernel: bool


def affinity(pid: int) -> CPUSet:
    """The CPUs that a process may run on now (sched_getaffinity(2)). Raises TaskError."""
    try:
        return CPUSet.of(os.sched_getaffinity(pid))
    except OSError as error:
        raise TaskError(f"process {pid}: {error.strerror}") from error


def read_task(proc: Path, pid: int) -> Task:
    """One process. proc: /proc, or a tree like it. Raises TaskError where there is none."""
    directory = proc / str(pid)
    try:
        stat = (directory / "stat").read_text(encoding="utf-8", errors="replace")
        status = (directory / "status").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TaskError(f"{directory}: {error.strerror}") from error
    # The name stands in parentheses and may hold any character, parentheses and blanks included.
    name, _, rest = stat.partition("(")[2].rpartition(")")
    fields = rest.split()
    lists = dict(line.split(":", 1) for line in status.splitlines() if "_allowed_list:" in line)
    try:
        return Task(
            pid=pid,
            name=name,
            allowed=CPUSet.parse(lists["Cpus_allowed_list"]),
            mems=CPUSet.parse(lists["Mems_allowed_list"]).mask,
            kernel=bool(int(fields[_FLAGS]) & _PF_KTHREAD),
        )
    except (KeyError, IndexError, ValueError) as error:
        raise TaskError(f"{directory}: unreadable stat or status") from error


def tasks(proc: Path) -> Iterator[Task]:
    """Every process, ascending by pid; ones that end meanwhile are left out."""
    for pid in sorted(int(entry.name) for entry in proc.iterdir() if entry.name.isdecimal()):
        try:
            yield read_task(proc, pid)
        except TaskError:
            continue


def foreign_tasks(proc: Path, exclusive: CPUSet, owners: Collection[int]) -> Iterator[Task]:
    """The processes that may run on exclusive CPUs without owning them.

    owners: the processes of containers. Kernel threads are left out: most are bound to their CPU and nobody can move them.
    """
    for task in tasks(proc):
        if not task.kernel and task.pid not in owners and task.allowed & exclusive:
            yield task
