"""Names of the cgroups that pods and containers live in, for both cgroup drivers, containerd and CRI-O, and for `pinfold exec`.

Pure text: which of them exist is for `agent.node.kubepods` to see. Every part of a name is checked before it becomes part of
a path, because pods and manifests are written by others. Source: kubelet cm/cgroup_manager_linux.go and
cm/pod_container_manager_linux.go; containerd and CRI-O for the container's own name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TypeAlias

from agent.errors import BadInputError
from agent.model.pod import QOSClass


class CgroupNameError(BadInputError):
    """A UID, container name or id that cannot be part of a cgroup path."""


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """The cgroup of one container: (pod UID, container name), to which the grant belongs whatever instance of it runs.

    instance: the runtime's id, where there is a runtime. While a container restarts two instances may exist (BL-30).
    """

    pod: str
    container: str
    instance: str = ""

    def __str__(self) -> str:
        return f"pod {self.pod} container {self.container}" + (f" ({self.instance[:12]})" if self.instance else "")


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """The cgroup around all containers of one pod, by UID."""

    pod: str

    def __str__(self) -> str:
        return f"pod {self.pod}"


@dataclass(frozen=True, slots=True)
class QOSCgroup:
    """The cgroup around all pods of a QoS class. Guaranteed pods have none: they sit directly under kubepods."""

    qos: QOSClass

    def __str__(self) -> str:
        return f"QoS cgroup {self.qos.lower()}"


CgroupKey: TypeAlias = ContainerCgroup | PodCgroup | QOSCgroup


class Driver(StrEnum):
    """The kubelet's `cgroupDriver`."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
# RFC 1123, as the API server demands of container names
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}", re.ASCII)

_POD_CGROUPFS = re.compile(r"pod([A-Za-z0-9][A-Za-z0-9._-]{0,127})", re.ASCII)
_POD_SYSTEMD = re.compile(r"[A-Za-z0-9._-]+-pod([A-Za-z0-9][A-Za-z0-9._]{0,127})\.slice", re.ASCII)
_CONTAINER_PART = re.compile(r"(?:(?:cri-containerd|crio|docker)-)?([0-9a-f]{64})(?:\.scope)?", re.ASCII)
_QOS_PARTS = {"burstable": QOSClass.BURSTABLE, "besteffort": QOSClass.BEST_EFFORT}


def checked_uid(uid: str) -> str:
    """The UID, if it is fit to be one path component. Raises CgroupNameError."""
    if not _UID.fullmatch(uid):
        raise CgroupNameError(
            f"pod UID {uid[:140]!r} cannot name a cgroup",
            hint="use letters, digits, '-', '_' and '.', starting with a letter or digit, at most 128 of them",
        )
    return uid


def checked_container_name(name: str) -> str:
    """The name, if the API server would accept it. Raises CgroupNameError."""
    if not _LABEL.fullmatch(name):
        raise CgroupNameError(
            f"container name {name[:70]!r} cannot name a cgroup",
            hint="container names are lower-case letters, digits and '-', at most 63 of them (RFC 1123 label)",
        )
    return name


def exec_cgroup(parent: PurePosixPath, uid: str, container: str | None = None) -> PurePosixPath:
    """Where `pinfold exec` runs a container of a manifest pod: <parent>/<uid>/<container>; without container, the pod's own."""
    pod = parent / checked_uid(uid)
    return pod if container is None else pod / checked_container_name(container)


def _join(driver: Driver, components: Sequence[str]) -> PurePosixPath:
    if driver is Driver.SYSTEMD:
        return nested_slices(components)
    return PurePosixPath(*_checked(components))


def nested_slices(components: Sequence[str]) -> PurePosixPath:
    """The slice of these names, one in the other: a.slice/a-b.slice for ["a", "b"]. Raises CgroupNameError."""
    escaped = [part.replace("-", "_") for part in _checked(components)]  # '-' separates a slice from its parent
    return PurePosixPath(*("-".join(escaped[: end + 1]) + ".slice" for end in range(len(escaped))))


def _checked(components: Sequence[str]) -> Sequence[str]:
    for component in components:
        if not _COMPONENT.fullmatch(component):
            raise CgroupNameError(
                f"{component[:140]!r} cannot be part of a cgroup path",
                hint="check the kubelet's cgroupRoot and enforcement.parent",
            )
    return components


def _root_components(cgroup_root: str) -> list[str]:
    return [part.removesuffix(".slice") for part in cgroup_root.split("/") if part]


def qos_cgroup(driver: Driver, qos: QOSClass, cgroup_root: str = "/") -> PurePosixPath:
    """The cgroup that the pods of a QoS class are in, relative to the hierarchy: kubepods itself for Guaranteed."""
    components = [*_root_components(cgroup_root), "kubepods"]
    return _join(driver, components if qos is QOSClass.GUARANTEED else [*components, qos.lower()])


def pod_cgroup(driver: Driver, qos: QOSClass, uid: str, cgroup_root: str = "/") -> PurePosixPath:
    """A pod's cgroup, relative to the hierarchy. uid: for file pods the config hash, as in the kubelet's /pods.

    The systemd driver writes '-' as '_'; `parse_cgroup` gives '-' back, so a UID with '_' is refused there.
    """
    if driver is Driver.SYSTEMD and "_" in uid:
        raise CgroupNameError(f"pod UID {uid[:140]!r}: '_' has no name of its own under the systemd driver")
    components = [*_root_components(cgroup_root), "kubepods"]
    if qos is not QOSClass.GUARANTEED:
        components.append(qos.lower())
    return _join(driver, [*components, f"pod{checked_uid(uid)}"])


@dataclass(frozen=True, slots=True)
class ParsedCgroup:
    """What a cgroup path under kubepods says. uid, container_id: "" where the path ends above one.

    inner: below the container's own cgroup, such as crun's `container` directory or a cgroup of the workload's.
    """

    qos: QOSClass
    uid: str = ""
    container_id: str = ""
    inner: bool = False


def parse_cgroup(path: PurePosixPath) -> ParsedCgroup | None:
    """Read a path under kubepods, of either driver and any cgroupRoot. None: not one of the kubelet's.

    CRI-O's monitor (`crio-conmon-<id>`) is no container and gives None: its CPUs are the node's business.
    """
    parts = list(path.parts)
    start = next((at for at, part in enumerate(parts) if _is_kubepods(part)), None)
    if start is None:
        return None
    systemd = parts[start].endswith(".slice")
    rest = parts[start + 1 :]
    first = rest[0] if rest else ""
    qos = _QOS_PARTS.get(first.removesuffix(".slice").rpartition("-")[2] if systemd else first, QOSClass.GUARANTEED)
    if qos is not QOSClass.GUARANTEED:
        rest = rest[1:]
    if not rest:
        return ParsedCgroup(qos)
    pod = (_POD_SYSTEMD if systemd else _POD_CGROUPFS).fullmatch(rest[0])
    if pod is None:
        return None
    uid = pod[1].replace("_", "-") if systemd else pod[1]
    if len(rest) == 1:
        return ParsedCgroup(qos, uid)
    container = _CONTAINER_PART.fullmatch(rest[1])
    return ParsedCgroup(qos, uid, container[1], inner=len(rest) > 2) if container else None


def _is_kubepods(part: str) -> bool:
    return part == "kubepods" or part == "kubepods.slice" or part.endswith("-kubepods.slice")
