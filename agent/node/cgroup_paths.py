"""Groups as paths: checked before they are joined to a mount point, and the tree below one."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from agent.node.cgroup_files import CgroupFiles
from agent.policy.cgroup_names import CgroupNameError

MAX_DEPTH = 32  # groups inside a container's own; a workload cannot make us walk for ever


def checked_group(group: PurePosixPath) -> PurePosixPath:
    """The group, if it stays inside the hierarchy. Raises CgroupNameError for an absolute path or one with "..".

    Joining an absolute path to a mount point would replace the mount point.
    """
    if group.is_absolute() or ".." in group.parts:
        raise CgroupNameError(f"{str(group)[:200]!r} is not a path inside the cgroup hierarchy")
    return group


def subgroups(path: Path, files: CgroupFiles) -> list[Path]:
    """The directory itself and every cgroup below it, parents first. One that goes away meanwhile has none below it."""
    found = [path]
    level = [path]
    for _ in range(MAX_DEPTH):
        level = [below / name for below in level for name in _children(below, files)]
        if not level:
            break
        found += level
    return found


def _children(path: Path, files: CgroupFiles) -> list[str]:
    try:
        return files.children(path)
    except OSError:
        return []
