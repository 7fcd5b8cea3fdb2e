"""From a change of grants to written cpusets: 100 containers, real cgroups, one process in each. Needs root.

Run: python -m benchmarks.bench_enforce [CONTAINERS [ROUNDS]]

Every round gives the last CPU to one container and takes it back, so all others shrink and widen. The floor beside it writes the
same sets with bare system calls, without looking, deciding or checking.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import CgroupBusyError
from agent.node.enforcer import CgroupEnforcer
from agent.node.exec_cgroups import ExecCgroups
from agent.policy.cgroup_intents import Intents, Rules, intent
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup
from agent.policy.pins import pins, pins_of


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
            wanted = [intent(each, grants, {}, Rules()).settings for each in (PodCgroup(key.pod), key)]
            groups.prepare(key, *wanted)
            hierarchy.attach(groups.group(key), pid)
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
    assert plan.pins
    assert not applied.failed
    times.look.append((looked - start) * 1000)
    times.decide.append((decided - looked) * 1000)
    times.write.append((done - decided) * 1000)
    times.total.append((done - start) * 1000)
    times.total_cpu.append((time.process_time() - cpu) * 1000)
    times.gap.append(applied.gap.seconds * 1000)


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


def _line(name: str, values: list[float]) -> str:
    ordered = sorted(values)
    p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    return f"{name:28} p50 {statistics.median(ordered):7.2f} ms   p99 {p99:7.2f} ms   max {ordered[-1]:7.2f} ms"


def main(containers: int = 100, rounds: int = 30) -> None:
    """Print the figures."""
    hierarchy = detect(Path("/sys/fs/cgroup"), controllers=frozenset({"cpuset", "cpu"}))
    cpus, _ = hierarchy.bounds(PurePosixPath())
    last = CPUSet.of(list(cpus)[-1:])
    shared = Grants(CPUState(cpus))
    granted = Grants(CPUState(cpus - last, {"pod-0": {"main": last}}))
    times = Times()
    with _containers(hierarchy, PurePosixPath(f"pinfold-bench-{os.getpid()}"), shared, containers) as groups:
        enforcer = CgroupEnforcer(hierarchy, groups.find, time.perf_counter)
        unchanged = Intents(shared, {}, Rules())
        for _ in range(rounds):
            _round(enforcer, granted, times)
            _round(enforcer, shared, times)
            start, cpu = time.perf_counter(), time.process_time()
            seen = enforcer.observe()
            assert not pins_of(unchanged, seen.groups).pins
            assert not seen.drift
            times.idle.append((time.perf_counter() - start) * 1000)
            times.idle_cpu.append((time.process_time() - cpu) * 1000)
            times.floor.append(_floor(hierarchy, groups, cpus - last, shrink=True))
            times.floor.append(_floor(hierarchy, groups, cpus, shrink=False))
    print(
        f"{containers} containers in {containers} pods, cgroup v{hierarchy.version}, {len(cpus)} CPUs, {rounds} rounds"
    )
    print(_line("change to enforced", times.total))
    print(_line("  look at all cgroups", times.look))
    print(_line("  decide what to write", times.decide))
    print(_line("  write in order", times.write))
    print(_line("  CPU time of all that", times.total_cpu))
    print(_line("isolation gap", times.gap[::2]))
    print(_line("bare writes (floor)", times.floor))
    print(_line("period without a change", times.idle))
    print(_line("  CPU time of that", times.idle_cpu))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]))
