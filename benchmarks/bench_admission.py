"""One admission from the look to the durable state, beside a straightforward model, and beside the kubelet's figures.

Machines as in the kubelet's own measurement: two sockets, two threads per core, caches of 8 cores, two reserved CPUs, static CPU
and memory policies, `restricted`; ten Guaranteed pods are there, then a pod of one or four containers with 2 CPUs and 1 GiB each
comes. Timed: pods listed, hints, merge, allocation, node fit, the next state, and that written and fsynced to tmpfs or disk. The
model (`tests.policy.reference_admission`) only decides: nothing is written.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from benchmarks.disks import disks
from benchmarks.figure import Figure, Scale, milliseconds, repeated
from benchmarks.problems import WrongResultError
from benchmarks.row import KUBELET, Recorded, Reference, Row, Target
from tests.nodes import GIB, named
from tests.pods import guaranteed
from tests.policy.reference_admission import ReferenceNode

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


def managers(cpus: int, numa: int, policy: str = "restricted", scope: str = "container") -> Managers:
    """A machine's managers. policy, scope: of the topology manager."""
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
        topology_policy=policy,
        topology_scope=scope,
        topology_options={"max-allowable-numa-nodes": "64"},
    )
    return start(Machine(topology, {node: {"memory": 64 * GIB} for node in range(numa)}, rows), config)


def pod(name: str, containers: int) -> Pod:
    return named(name, *(guaranteed("2", name=f"c{number}") for number in range(containers)))


def scene(cpus: int, numa: int, containers: int, policy: str = "restricted", scope: str = "container") -> Scene:
    rules = managers(cpus, numa, policy, scope)
    there = tuple(Wanted(pod(f"pod-{number}", 1)) for number in range(PODS_THERE))
    empty = State(Epoch(1, "0" * 16), grants=fresh(rules))
    state = decide(rules, ROOM, empty, Observation(there), {}).state
    if len(state.pods) != PODS_THERE:
        raise WrongResultError("the pods that should be there were not admitted")
    return Scene(rules, state, there, pod("new", containers))


def deciding(here: Scene) -> State:
    state = decide(here.managers, ROOM, here.state, here.seen, {}).state
    if here.pod.uid not in state.pods:
        raise WrongResultError("the pod was not admitted")
    return state


def saving(here: Scene, seconds: float, directory: Path) -> Figure:
    """Decided and written."""
    with StateStore(directory) as store:
        store.load(datetime.now(UTC))
        store.save(here.state)
        return repeated(lambda: store.save(deciding(here)), seconds)


def modelled(here: Scene) -> Figure:
    """The straightforward model, once: the decision about the new pod."""
    model = ReferenceNode(here.managers)
    for each in here.there:
        if model.admit(each.pod):
            raise WrongResultError("the model refuses a pod that is there")
    took = milliseconds(lambda: model.admit(here.pod))
    given = {name: str(cpus) for name, cpus in deciding(here).grants.cpu.entries[here.pod.uid].items()}
    theirs = {name: str(CPUSet.of(cpus)) for (uid, name), cpus in model.tables.cpus.items() if uid == here.pod.uid}
    if given != theirs:
        raise WrongResultError(f"the model gives {theirs}, we give {given}")
    return Figure.of([took])


def target(containers: int, numa: int, disk: str, go: float) -> Target | None:
    """Design section 13: four containers on tmpfs."""
    if containers != 4 or disk != "tmpfs":
        return None
    return {
        8: Target("min at most 1/10 of Go's", "least", go / 10),
        2: Target("min not above Go's", "least", go),
    }.get(numa)


def rows(scale: Scale) -> Iterator[Row]:
    with disks() as places:
        for cpus in scale.pick((128, 256), (128,)):
            for containers in (1, 4):
                for numa in scale.pick(NUMA_NODES, (2,)):
                    here = scene(cpus, numa, containers)
                    reference = Reference("a plain model", modelled(here))
                    for disk, directory in places.items():
                        go = GO[cpus, containers][disk][NUMA_NODES.index(numa)]
                        yield Row(
                            f"admit {containers} container{'s'[: containers - 1]}, {cpus} CPUs, {numa} NUMA nodes, {disk}",
                            saving(here, 3 * scale.seconds, directory),
                            reference=reference,
                            recorded=Recorded(go, KUBELET),
                            target=target(containers, numa, disk, go),
                        )
