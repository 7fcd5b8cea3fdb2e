"""The cgroups of a kubelet's pods, as a container runtime makes them, in a corner of this machine's hierarchy; and a writer that
should not touch them."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from agent.errors import AgentError
from agent.model.pod import QOSClass
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import OutsideParentError
from agent.policy.cgroup_names import Driver, pod_cgroup, qos_cgroup
from agent.policy.cgroup_settings import Settings
from tests.node.cgroup_parent import remove_with_tasks

_ROOT = Path("/sys/fs/cgroup")


class Runtime:
    """corner: relative to the hierarchy. The cgroupRoot of its kubelet is `/corner`."""

    def __init__(self, hierarchy: Hierarchy, corner: PurePosixPath) -> None:
        self._hierarchy = hierarchy
        self.corner = corner
        self.root = f"/{corner}"
        self._containers: dict[str, tuple[PurePosixPath, str]] = {}  # pod UID -> its group, its container's id
        for qos in (QOSClass.GUARANTEED, QOSClass.BURSTABLE, QOSClass.BEST_EFFORT):
            hierarchy.create(qos_cgroup(Driver.CGROUPFS, qos, self.root))

    def container(self, uid: str, qos: QOSClass) -> str:
        """Make a container of this pod, or another in its place; the id."""
        group = pod_cgroup(Driver.CGROUPFS, qos, uid, self.root)
        self.end(uid)
        ident = secrets.token_hex(32)
        self._containers[uid] = (group, ident)
        try:
            self._hierarchy.create(group / ident)
        except OutsideParentError:  # v1: the agent has narrowed the pod's cgroup between a look at it and the copy
            self._hierarchy.create(group / ident)
        return ident

    def end(self, uid: str) -> None:
        """Remove the pod's cgroups, if there are any."""
        group, _ = self._containers.pop(uid, (None, ""))
        if group is not None:
            self._hierarchy.remove(group)

    def own_children(self) -> list[str]:
        """The cgroups that the agent has made for its own pods."""
        own = self.corner / "own"
        return self._hierarchy.children(own) if self._hierarchy.exists(own) else []

    def drift(self, rng: random.Random) -> bool:
        """Give some container all CPUs behind the agent's back; whether there was one."""
        if not self._containers:
            return False
        group, ident = rng.choice(list(self._containers.values()))
        cpus, mems = self._hierarchy.bounds(self.corner)
        with contextlib.suppress(AgentError):  # v1: not more than the pod's own cgroup has
            self._hierarchy.write(group, Settings(cpus=cpus, mems=mems))
            self._hierarchy.write(group / ident, Settings(cpus=cpus, mems=mems))
        return True


@contextmanager
def runtime() -> Iterator[Runtime | None]:
    """The runtime, its cgroups removed at the end; None where cgroups cannot be made here."""
    corner = PurePosixPath(f"pinfold-soak-{os.getpid()}")
    try:
        hierarchy = detect(_ROOT)
        hierarchy.create(corner)
        made = Runtime(hierarchy, corner)
    except AgentError:
        yield None
        return
    try:
        yield made
    finally:
        remove_with_tasks(hierarchy, corner)
