"""What the kernel's refusals of cgroup operations mean, and what to do about each.

One errno has several meanings, by operation and by cgroup version; the tables were made against kernel 6.18 (v1) and 6.1 (v2).
Sources: cgroup-v1/cpusets.rst and cgroup-v2.rst of the kernel's documentation; kernel/cgroup/cpuset.c.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

from agent.errors import AgentError


class Action(StrEnum):
    """What was tried."""

    READ = "read"
    CPUS = "set the CPUs of"
    MEMS = "set the memory nodes of"
    QUOTA = "set the CPU quota of"
    SHARES = "set the CPU weight of"
    MEMORY = "set the memory bound of"
    ATTACH = "move a process into"
    CREATE = "create"
    REMOVE = "remove"
    CONTROL = "enable controllers in"


class CgroupError(AgentError):
    """The kernel refused a cgroup operation, or took it without effect.

    path: the file or directory concerned. errno: the kernel's number, 0 where a write was accepted and is not in effect.
    """

    hint = "see the kernel's log (dmesg); the agent tries again in the next period"

    def __init__(self, path: Path | str, message: str, *, number: int = 0, hint: str | None = None) -> None:
        super().__init__(f"{path}: {message}", hint=hint)
        self.path = Path(path)
        self.errno = number


class CgroupGoneError(CgroupError):
    """The cgroup was removed meanwhile: its container or pod has ended."""

    hint = "nothing to do: the container has ended"


class OutsideParentError(CgroupError):
    """The set is wider than the parent cgroup allows."""

    hint = "widen the parent cgroup first, or give the agent a parent cgroup (enforcement.parent) that has these CPUs"


class CgroupBusyError(CgroupError):
    """Something inside stands in the way: a child that is wider, a task, a cgroup."""


class EmptySetError(CgroupError):
    """A cpuset without CPUs or memory nodes cannot hold tasks."""

    hint = "set cpuset.cpus and cpuset.mems before tasks come, and never empty them while tasks are inside"


class OutOfRangeError(CgroupError):
    """A number beyond what the machine or the kernel has."""


class RefusedSettingError(CgroupError):
    """A value that this kernel does not take."""


class CgroupPermissionError(CgroupError):
    """Not allowed to write here."""

    hint = "run the agent as root with the cgroup file system writable; in a container mount /sys/fs/cgroup read-write"


class NoControllerError(CgroupError):
    """The controller's files are not there: it is not mounted (v1), or not enabled in the parent (v2)."""

    hint = "enable the controller in cgroup.subtree_control of every parent (systemd: Delegate=yes), or boot with it enabled"


class CgroupLimitError(CgroupError):
    """No more cgroups can be made here."""

    hint = "raise cgroup.max.descendants and cgroup.max.depth of the parents, or remove cgroups that are no longer used"


class NotEffectiveError(CgroupError):
    """cgroup v2 accepted a set that its tasks do not get: they run on other CPUs now."""

    hint = (
        "the parent cgroup must have these CPUs and they must be online: compare cpuset.cpus.effective of the parents"
    )


class RuntimeCallError(CgroupError):
    """The container runtime, which should write the cgroup, cannot be asked, or refused."""

    hint = "see that the container runtime runs and that enforcement.runtimeEndpoint is its socket"


_Meaning = tuple[type[CgroupError], str, str | None]

# (version or 0 for both, action or None for any, errno) -> (error, what it means, hint where the class's own is too general)
_MEANINGS: dict[tuple[int, Action | None, int], _Meaning] = {
    (0, None, errno.ENOENT): (CgroupGoneError, "the cgroup is gone", None),
    (0, None, errno.ENODEV): (CgroupGoneError, "the cgroup is gone", None),
    (0, None, errno.EPERM): (CgroupPermissionError, "not permitted", None),
    (0, None, errno.EACCES): (CgroupPermissionError, "not permitted", None),
    (0, None, errno.EROFS): (CgroupPermissionError, "the cgroup file system is mounted read-only", None),
    (1, Action.CPUS, errno.EACCES): (OutsideParentError, "wider than the parent cgroup", None),
    (1, Action.MEMS, errno.EACCES): (OutsideParentError, "wider than the parent cgroup", None),
    (1, Action.CPUS, errno.EBUSY): (CgroupBusyError, "a cgroup inside is wider", "shrink the cgroups inside first"),
    (1, Action.MEMS, errno.EBUSY): (CgroupBusyError, "a cgroup inside is wider", "shrink the cgroups inside first"),
    (1, Action.MEMORY, errno.EBUSY): (
        CgroupBusyError,
        "more memory is in use than the new bound and it cannot be reclaimed",
        "raise the container's memory limit, or wait until it uses less",
    ),
    (0, Action.REMOVE, errno.EBUSY): (
        CgroupBusyError,
        "tasks or cgroups are still inside",
        "end what runs inside first",
    ),
    (2, Action.ATTACH, errno.EBUSY): (
        CgroupBusyError,
        "it has controllers enabled for cgroups inside, so it cannot hold processes itself",
        "move the process into a cgroup below that has none of its own inside",
    ),
    (2, Action.CONTROL, errno.EBUSY): (
        CgroupBusyError,
        "processes are inside, and cgroup v2 wants them in leaves",
        "give the agent a parent cgroup without processes (enforcement.parent; systemd: a delegated slice)",
    ),
    (2, Action.ATTACH, errno.EOPNOTSUPP): (
        CgroupBusyError,
        "it is a threaded cgroup, or below one",
        "use a cgroup whose cgroup.type is domain",
    ),
    (0, Action.ATTACH, errno.ENOSPC): (EmptySetError, "it has no CPUs or no memory nodes yet", None),
    (0, Action.CPUS, errno.ENOSPC): (EmptySetError, "tasks are inside, so it cannot be without CPUs", None),
    (0, Action.MEMS, errno.ENOSPC): (EmptySetError, "tasks are inside, so it cannot be without memory nodes", None),
    (0, Action.CREATE, errno.ENOSPC): (CgroupLimitError, "no more cgroups can be made", None),
    (0, Action.CREATE, errno.EAGAIN): (CgroupLimitError, "no more cgroups can be made", None),
    (0, Action.CPUS, errno.ERANGE): (
        OutOfRangeError,
        "a CPU that this machine cannot have",
        "compare with /sys/devices/system/cpu/possible; the state may be of another machine (pinfold checkpoint verify)",
    ),
    (0, Action.MEMS, errno.ERANGE): (
        OutOfRangeError,
        "a memory node that this machine cannot have",
        "compare with /sys/devices/system/node/possible",
    ),
    (0, Action.SHARES, errno.ERANGE): (OutOfRangeError, "outside what the kernel takes", "cpu.weight is 1 to 10000"),
    (0, Action.CPUS, errno.EINVAL): (
        RefusedSettingError,
        "no CPU of the set is usable here",
        "compare with /sys/devices/system/cpu/online; offline CPUs cannot be given on cgroup v1",
    ),
    (0, Action.MEMS, errno.EINVAL): (
        RefusedSettingError,
        "a memory node that is not online",
        "compare with /sys/devices/system/node/has_memory",
    ),
    (1, Action.QUOTA, errno.EINVAL): (
        RefusedSettingError,
        "below 1000 µs, or more than the parent cgroup has",
        "raise or lift cpu.cfs_quota_us of the parent first",
    ),
    (2, Action.QUOTA, errno.EINVAL): (
        RefusedSettingError,
        "below 1000 µs or not a quota",
        "set a CPU limit of 10m or more",
    ),
    (2, Action.CONTROL, errno.EINVAL): (NoControllerError, "a controller that this cgroup does not have", None),
    (2, Action.CONTROL, errno.ENOENT): (NoControllerError, "a controller that is not free for this hierarchy", None),
    (0, None, errno.EINVAL): (RefusedSettingError, "this kernel does not take that value", None),
}


def make_all(writes: Iterable[Callable[[], None]]) -> None:
    """Make every one of these writes, whatever becomes of the others. Raises the first refusal."""
    refused: list[CgroupError] = []
    for write in writes:
        try:
            write()
        except CgroupError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def explain(version: int, action: Action, path: Path | str, error: OSError, value: str = "") -> CgroupError:
    """The typed error of a refused operation. version: of the hierarchy. value: what was to be written."""
    number = error.errno or 0
    for key in ((version, action, number), (0, action, number), (version, None, number), (0, None, number)):
        if key in _MEANINGS:
            kind, meaning, hint = _MEANINGS[key]
            break
    else:
        kind, meaning, hint = CgroupError, error.strerror or str(error), None
    tried = f"cannot {action} the cgroup" if action is not Action.READ else "cannot read"
    shown = f" ({value!r})" if value else ""
    return kind(path, f"{tried}{shown}: {meaning} ({errno.errorcode.get(number, number)})", number=number, hint=hint)
