"""Cgroups that are a table: what a hierarchy says and takes, without a kernel, for an enforcer with nothing to wait for."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from agent.model.cpuset import CPUSet
from agent.node.cgroup_errors import CgroupGoneError
from agent.policy.cgroup_names import CgroupKey, ContainerCgroup, PodCgroup
from agent.policy.cgroup_settings import Observed, Settings


class MemoryGroups:
    """A pod's group with one container in it for every pod that runs. cpus: those of the machine."""

    def __init__(self, cpus: CPUSet) -> None:
        self._cpus = cpus
        self._groups: dict[PurePosixPath, Settings] = {}
        self._keys: dict[CgroupKey, PurePosixPath] = {}

    def run(self, uids: Iterable[str]) -> None:
        """Exactly these pods run."""
        keys: dict[CgroupKey, PurePosixPath] = {}
        for uid in uids:
            path = PurePosixPath(f"kubepods/pod{uid}")
            keys[PodCgroup(uid)], keys[ContainerCgroup(uid, "app", "1")] = path, path / "1"
        self._keys = keys
        self._groups = {path: self._groups.get(path, Settings(cpus=self._cpus, mems=3)) for path in keys.values()}

    def find(self) -> Mapping[CgroupKey, PurePosixPath]:
        return self._keys

    def drift(self, rng: random.Random) -> bool:
        """Somebody else gives a group all CPUs; whether there is a group."""
        if not self._groups:
            return False
        path = rng.choice(list(self._groups))
        self._groups[path] = self._groups[path].overlaid(Settings(cpus=self._cpus))
        return True

    def observe(self, group: PurePosixPath) -> Observed:
        if group not in self._groups:
            raise CgroupGoneError(str(group), "has been removed")
        said = self._groups[group]
        cpus = said.cpus or CPUSet()
        return Observed(cpus, cpus, said.mems or 0, said.quota_us, said.shares, None, said.memory_bytes)

    def write(self, group: PurePosixPath, settings: Settings) -> None:
        if group not in self._groups:
            raise CgroupGoneError(str(group), "has been removed")
        self._groups[group] = self._groups[group].overlaid(settings)

    def memory_usage(self, group: PurePosixPath) -> int | None:
        return 0
