"""From a change of grants to written cpusets: 100 containers, real cgroups, one process in each. Needs root.

Every round gives the last CPU to one container and takes it back, so all others shrink and widen. The floor beside it writes the
same sets with bare system calls, without looking, deciding or checking.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import CgroupBusyError
from agent.node.enforcer import CgroupEnforcer
from agent.node.exec_cgroups import ExecCgroups
from agent.policy.cgroup_intents import Intents, Rules, intent
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup
from agent.policy.pins import pins, pins_of
from benchmarks.figure import Figure, Scale
from benchmarks.problems import CannotRunError, WrongResultError
from benchmarks.row import Reference, Row, Target

LIMIT_MS = 100.0  # design section 13


@dataclass
class Times:
    """Milliseconds of every round; `_cpu` of process time, which a busy machine disturbs less."""

    look: list[float] = field(default_factory=list)
    decide: list[float] = field(default_factory=list)
    write: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    gap: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)
    idle: list[float] = field(default_factory=list)
    total_cpu: list[float] = field(default_factory=list)
    idle_cpu: list[float] = field(default_factory=list)


def _sleepers(count: int) -> list[int]:
    return [subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL).pid for _ in range(count)]


@contextlib.contextmanager
def _containers(hierarchy: Hierarchy, parent: PurePosixPath, grants: Grants, count: int) -> Iterator[ExecCgroups]:
    groups = ExecCgroups(hierarchy, parent)
    pids = _sleepers(count)
    try:
        groups.open()
        for number, pid in enumerate(pids):
            key = ContainerCgroup(f"pod-{number}", "main")
            pod, container = (intent(each, grants, {}, Rules()).settings for each in (PodCgroup(key.pod), key))
            groups.prepare(key, pod, container)
            for directory in hierarchy.directories(groups.group(key)):
                (directory / "cgroup.procs").write_text(str(pid))
        yield groups
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        for _ in range(100):
            with contextlib.suppress(CgroupBusyError):
                hierarchy.remove(parent)
                break
            time.sleep(0.01)


def _round(enforcer: CgroupEnforcer, grants: Grants, times: Times) -> None:
    start, cpu = time.perf_counter(), time.process_time()
    seen = enforcer.observe()
    looked = time.perf_counter()
    plan = pins(grants, {}, seen.groups, Rules())
    decided = time.perf_counter()
    applied = enforcer.apply(plan)
    done = time.perf_counter()
    if not plan.pins or applied.failed:
        raise WrongResultError(f"{len(plan.pins)} writes planned, failed: {applied.failed}")
    times.look.append((looked - start) * 1000)
    times.decide.append((decided - looked) * 1000)
    times.write.append((done - decided) * 1000)
    times.total.append((done - start) * 1000)
    times.total_cpu.append((time.process_time() - cpu) * 1000)
    times.gap.append(applied.gap_seconds * 1000)


def _floor(hierarchy: Hierarchy, groups: ExecCgroups, cpus: CPUSet, *, shrink: bool) -> float:
    files = [
        path
        for group in groups.find().values()
        for directory in hierarchy.directories(group)
        if (path := directory / "cpuset.cpus").exists()
    ]
    files.sort(key=lambda path: len(path.parts), reverse=shrink)  # children shrink first, parents grow first
    start = time.perf_counter()
    for path in files:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, str(cpus).encode())
        os.close(fd)
    return (time.perf_counter() - start) * 1000


def rows(scale: Scale) -> Iterator[Row]:
    containers = scale.pick(100, 3)
    times = measured(containers, scale.pick(30, 2))
    target = Target("p99 < 100 ms", "p99", LIMIT_MS)
    floor = Reference("bare writes", Figure.of(times.floor))
    yield Row(
        f"change to enforced, {containers} containers",
        Figure.of(times.total),
        reference=floor,
        target=target,
        compared="p50",
    )
    yield Row("  look at all cgroups", Figure.of(times.look))
    yield Row("  decide what to write", Figure.of(times.decide))
    yield Row("  write in order", Figure.of(times.write))
    yield Row("  CPU time of all that", Figure.of(times.total_cpu))
    yield Row("isolation gap of an exclusive grant", Figure.of(times.gap[::2]))
    yield Row("period without a change", Figure.of(times.idle))
    yield Row("  CPU time of that", Figure.of(times.idle_cpu))


def measured(containers: int, rounds: int) -> Times:
    """So many rounds with so many containers. Raises CannotRunError where cgroups cannot be written."""
    times, parent = Times(), PurePosixPath(f"pinfold-bench-{os.getpid()}")
    try:
        hierarchy = detect(Path("/sys/fs/cgroup"), controllers=frozenset({"cpuset", "cpu"}))
        cpus, _ = hierarchy.bounds(PurePosixPath())
        hierarchy.create(parent)
    except AgentError as error:
        raise CannotRunError(f"cgroups cannot be written here: {error}") from error
    if len(cpus) < 2:
        raise CannotRunError("one CPU: nothing can be exclusive here")
    last = CPUSet.of(list(cpus)[-1:])
    shared = Grants(CPUState(cpus))
    granted = Grants(CPUState(cpus - last, {"pod-0": {"main": last}}))
    with _containers(hierarchy, parent, shared, containers) as groups:
        enforcer = CgroupEnforcer(hierarchy, groups.find, time.perf_counter)
        unchanged = Intents(shared, {}, Rules())
        for _ in range(rounds):
            _round(enforcer, granted, times)
            _round(enforcer, shared, times)
            start, cpu = time.perf_counter(), time.process_time()
            seen = enforcer.observe()
            if pins_of(unchanged, seen.groups).pins or seen.drift:
                raise WrongResultError("something changes although nothing changed")
            times.idle.append((time.perf_counter() - start) * 1000)
            times.idle_cpu.append((time.process_time() - cpu) * 1000)
            times.floor.append(_floor(hierarchy, groups, cpus - last, shrink=True))
            times.floor.append(_floor(hierarchy, groups, cpus, shrink=False))
    return times
