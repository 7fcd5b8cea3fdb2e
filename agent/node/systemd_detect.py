"""Whether systemd is the one who manages this machine's cgroups, and can hold cpusets for us."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from agent.node.cgroup import Hierarchy
from agent.node.systemd_bus import SystemdBus, SystemdError
from agent.policy.systemd_units import OLDEST_VERSION


@dataclass(frozen=True, slots=True)
class Manager:
    """bus: None where cgroups are written directly. text: what was found, for people. odd: it should have worked."""

    bus: SystemdBus | None
    text: str
    odd: bool = False


def find_manager(hierarchy: Hierarchy, mount: Path, bus: SystemdBus) -> Manager:
    """mount: `enforcement.cgroupRoot`. Nothing is changed, and nothing raised."""
    if not bus.listens():
        return Manager(None, "systemd does not run here")
    if hierarchy.version != 2 or hierarchy.directories(PurePosixPath()) != (mount,):
        return Manager(None, "cgroup v1 or hybrid, where systemd manages no cpusets")
    try:
        version, top = bus.version(), bus.control_group()
    except SystemdError as error:
        return Manager(None, str(error), odd=True)
    if version < OLDEST_VERSION:
        return Manager(None, f"systemd {version} has no AllowedCPUs yet, {OLDEST_VERSION} has", odd=True)
    if top:
        return Manager(None, f"systemd's own cgroup is {top}, not the top of {mount}", odd=True)
    return Manager(bus, f"systemd {version}")
