"""Finds the cgroups that a kubelet and its runtime made, by the names of both drivers, containerd and CRI-O.

A cgroup's name says a pod's UID and a container's id; which container has that id the runtime or the pod's status says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from agent.model.pod import QOSClass
from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import CgroupGoneError
from agent.policy.cgroup_names import (
    CgroupKey,
    CgroupNameError,
    ContainerCgroup,
    Driver,
    PodCgroup,
    QOSCgroup,
    parse_cgroup,
    pod_cgroup,
    qos_cgroup,
)

_CLASSES = (QOSClass.GUARANTEED, QOSClass.BURSTABLE, QOSClass.BEST_EFFORT)


def detect_driver(hierarchy: Hierarchy, cgroup_root: str = "/") -> Driver | None:
    """The driver whose kubepods cgroup exists; None where no kubelet has made one."""
    for driver in Driver:
        if hierarchy.exists(qos_cgroup(driver, QOSClass.GUARANTEED, cgroup_root)):
            return driver
    return None


def find_kubepods(
    hierarchy: Hierarchy, driver: Driver, ids: Mapping[str, ContainerCgroup], cgroup_root: str = "/"
) -> Mapping[CgroupKey, PurePosixPath]:
    """Every QoS and pod cgroup, and the container cgroups whose id is in `ids` (id -> container).

    Both instances of a container that restarts are found, each with its id as `instance`. Containers of unknown ids are left
    out: the pause container, and ones that the runtime has not told of yet. Raises CgroupError where the hierarchy cannot be
    read.
    """
    found: dict[CgroupKey, PurePosixPath] = {}
    for qos in _CLASSES:
        parent = qos_cgroup(driver, qos, cgroup_root)
        if qos is not QOSClass.GUARANTEED and hierarchy.exists(parent):
            found[QOSCgroup(qos)] = parent
        for name in _names(hierarchy, parent):
            pod = parse_cgroup(parent / name)
            if pod is None or not pod.uid or pod.qos is not qos:
                continue
            found[PodCgroup(pod.uid)] = parent / name
            found.update(_containers(hierarchy, parent / name, ids))
    return found


def strange_ids(
    hierarchy: Hierarchy, found: Mapping[CgroupKey, PurePosixPath], ids: Mapping[str, ContainerCgroup]
) -> frozenset[str]:
    """The containers of the pods that `find_kubepods` has found whose id is not in `ids`."""
    pods = (group for key, group in found.items() if isinstance(key, PodCgroup))
    parsed = (parse_cgroup(pod / name) for pod in pods for name in _names(hierarchy, pod))
    return frozenset(each.container_id for each in parsed if each is not None and each.container_id) - ids.keys()


def pod_processes(hierarchy: Hierarchy, uid: str, cgroup_root: str = "/") -> tuple[int, ...]:
    """The processes of a kubelet's pod, those of the pause container included. Raises CgroupError."""
    driver = detect_driver(hierarchy, cgroup_root)
    if driver is None:
        return ()
    try:
        groups = [pod_cgroup(driver, qos, uid, cgroup_root) for qos in _CLASSES]
    except CgroupNameError:
        return ()  # a UID out of somebody's file, of which no kubelet makes a cgroup
    for group in groups:
        with contextlib.suppress(CgroupGoneError):  # of another class
            return hierarchy.processes(group)
    return ()


def _containers(
    hierarchy: Hierarchy, pod: PurePosixPath, ids: Mapping[str, ContainerCgroup]
) -> dict[CgroupKey, PurePosixPath]:
    found: dict[CgroupKey, PurePosixPath] = {}
    for name in _names(hierarchy, pod):
        parsed = parse_cgroup(pod / name)
        if parsed is not None and parsed.container_id in ids:
            found[replace(ids[parsed.container_id], instance=parsed.container_id)] = pod / name
    return found


def _names(hierarchy: Hierarchy, group: PurePosixPath) -> list[str]:
    try:
        return hierarchy.children(group)
    except CgroupGoneError:
        return []  # a pod that went away between two looks
