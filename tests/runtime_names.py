"""The last component of a container's cgroup, as containerd and CRI-O name it; `agent.policy.cgroup_names` reads them."""

from __future__ import annotations

from enum import StrEnum

from agent.policy.cgroup_names import Driver


class Runtime(StrEnum):
    """Who names the container's own cgroup."""

    CONTAINERD = "containerd"
    CRIO = "cri-o"


def container_leaf(driver: Driver, runtime: Runtime, container_id: str) -> str:
    """container_id: 64 hex digits, as in the runtime's answers."""
    match driver, runtime:
        case Driver.SYSTEMD, Runtime.CONTAINERD:
            return f"cri-containerd-{container_id}.scope"
        case Driver.SYSTEMD, _:
            return f"crio-{container_id}.scope"
        case _, Runtime.CONTAINERD:
            return container_id
        case _:
            return f"crio-{container_id}"
