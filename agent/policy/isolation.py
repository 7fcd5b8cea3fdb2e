"""How well the kernel was held to the grants: the isolation gap of one change, and drift between two looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agent.model.cpuset import CPUSet
from agent.model.numa import node_ids
from agent.policy.cgroup_names import CgroupKey
from agent.policy.cgroup_settings import NO_LIMIT, Observed, Settings, shares_differ
from agent.policy.pins import Pin

Timeline: TypeAlias = Sequence[tuple[Pin, float | None]]  # writes in the order done, with their time; None: it failed


def isolation_gap(exclusive: CPUSet, timeline: Timeline, started: float) -> float:
    """The gap of one change: the longest time in seconds in which an exclusive CPU was still shared.

    For every exclusive CPU: from the moment at which its owner could use it (the owner's write; `started` where there is
    none) to the last write that took it from somebody else. Times in seconds of one clock. Where a write failed the gap goes
    on; that is a fault of its cgroup, and no time can be given.
    """
    granted: dict[int, float] = {}
    left: dict[int, float] = {}
    for pin, written in timeline:
        if written is None:
            continue
        left.update((cpu, written) for cpu in pin.shed & (exclusive - pin.own))
        if pin.settings.cpus is not None:
            granted.update((cpu, written) for cpu in (pin.settings.cpus & pin.own) - pin.held)
    return max((0.0, *(time - granted.get(cpu, started) for cpu, time in left.items())))


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting that somebody else changed after we had written it.

    setting: the file's kind (`cpus`, `mems`, `quota`, `shares`, `memory`). writer: who it probably was, by the kind of
    change; "unknown" where that says nothing. The kernel does not record who wrote.
    """

    key: CgroupKey
    setting: str
    written: str
    found: str
    writer: str = "unknown"


def drift(written: Mapping[CgroupKey, Settings], observed: Mapping[CgroupKey, Observed]) -> tuple[Drift, ...]:
    """What differs from what was written; cgroups that are gone have not drifted."""
    found: list[Drift] = []
    for key, settings in written.items():
        if key in observed:
            found += _drift(key, settings, observed[key])
    return tuple(found)


def _drift(key: CgroupKey, wrote: Settings, seen: Observed) -> list[Drift]:
    found: list[Drift] = []
    if wrote.cpus is not None and not seen.cpus == seen.effective == wrote.cpus:
        shown = str(seen.effective) if seen.cpus else f"{seen.effective} (inherited)"
        found.append(Drift(key, "cpus", str(wrote.cpus), shown, _cpus_writer(wrote.cpus, seen)))
    if wrote.mems is not None and seen.mems != wrote.mems:
        writer = "systemd" if not seen.mems else "unknown"
        found.append(Drift(key, "mems", _nodes(wrote.mems), _nodes(seen.mems), writer))
    if wrote.quota_us is not None and seen.quota_us not in (None, wrote.quota_us):
        # The kubelet brings the quota of the spec back on every resize, and runc on every update that names one.
        writer = "kubelet" if wrote.quota_us == NO_LIMIT else "unknown"
        found.append(Drift(key, "quota", str(wrote.quota_us), str(seen.quota_us), writer))
    if shares_differ(seen, wrote.shares):
        shown = f"{seen.shares}" if seen.shares is not None else f"weight {seen.weight}"
        found.append(Drift(key, "shares", str(wrote.shares), shown))
    if wrote.memory_bytes is not None and seen.memory_bytes not in (None, wrote.memory_bytes):
        found.append(Drift(key, "memory", str(wrote.memory_bytes), str(seen.memory_bytes)))
    return found


def _cpus_writer(wrote: CPUSet, seen: Observed) -> str:
    if not seen.cpus:
        return "systemd"  # a daemon-reload resets cpusets that are not unit properties (systemd/systemd#40438)
    # v2 keeps the setting and changes the effect where a CPU goes offline or the parent becomes narrower
    return "kernel" if seen.cpus == wrote else "unknown"


def _nodes(mask: int) -> str:
    return ",".join(str(node) for node in node_ids(mask))
