"""One admission from the look to the durable state, beside a straightforward model, and beside the kubelet's figures.

    python -m benchmarks.bench_admission [ROUNDS]

Machines as in the kubelet's own measurement: two sockets, two threads per core, caches of 8 cores, two reserved CPUs, static CPU
and memory policies, `restricted`; ten Guaranteed pods are there, then a pod of one or four containers with 2 CPUs and 1 GiB each
comes. `decide`: pods listed, hints, merge, allocation, node fit, the next state. `tmpfs`, `disk`: the same with the state written
and fsynced. Fastest and median of the rounds, milliseconds of wall clock, as the kubelet's figures are (the fastest, taken on
another run of a busy machine: a reference, not a race). `model` is `tests.policy.reference_admission`, the decision alone.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.model.cpuset import CPUSet
from agent.model.machine import Machine, RawCPU, discover
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import Epoch, State
from agent.node.state_store import StateStore
from agent.policy.managers import ManagerConfig, Managers, start
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Observation, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from tests.nodes import GIB, named
from tests.pods import guaranteed
from tests.policy.reference_admission import ReferenceNode

ROUNDS = 60
PODS_THERE = 10
ROOM = NodeCapacity({}, {name: Quantity.of(2**50) for name in ("cpu", "memory", "pods")})
# kubelet 1.36.2, restricted, container scope: (CPUs, containers) -> fastest ms by 2, 4, 8 NUMA nodes, on tmpfs and on disk
GO = {
    (128, 1): {"tmpfs": (0.595, 0.632, 9.066), "disk": (1.342, 2.674, 22.173)},
    (128, 4): {"tmpfs": (2.544, 2.773, 67.654), "disk": (10.022, 8.796, 111.157)},
    (256, 1): {"tmpfs": (1.558, 1.283, 21.926), "disk": (3.562, 2.478, 32.781)},
    (256, 4): {"tmpfs": (7.458, 5.721, 104.774), "disk": (41.655, 34.354, 164.872)},
}
NUMA_NODES = (2, 4, 8)


@dataclass(frozen=True)
class Scene:
    """A node with its pods, and one that comes."""

    managers: Managers
    state: State
    there: tuple[Wanted, ...]
    pod: Pod

    @property
    def seen(self) -> Observation:
        return Observation([*self.there, Wanted(self.pod)])


def managers(cpus: int, numa: int) -> Managers:
    cores = cpus // 2
    topology = discover(
        RawCPU(core + thread * cores, core, core * 2 // cores, core * numa // cores, core // 8)
        for core in range(cores)
        for thread in (0, 1)
    )
    rows = {one: tuple(10 if one == other else 20 for other in range(numa)) for one in range(numa)}
    config = ManagerConfig(
        cpu_policy="static",
        reserved_cpus=CPUSet.of([0, cores]),
        memory_policy="Static",
        reserved_memory={node: {"memory": GIB} for node in range(numa)},
        topology_policy="restricted",
    )
    return start(Machine(topology, {node: {"memory": 64 * GIB} for node in range(numa)}, rows), config)


def pod(name: str, containers: int) -> Pod:
    return named(name, *(guaranteed("2", name=f"c{number}") for number in range(containers)))


def scene(cpus: int, numa: int, containers: int) -> Scene:
    rules = managers(cpus, numa)
    there = tuple(Wanted(pod(f"pod-{number}", 1)) for number in range(PODS_THERE))
    empty = State(Epoch(1, "0" * 16), grants=fresh(rules))
    state = decide(rules, ROOM, empty, Observation(there), {}).state
    if len(state.pods) != PODS_THERE:
        raise SystemExit("the pods that should be there were not admitted")
    return Scene(rules, state, there, pod("new", containers))


def measured(rounds: int, once: Callable[[], object]) -> tuple[float, float]:
    """Fastest and median milliseconds."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        once()
        took.append((time.perf_counter() - began) * 1000)
    return min(took), statistics.median(took)


def deciding(here: Scene) -> State:
    state = decide(here.managers, ROOM, here.state, here.seen, {}).state
    if here.pod.uid not in state.pods:
        raise SystemExit("the pod was not admitted")
    return state


def saving(here: Scene, rounds: int, directory: Path) -> tuple[float, float]:
    with StateStore(directory) as store:
        store.load(datetime.now(UTC))
        store.save(here.state)
        return measured(rounds, lambda: store.save(deciding(here)))


def modelled(here: Scene) -> float:
    """The straightforward model, once: the decision about the new pod."""
    model = ReferenceNode(here.managers)
    for each in here.there:
        if model.admit(each.pod):
            raise SystemExit("the model refuses a pod that is there")
    fastest, _ = measured(1, lambda: model.admit(here.pod))
    given = {name: str(cpus) for name, cpus in deciding(here).grants.cpu.entries[here.pod.uid].items()}
    theirs = {name: str(CPUSet.of(cpus)) for (uid, name), cpus in model.tables.cpus.items() if uid == here.pod.uid}
    if given != theirs:
        raise SystemExit(f"the model gives {theirs}, we give {given}")
    return fastest


def row(cpus: int, numa: int, containers: int, rounds: int, tmpfs: Path, disk: Path) -> str:
    here = scene(cpus, numa, containers)
    column = NUMA_NODES.index(numa)
    cells = [f"{cpus:4d} {numa:5d} {containers:5d} "]
    alone, _ = measured(rounds, lambda: deciding(here))
    cells.append(f"{alone:8.2f}")
    for name, directory in (("tmpfs", tmpfs), ("disk", disk)):
        fastest, median = saving(here, rounds, directory)
        go = GO[cpus, containers][name][column]
        cells.append(f"{fastest:8.2f} {median:7.2f} {go:9.2f} {go / fastest:6.1f}x")
    cells.append(f"{modelled(here):10.1f}")
    return "".join(cells)


def main(arguments: Sequence[str]) -> None:
    rounds = int(arguments[0]) if arguments else ROUNDS
    shm = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=shm if shm.is_dir() else None) as tmpfs,
        tempfile.TemporaryDirectory() as disk,
    ):
        print("                       decide   tmpfs  median   kubelet          disk  median   kubelet           model")
        print("CPUs  NUMA  containers  ms       ms      ms        ms              ms      ms        ms              ms")
        for cpus in (128, 256):
            for containers in (1, 4):
                for numa in NUMA_NODES:
                    print(row(cpus, numa, containers, rounds, Path(tmpfs), Path(disk)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
