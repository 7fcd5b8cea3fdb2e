"""Runs as root inside the booted container, with pinfold's own Python: asks the real systemd for units, and says what it saw.

cgroup v1 has no cpusets of systemd's, so what is seen here are units, processes and properties; the CPUs are for tests/node_vm.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from agent.model.cpuset import CPUSet
from agent.node.systemd_bus import SystemdBus, SystemdError
from agent.policy.cgroup_settings import Settings
from agent.policy.systemd_units import container_scope, pod_slice, properties_of

ROOT = PurePosixPath("pinfold.slice")
UID = "3f2a1b2c-0000-4000-8000-00000000abcd"
WANTED = Settings(cpus=CPUSet.parse("0-1,17"), mems=1, quota_us=150_000, shares=512, memory_bytes=64 << 20)
NAMES = ("AllowedCPUs", "AllowedMemoryNodes", "MemoryMax", "CPUWeight", "CPUQuotaPerSecUSec")


def said(unit: str) -> dict[str, str]:
    """What systemd itself says of a unit."""
    lines = subprocess.run(["systemctl", "show", unit], capture_output=True, text=True, check=True).stdout.splitlines()
    shown = dict(line.split("=", 1) for line in lines if "=" in line)
    return {name: shown[name] for name in (*NAMES, "Delegate") if name in shown}


def group_of(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    return next(line.split(":", 2)[2] for line in lines if line.startswith("0::"))


def until(done: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not done():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def refusals(bus: SystemdBus, scope: str, inside: str, pid: int) -> dict[str, list[str]]:
    """How the real manager says no."""
    asked: dict[str, Callable[[], None]] = {
        "no such unit": lambda: bus.set_properties("nosuch.scope", properties_of(WANTED)),
        "exists": lambda: bus.start_scope(scope, inside, pid, "it", ()),
        "no such process": lambda: bus.start_scope("other.scope", inside, 1 << 21, "it", ()),
        "wrong type": lambda: bus.set_properties(scope, [("AllowedCPUs", ("t", 3))]),
    }
    found: dict[str, list[str]] = {}
    for name, ask in asked.items():
        try:
            ask()
        except SystemdError as error:
            found[name] = [type(error).__name__, str(error)]
    return found


def main() -> None:
    bus = SystemdBus(timeout_seconds=30.0)  # of a busy machine
    pod, scope = pod_slice(ROOT, UID), container_scope(ROOT, UID, "main")
    bus.start_slice(pod.name, "A pod", properties_of(WANTED))
    # not with our output: whoever reads that would wait for it where something here fails
    child = subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    bus.start_scope(scope.name, pod.name, child.pid, "A container", properties_of(WANTED))
    seen: dict[str, Any] = {"version": bus.version(), "top": bus.control_group(), "scope": str(scope)}
    seen["moved"] = until(lambda: group_of(child.pid) == f"/{scope}")
    seen["said"] = [said(unit) for unit in (pod.name, scope.name)]
    for unit in (pod.name, scope.name):
        bus.set_properties(unit, properties_of(Settings(cpus=CPUSet.parse("1"))))
    subprocess.run(["systemctl", "daemon-reload"], check=True)
    seen["after reload"] = [said(unit) for unit in (pod.name, scope.name)]
    seen["refusals"] = refusals(bus, scope.name, pod.name, child.pid)
    bus.stop(pod.name)
    seen["ended"] = child.wait(30)
    seen["left"] = not until(lambda: not any(Path("/run/systemd/transient").iterdir()))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
