"""One decision made durable: how long, how many bytes, how many system calls that reach the disk.

512 CPUs on four NUMA nodes; so many pods are there, the first 250 with a CPU and 64 MiB for themselves.
Timed: the save alone. The kubelet writes its CPU file twice and its memory file twice for one admission; beside it stands that,
as recorded (cpu-v2 and memory-v1).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import cycle
from pathlib import Path

from agent.model.state import Epoch, State
from agent.node.file_ops import FileOps
from agent.node.state_store import StateStore
from agent.policy.observation import Observation, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from benchmarks.bench_admission import ROOM, managers
from benchmarks.disks import disks
from benchmarks.figure import Figure, Scale, repeated
from benchmarks.problems import WrongResultError
from benchmarks.row import KUBELET, Recorded, Row, Target
from tests.nodes import named
from tests.pods import guaranteed

# kubelet 1.36.2, ms of 2 CPU files and 2 memory files, by pods
GO = {
    "tmpfs": {10: 2 * (0.030 + 0.064), 110: 2 * (0.215 + 0.282), 500: 2 * (1.083 + 1.389)},
    "disk": {10: 2 * (0.185 + 0.257), 110: 2 * (0.511 + 0.472), 500: 2 * (1.314 + 1.570)},
}
EXCLUSIVE = 250  # so many of the pods have a CPU of their own at most: 512 CPUs hold them


class CountedOps(FileOps):
    """Counts what reaches the disk. written: bytes; synced: fsync of files and of directories."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Count from nothing."""
        self.written = self.writes = self.files_synced = self.directories_synced = 0

    def write(self, fd: int, data: memoryview) -> int:
        done = super().write(fd, data)
        self.written += done
        self.writes += 1
        return done

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        if os.path.isdir(f"/proc/self/fd/{fd}"):  # noqa: PTH112 - follows the link to what is open
            self.directories_synced += 1
        else:
            self.files_synced += 1


def holding(pods: int) -> State:
    """The state of a node with so many pods."""
    rules = managers(512, 4)
    wanted = [
        Wanted(named(f"workload-{number:04}", guaranteed("1" if number < EXCLUSIVE else "100m", "64Mi")))
        for number in range(pods)
    ]
    state = decide(rules, ROOM, State(Epoch(1, "0" * 16), grants=fresh(rules)), Observation(wanted), {}).state
    if len(state.pods) != pods:
        raise WrongResultError(f"{len(state.pods)} of {pods} pods were admitted")
    return state


def saving(directory: Path, state: State, seconds: float) -> tuple[Figure, CountedOps]:
    """Saves of this state with one pod and without it in turns, as admissions and removals are; and what they did."""
    files = CountedOps()
    last = list(state.pods)[-1]
    fewer = replace(state, pods={uid: record for uid, record in state.pods.items() if uid != last})
    turns = cycle((fewer, state))
    with StateStore(directory, files) as store:
        store.load(datetime.now(UTC))
        store.save(state)
        files.reset()
        return repeated(lambda: store.save(next(turns)), seconds, least=4), files


def rows(scale: Scale) -> Iterator[Row]:
    sizes = dict[int, float]()
    with disks() as places:
        for pods in scale.pick((10, 110, 500), (10,)):
            state = holding(pods)
            for disk, directory in places.items():
                took, files = saving(directory, state, 2 * scale.seconds)
                yield Row(
                    f"save a decision, {pods} pods, {disk}",
                    took,
                    recorded=Recorded(GO[disk][pods], f"{KUBELET}, four files"),
                )
            sizes[pods] = files.written / took.count
            yield count(f"bytes written, {pods} pods", sizes[pods], "bytes")
            yield count(f"bytes written per pod, {pods} pods", sizes[pods] / pods, "bytes")
    once = Target("one fsynced write per decision", "most", 1)
    yield count("state files fsynced per decision", files.files_synced / took.count, "", once)
    yield count("directories fsynced per decision", files.directories_synced / took.count, "")
    yield count("write calls per decision", files.writes / took.count, "")
    if not scale.quick:
        growth = sizes[500] / 500 / (sizes[110] / 110)
        proportional = Target("proportional: at most 1.1", "most", 1.1)
        yield count("bytes per pod at 500 pods / at 110", growth, "", proportional)


def count(what: str, value: float, unit: str, target: Target | None = None) -> Row:
    """A row of one counted value."""
    return Row(what, Figure.of([value]), unit, target=target)
