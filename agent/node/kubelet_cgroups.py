"""The cgroups of a kubelet's pods as they are now, for as long as a source or the runtime says whose containers they are."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath

from agent.node.cgroup import Hierarchy
from agent.node.cgroup_errors import RuntimeCallError
from agent.node.kubepods import detect_driver, find_kubepods, strange_ids
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup

Instances = Mapping[str, ContainerCgroup]
_YOUNG_SECONDS = 60.0  # a runtime may make a container's cgroup some time before it lists the container (CRI-O does)
_AGAIN_SECONDS = 600.0  # what has exited and left its cgroup behind is known for no longer


class KubeletCgroups:
    """cgroup_root: the kubelet's `cgroupRoot`. ask: container id -> container as the runtime says; None where it is not asked.

    told: the same as the pods' statuses say, set by the loop before every look. clock: seconds, monotonic.

    The runtime is asked only while there are containers that nobody has told of; pause containers stay so, and are not asked
    about for long. A call every ten seconds costs gRPC's threads some dozens of wake-ups each time.
    """

    def __init__(
        self,
        hierarchy: Hierarchy,
        cgroup_root: str = "/",
        ask: Callable[[], Instances] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hierarchy = hierarchy
        self._root = cgroup_root
        self._ask = ask
        self._clock = clock
        self._answered: Instances = {}
        self._answered_at = -math.inf
        self._strangers: Mapping[str, float] = {}  # id -> when the runtime was first asked about it, and answered
        self.told: Instances = {}

    def find(self) -> Mapping[CgroupKey, PurePosixPath]:
        """QoS, pod and known container cgroups. Raises CgroupError where the hierarchy cannot be read."""
        driver = detect_driver(self._hierarchy, self._root)  # anew: a kubelet may come later, or with the other driver
        if driver is None:
            return {}
        found = find_kubepods(self._hierarchy, driver, self._known(), self._root)
        if self._ask is None or not self._to_ask(found):
            return found
        try:
            self._answered, self._answered_at = self._ask(), self._clock()
        except RuntimeCallError:
            # one that restarts has the same containers afterwards; what it said before holds until it answers again
            self._strangers = {}
            return found
        return find_kubepods(self._hierarchy, driver, self._known(), self._root)

    def _known(self) -> Instances:
        return {**self.told, **self._answered}

    def _to_ask(self, found: Mapping[CgroupKey, PurePosixPath]) -> bool:
        """Whether there is a container that the runtime has not been asked about for long enough, or its answer is old."""
        now = self._clock()
        strangers = strange_ids(self._hierarchy, found, self._known())
        self._strangers = {each: self._strangers.get(each, now) for each in strangers}
        young = any(now - since < _YOUNG_SECONDS for since in self._strangers.values())
        return young or now - self._answered_at >= _AGAIN_SECONDS
