"""What systemd calls the cgroups it manages: unit names, and the unit properties that say what cgroup files say.

Sources: org.freedesktop.systemd1(5) for the properties and their types, systemd.unit(5) and systemd.slice(5) for names. A
property lives in a drop-in of the unit, so unlike a file's content it is still there after a daemon-reload.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TypeAlias

from agent.model.cpuset import CPUSet
from agent.policy.cgroup_names import CgroupNameError, checked_container_name, checked_uid, nested_slices
from agent.policy.cgroup_settings import CFS_PERIOD_US, NO_LIMIT, Settings, weight_of

Property: TypeAlias = tuple[str, tuple[str, bytes | int]]  # name, (D-Bus type, value)

OLDEST_VERSION = 244  # the first with AllowedCPUs and AllowedMemoryNodes
MAX_UNIT_NAME = 255  # characters
_INFINITY = (1 << 64) - 1
# CPUQuota= is kept in whole percents: what is finer is lost with the next daemon-reload
_PERCENT_US = CFS_PERIOD_US // 100
_UNIT = re.compile(r"[A-Za-z0-9:_.\\-]+\.(?:slice|scope)", re.ASCII)
_POD_SLICE = re.compile(r"(?P<root>.+)-pod(?P<uid>[^-]+)\.slice", re.ASCII)
_DASH = r"\x2d"  # systemd-escape(1): a '-' would separate the slice from its parent


def unit_of(group: PurePosixPath) -> str | None:
    """The unit whose cgroup this is, by its name; None for a cgroup that cannot be a slice's or a scope's."""
    if not group.parts or not _UNIT.fullmatch(group.name) or len(group.name) > MAX_UNIT_NAME:
        return None
    return group.name if all(part.endswith(".slice") for part in group.parts[:-1]) else None


def properties_of(settings: Settings) -> tuple[Property, ...]:
    """The properties that say these settings; a quota that is no whole percent is rounded up, as runc does."""
    found: list[Property] = []
    if settings.mems is not None:
        found.append(("AllowedMemoryNodes", ("ay", id_bytes(CPUSet(settings.mems)))))
    if settings.cpus is not None:
        found.append(("AllowedCPUs", ("ay", id_bytes(settings.cpus))))
    if settings.memory_bytes is not None:
        found.append(("MemoryMax", ("t", _INFINITY if settings.memory_bytes == NO_LIMIT else settings.memory_bytes)))
    if settings.shares is not None:
        found.append(("CPUWeight", ("t", weight_of(settings.shares))))
    if settings.quota_us is not None:
        found.append(("CPUQuotaPerSecUSec", ("t", _quota_per_second(settings.quota_us))))
    return tuple(found)


def whole_percents(settings: Settings) -> Settings:
    """What of these settings a property can say as it is: all but a quota that is no whole percent."""
    exact = settings.quota_us in (None, NO_LIMIT) or (settings.quota_us or 0) % _PERCENT_US == 0
    return settings if exact else replace(settings, quota_us=None)


def id_bytes(ids: CPUSet) -> bytes:
    """CPUs or memory nodes as systemd takes them: byte 0 has ids 0 to 7, lowest bit first. Raises ValueError for none.

    An empty array would mean "all of the parent's".
    """
    if not ids:
        raise ValueError("an empty set is never sent: systemd takes it for the parent's")
    return ids.mask.to_bytes((ids.mask.bit_length() + 7) // 8, "little")


def _quota_per_second(quota_us: int) -> int:
    if quota_us == NO_LIMIT:
        return _INFINITY
    return -(-quota_us // _PERCENT_US) * _PERCENT_US * (1_000_000 // CFS_PERIOD_US)


# --- the units of `pinfold exec`: one slice for a pod, one scope for a container ---


def exec_slice(parent: PurePosixPath) -> PurePosixPath:
    """The slice for all of them, after `enforcement.parent`: pinfold.slice for "pinfold"."""
    return nested_slices([part.removesuffix(".slice") for part in parent.parts])


@lru_cache(maxsize=512)  # more than the pods of most nodes: entries of ended pods stay until newer ones replace them
def pod_slice(root: PurePosixPath, uid: str) -> PurePosixPath:
    """A pod's slice. root: the slice that all are in. Raises CgroupNameError."""
    name = f"{root.name.removesuffix('.slice')}-pod{checked_uid(uid).replace('-', _DASH)}.slice"
    if len(name) > MAX_UNIT_NAME:
        raise CgroupNameError(f"pod UID {uid!r} makes too long a unit name", hint="use fewer '-' in it, or a UUID")
    return root / name


def container_scope(root: PurePosixPath, uid: str, container: str) -> PurePosixPath:
    """A container's scope. A container name has no dot, so no other pair of UID and name has this unit name."""
    prefix = root.name.removesuffix(".slice")
    return pod_slice(root, uid) / f"{prefix}-{uid}.{checked_container_name(container)}.scope"


def uid_of_slice(root: PurePosixPath, name: str) -> str:
    """The UID whose slice has this name. Raises CgroupNameError where it is nobody's."""
    found = _POD_SLICE.fullmatch(name)
    uid = found["uid"].replace(_DASH, "-") if found else ""
    if not uid or pod_slice(root, uid).name != name:
        raise CgroupNameError(f"{name[:140]!r} is no slice of a pod")
    return uid


def container_of_scope(root: PurePosixPath, uid: str, name: str) -> str:
    """The container of the pod whose scope has this name. Raises CgroupNameError where it is nobody's."""
    container = name.removesuffix(".scope").rpartition(".")[2]
    if container_scope(root, uid, container).name != name:
        raise CgroupNameError(f"{name[:140]!r} is no scope of pod {uid}")
    return container
