"""Preflight of a node: what pinfold needs from it, and what would work against it. Nothing is changed.

Every check takes what it looks at and gives findings; the command that puts them together is `agent.commands.doctor`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from agent.errors import AgentError
from agent.model.cpuset import CPUSet, union
from agent.model.machine import CPUTopology
from agent.node.cgroup import detect
from agent.node.cri import CRIClient
from agent.node.kubelet_policy import KubeletConflictError, kubelet_conflicts
from agent.node.systemd_detect import Manager
from agent.node.tasks import foreign_tasks


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # it works, and could be better
    FAILURE = "failure"  # the agent would not start, or could not hold what it promises


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. hint: what to do, where it is not ok."""

    check: str
    level: Level
    text: str
    hint: str = ""


_OLDEST, _GOOD = (4, 18), (5, 4)  # kernels: what is tested (v1), and where cpuset on cgroup v2 is complete
RUNTIME_SOCKETS = ("/run/containerd/containerd.sock", "/run/crio/crio.sock", "/var/run/crio/crio.sock")
# a state file has some MiB at most, and is written beside the old one
MIN_FREE_BYTES, GOOD_FREE_BYTES = 8 << 20, 64 << 20
_EARLIEST_SECONDS = 1_735_689_600  # 2025-01-01: an earlier clock was never set
_SERVICES = {  # process name -> what it does to pins, and what to do about it
    "irqbalance": (
        Level.WARNING,
        "moves interrupts onto exclusive CPUs",
        "keep it off them: IRQBALANCE_BANNED_CPULIST in its configuration, or stop it",
    ),
    "numad": (Level.FAILURE, "rewrites cpusets and moves memory by itself", "systemctl disable --now numad"),
    "tuned": (
        Level.WARNING,
        "profiles such as cpu-partitioning move processes and IRQs",
        "use a profile without CPU isolation, or give it only the reserved CPUs",
    ),
}


def kernel(root: Path) -> Iterator[Finding]:
    """The running kernel's version."""
    text = _text(root / "proc/sys/kernel/osrelease")
    match = re.match(r"(\d+)\.(\d+)", text)
    if match is None:
        yield Finding("kernel", Level.WARNING, f"version unknown: {text[:60]!r}")
        return
    version = int(match[1]), int(match[2])
    if version < _OLDEST:
        yield Finding("kernel", Level.FAILURE, f"{text} is too old", f"use {_OLDEST[0]}.{_OLDEST[1]} or later")
    elif version < _GOOD:
        yield Finding("kernel", Level.WARNING, f"{text}: cpusets on cgroup v2 are incomplete", "use 5.4 or later")
    else:
        yield Finding("kernel", Level.OK, text)


def cgroups(mount: Path, parent: PurePosixPath) -> Iterator[Finding]:
    """The hierarchy, its controllers, and whether groups can be made in it."""
    try:
        hierarchy = detect(mount)
    except AgentError as error:
        yield Finding("cgroup", Level.FAILURE, str(error), error.hint)
        return
    missing = sorted({"cpuset", "cpu", "memory"} - hierarchy.controllers)
    yield Finding(
        "cgroup", Level.OK, f"version {hierarchy.version}, controllers {', '.join(sorted(hierarchy.controllers))}"
    )
    if missing:
        text = f"without the controllers {', '.join(missing)}"
        yield Finding(
            "cgroup", Level.WARNING, text, "their bounds are not enforced; enable them, or boot with them enabled"
        )
    where = parent if hierarchy.exists(parent) else PurePosixPath()
    for directory in hierarchy.directories(where):
        if not os.access(directory, os.W_OK):
            hint = "run as root with /sys/fs/cgroup writable; under systemd with Delegate=yes"
            yield Finding("delegation", Level.FAILURE, f"{directory}: cannot be written", hint)
            return
    yield Finding("delegation", Level.OK, f"{mount / where}: groups can be made")


def units(manager: Manager) -> Iterator[Finding]:
    """Whether systemd keeps what is set. manager: what was found of it."""
    if manager.bus is not None:
        text = f"{manager.text} keeps the settings of its slices and scopes; pinfold exec makes scopes"
        yield Finding("systemd", Level.OK, text)
        return
    text = f"cgroups are written directly: {manager.text}"
    hint = "a daemon-reload may undo a write until the next look; see that systemd answers, or set enforcement.systemd: none"
    yield Finding("systemd", Level.WARNING if manager.odd else Level.OK, text, hint if manager.odd else "")


def runtime(endpoint: str, root: Path) -> Iterator[Finding]:
    """The container runtime's socket; where none is configured, which are there."""
    if not endpoint:
        found = [path for path in RUNTIME_SOCKETS if (root / path.lstrip("/")).exists()]
        text = f"not configured; here is {found[0]}" if found else "not configured, and none is here"
        yield Finding("runtime", Level.OK, text)
        return
    client = CRIClient(endpoint, timeout_seconds=3.0)
    try:
        yield Finding("runtime", Level.OK, f"{endpoint}: {client.version()}")
    except AgentError as error:
        yield Finding("runtime", Level.FAILURE, str(error), error.hint)
    finally:
        client.close()


def kubelet(directory: Path) -> Iterator[Finding]:
    """Whether the node's kubelet pins too."""
    found = kubelet_conflicts(directory)
    for conflict in found:
        yield Finding("kubelet", Level.FAILURE, str(conflict), KubeletConflictError.hint)
    if not found:
        yield Finding("kubelet", Level.OK, "no policy of its own that pins")


def services(root: Path) -> Iterator[Finding]:
    """Processes that are known to work against pins."""
    seen = {_text(path) for path in (root / "proc").glob("[0-9]*/comm")}
    here = [name for name in _SERVICES if name in seen]
    for name in here:
        level, what, hint = _SERVICES[name]
        yield Finding("services", level, f"{name} runs: it {what}", hint)
    if not here:
        yield Finding("services", Level.OK, f"none of {', '.join(_SERVICES)} runs")


def reserved_cpus(topology: CPUTopology, reserved: CPUSet, command_line: str) -> Iterator[Finding]:
    """Whether the reserved CPUs are a sensible choice on this machine. command_line: the kernel's."""
    cores = (CPUSet(mask) for mask in topology.core_masks.values())
    halves = union(core for core in cores if core & reserved) - reserved
    if halves:
        text = f"CPUs {reserved} are reserved, their siblings {halves} are not: system tasks slow down who runs there"
        yield Finding("reserved", Level.WARNING, text, f"reserve whole cores: {reserved | halves}")
    isolated = _isolated(command_line)
    if isolated - reserved:
        text = f"isolcpus={isolated}: the scheduler does not balance shared containers on {isolated - reserved}"
        yield Finding("reserved", Level.WARNING, text, "boot without isolcpus: pinfold's cpusets keep others away")
    if reserved and not halves:
        yield Finding("reserved", Level.OK, f"CPUs {reserved}")


def strangers(
    root: Path, mount: Path, groups: Iterable[PurePosixPath], exclusive: CPUSet, others: CPUSet
) -> Iterator[Finding]:
    """Processes that may run on exclusive CPUs although they belong to no container. groups: where containers'
    processes are. others: the CPUs that are for everybody."""
    if not exclusive:
        return
    try:
        hierarchy = detect(mount)
        owners = {pid for group in groups if hierarchy.exists(group) for pid in hierarchy.processes(group)}
        found = [task.name for task in foreign_tasks(root / "proc", exclusive, owners)]
    except (AgentError, OSError) as error:
        yield Finding("strangers", Level.WARNING, f"processes cannot be looked at: {error}", "run as root")
        return
    if not found:
        yield Finding("strangers", Level.OK, f"nobody else may run on the exclusive CPUs {exclusive}")
        return
    names = Counter(found)
    shown = ", ".join(name for name, _ in names.most_common(6)) + (", ..." if len(names) > 6 else "")
    text = f"{len(found)} processes of the host may run on the exclusive CPUs {exclusive}: {shown}"
    hint = (
        f"`pinfold host-services --apply` keeps them on the reserved CPUs; on cgroup v2 and until the next boot: "
        f"systemctl set-property --runtime system.slice AllowedCPUs={others}, and user.slice and init.scope likewise"
    )
    yield Finding("strangers", Level.WARNING, text, hint)


def clock(root: Path, now_seconds: float, written: Iterable[Path]) -> Iterator[Finding]:
    """The clock: set, steady, and not behind what was written before. written: files of the state."""
    source = _text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource")
    if now_seconds < _EARLIEST_SECONDS:
        yield Finding("clock", Level.FAILURE, "was never set", "set it, or start a time service before the agent")
        return
    for path in written:
        try:
            ahead = path.stat().st_mtime - now_seconds
        except OSError:
            continue
        if ahead > 60:
            text = f"{path} was written {ahead:.0f} s from now: the clock ran backwards"
            yield Finding(
                "clock", Level.WARNING, text, "see the time service; a new epoch still orders after the old one"
            )
    if source in ("acpi_pm", "jiffies", "hpet"):
        text = f"clock source {source} is slow: every pinned workload that reads the time pays for it"
        yield Finding("clock", Level.WARNING, text, "see the kernel's log for why tsc is not used")
        return
    yield Finding("clock", Level.OK, f"clock source {source or 'unknown'}")


def directories(paths: Mapping[str, Path]) -> Iterator[Finding]:
    """What the agent writes: permissions and free space. paths: configuration key -> directory."""
    for key, path in paths.items():
        there = next(each for each in (path, *path.parents) if each.exists())
        if not os.access(there, os.W_OK | os.X_OK):
            hint = "run as root, or make it the agent's own"
            yield Finding("directories", Level.FAILURE, f"{key}: {there} cannot be written", hint)
            continue
        free = shutil.disk_usage(there).free
        if free < GOOD_FREE_BYTES:
            level = Level.FAILURE if free < MIN_FREE_BYTES else Level.WARNING
            yield Finding("directories", level, f"{key}: {free >> 20} MiB are free on {there}", "make room there")
        else:
            yield Finding("directories", Level.OK, f"{key}: {there}")


def _isolated(command_line: str) -> CPUSet:
    """`isolcpus=` without its flags (kernel-parameters.txt: isolcpus=[flag-list,]<cpu-list>)."""
    match = re.search(r"(?:^|\s)isolcpus=(\S+)", command_line)
    parts = [part for part in match[1].split(",") if re.fullmatch(r"\d+(-\d+)?", part)] if match else []
    try:
        return CPUSet.parse(",".join(parts))
    except AgentError:
        return CPUSet()


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip("\0 \n")
    except OSError:
        return ""
