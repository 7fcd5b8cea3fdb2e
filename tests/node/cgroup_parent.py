"""A private corner of this machine's real cgroup hierarchy for one test, removed afterwards with whatever it holds."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import CgroupBusyError

ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def real_parent(controllers: frozenset[str]) -> Iterator[tuple[Hierarchy, PurePosixPath]]:
    """The hierarchy and a new group in it. Skips the test, with the reason, where groups cannot be made."""
    try:
        hierarchy = detect(ROOT, controllers=controllers)
        parent = PurePosixPath(f"pinfold-test-{os.getpid()}-{time.monotonic_ns()}")
        hierarchy.create(parent)
    except AgentError as error:
        pytest.skip(f"no writable cpuset cgroups here: {error}")
    try:
        yield hierarchy, parent
    finally:
        remove_with_tasks(hierarchy, parent)


def remove_with_tasks(hierarchy: Hierarchy, group: PurePosixPath) -> None:
    """Kill what runs in the group and remove it."""
    for _ in range(200):
        for pid in hierarchy.processes(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            return hierarchy.remove(group)
        except CgroupBusyError:
            time.sleep(0.01)  # a killed task leaves its cgroup a moment later
    raise AssertionError(f"{group} cannot be removed: {hierarchy.processes(group)} do not die")


def join(hierarchy: Hierarchy, group: PurePosixPath, pid: int) -> None:
    """Move a process into a group, as whoever starts containers does."""
    for directory in hierarchy.directories(group):
        (directory / "cgroup.procs").write_text(str(pid))


def need_cpus(count: int, hierarchy: Hierarchy) -> CPUSet:
    """The CPUs that groups can have here; skips where there are fewer than `count`."""
    cpus, _ = hierarchy.bounds(PurePosixPath())
    if len(cpus) < count:
        pytest.skip(f"needs {count} CPUs, cgroups here have {cpus}")
    return cpus


@contextlib.contextmanager
def sleeper() -> Iterator[int]:
    """A process that does nothing, by pid."""
    process = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
