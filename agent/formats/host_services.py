"""systemd drop-ins that keep host services off exclusive CPUs (design section 14): which files, and what they say.

cgroup v2: `AllowedCPUs=` of the units that hold everything that is not a container (systemd.resource-control(5)); kubepods and
pinfold's own cgroups are beside them, not below. cgroup v1: systemd has no such property there, so the services get an affinity
from PID 1 (`CPUAffinity=`, systemd-system.conf(5)). Children inherit it, and since Linux 6.2 a cpuset only narrows it: container
runtimes get every CPU back, or their containers would stay on the reserved ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from agent.model.cpuset import MAX_CPUS, CPUSet

FILE_NAME = "50-pinfold.conf"
MARK = "# Written by `pinfold host-services --apply`, taken back by `pinfold host-services --remove`."
HOST_UNITS: Mapping[str, str] = {
    "system.slice": "Slice",
    "user.slice": "Slice",
    "machine.slice": "Slice",
    "init.scope": "Scope",
}
_RUNTIMES = ("containerd.service", "crio.service", "docker.service")
_EVERY_CPU = f"0-{MAX_CPUS - 1}"


def drop_ins(cpus: CPUSet, version: int) -> Mapping[PurePosixPath, str]:
    """Path below /etc/systemd -> content. cpus: for host services, not empty. version: of the cgroup hierarchy with cpuset."""
    if not cpus:
        raise ValueError("no CPUs for host services")
    if version == 2:
        return {_of_unit(unit): _text(part, "AllowedCPUs", str(cpus)) for unit, part in HOST_UNITS.items()}
    manager = {PurePosixPath("system.conf.d", FILE_NAME): _text("Manager", "CPUAffinity", str(cpus))}
    return manager | {_of_unit(unit): _text("Service", "CPUAffinity", _EVERY_CPU) for unit in _RUNTIMES}


def every_path() -> tuple[PurePosixPath, ...]:
    """Every file that `drop_ins` may name, below /etc/systemd."""
    one = CPUSet.of([0])
    return tuple(sorted({*drop_ins(one, 1), *drop_ins(one, 2)}))


def host_unit_of(group: PurePosixPath) -> str:
    """The host unit that a cgroup is in, "" where it is in none: its tasks would be narrowed too."""
    return group.parts[0] if group.parts and group.parts[0] in HOST_UNITS else ""


def _of_unit(unit: str) -> PurePosixPath:
    return PurePosixPath("system", f"{unit}.d", FILE_NAME)


def _text(section: str, key: str, value: str) -> str:
    return f"{MARK}\n[{section}]\n{key}={value}\n"
