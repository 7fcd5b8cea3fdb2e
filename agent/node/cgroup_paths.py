"""Groups as paths: checked before they are joined to a mount point, and the tree below one."""

from __future__ import annotations

from pathlib import PurePosixPath

from agent.node.cgroup_files import CgroupFiles
from agent.policy.cgroup_names import CgroupNameError

MAX_DEPTH = 32  # groups inside a container's own; a workload cannot make us walk for ever


def directory(mount: str, group: PurePosixPath) -> str:
    """The group's directory. Raises CgroupNameError for an absolute path or one with "..".

    Joining an absolute path to a mount point would replace the mount point.
    """
    text = str(group)  # kept in the path, unlike its parts; a cache of the results would outlive the groups
    if text.startswith("/") or (".." in text and ".." in group.parts):
        raise CgroupNameError(f"{text[:200]!r} is not a path inside the cgroup hierarchy")
    return mount if text == "." else f"{mount}/{text}"


def levels(group: PurePosixPath) -> list[PurePosixPath]:
    """The group and the groups around it, from the hierarchy's root inwards."""
    return [*reversed(group.parents), group]


def subgroups(path: str, files: CgroupFiles) -> list[str]:
    """The directory itself and every cgroup below it, parents first. One that goes away meanwhile has none below it."""
    found = [path]
    level = [path]
    for _ in range(MAX_DEPTH):
        level = [f"{below}/{name}" for below in level for name in _children(below, files)]
        if not level:
            break
        found += level
    return found


def _children(path: str, files: CgroupFiles) -> list[str]:
    try:
        return files.children(path)
    except OSError:
        return []
