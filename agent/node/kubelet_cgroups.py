"""The cgroups of a kubelet's pods as they are now, for as long as a source or the runtime says whose containers they are."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import RuntimeCallError
from agent.node.kubepods import detect_driver, find_kubepods
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup

Instances = Mapping[str, ContainerCgroup]


class KubeletCgroups:
    """cgroup_root: the kubelet's `cgroupRoot`. ask: container id -> container as the runtime says, where it is asked.

    told: the same as the pods' statuses say, set by the loop before every look.
    """

    def __init__(self, hierarchy: Hierarchy, cgroup_root: str = "/", ask: Callable[[], Instances] = dict) -> None:
        self._hierarchy = hierarchy
        self._root = cgroup_root
        self._ask = ask
        self._answered: Instances = {}
        self.told: Instances = {}

    def find(self) -> Mapping[CgroupKey, PurePosixPath]:
        """QoS, pod and known container cgroups. Raises CgroupError where the hierarchy cannot be read."""
        driver = detect_driver(self._hierarchy, self._root)  # anew: a kubelet may come later, or with the other driver
        if driver is None:
            return {}
        # A runtime that restarts has the same containers afterwards; what it said before holds until it answers again.
        with contextlib.suppress(RuntimeCallError):
            self._answered = self._ask()
        return find_kubepods(self._hierarchy, driver, {**self.told, **self._answered}, self._root)
