"""The node occupancy report of a state: who occupies what, in which NUMA zone, and what is left (design section 10).

A function of the state and the rules in force alone, so that a report always equals the state of the generation it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agent.model.cpuset import CPUSet, union
from agent.model.machine import Machine
from agent.model.occupancy import (
    Amounts,
    ContainerOccupancy,
    Held,
    Holdings,
    NodePolicies,
    Occupancy,
    PodOccupancy,
    ResizeReport,
    Terms,
    Zone,
)
from agent.model.pod import Pod
from agent.model.quantity import ZERO
from agent.model.queue import POD_GROUP_ANNOTATION, QUEUE_LABEL
from agent.model.resources import add
from agent.model.state import Blocks, PodRecord, State
from agent.policy.cgroup_intents import has_slice
from agent.policy.feature_gates import FeatureGates
from agent.policy.gpu_request import gpu_request
from agent.policy.managers import Managers
from agent.policy.memory_split import Split, cut, pod_splits
from agent.policy.node_fit import NodeCapacity
from agent.policy.pod_resources import SizingOptions, pod_requests
from agent.policy.preemptibility import pod_preemptibility
from agent.policy.qos import pod_qos
from agent.policy.resize_terms import as_status, effective_container_requests, effective_requests

_SPEC = SizingOptions()


@dataclass(frozen=True, slots=True)
class Origin:
    """Which node a report is of. queue_label: the pods' label that names their queue (KAI's is configurable)."""

    node: str
    queue_label: str = QUEUE_LABEL


class _Basis(NamedTuple):
    """All that a pod's part of a report is made from."""

    record: PodRecord
    cpus: Mapping[str, CPUSet] | None
    pod_cpus: CPUSet | None
    memory: Mapping[str, Blocks] | None
    pod_memory: Blocks | None
    splits: Mapping[str, Split]
    gates: FeatureGates
    machine: Machine


class OccupancyMaker:
    """Makes the reports of one node. Keeps what it made of every pod, since most do not change from one report to the next."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._pods: dict[str, tuple[_Basis, PodOccupancy]] = {}

    def report(self, state: State, managers: Managers, capacity: NodeCapacity, now_seconds: float) -> Occupancy:
        """The report of a state. managers, capacity: those under which it is in force. now_seconds: Unix time.

        A pod of which nothing has changed is the same object as in the report before.
        """
        cpu, memory = state.grants.cpu, state.grants.memory
        splits = pod_splits(memory, state.pods)
        made: dict[str, tuple[_Basis, PodOccupancy]] = {}
        for uid, record in state.pods.items():
            basis = _Basis(
                record,
                cpu.entries.get(uid),
                cpu.pod_entries.get(uid),
                memory.entries.get(uid),
                memory.pod_entries.get(uid),
                splits.get(uid, {}),
                managers.gates,
                managers.machine,
            )
            known = self._pods.get(uid)
            if known is None or known[0] != basis:
                pod = _pod(record, state, managers.gates, managers.machine, basis.splits, self._origin)
                known = basis, pod
            made[uid] = known
        self._pods = made
        pods = {uid: pod for uid, (_, pod) in made.items()}
        return _report(pods, state, managers, capacity, self._origin, now_seconds)


def _report(
    pods: Mapping[str, PodOccupancy],
    state: State,
    managers: Managers,
    capacity: NodeCapacity,
    origin: Origin,
    now_seconds: float,
) -> Occupancy:
    reserved = {
        name: amount - capacity.allocatable.get(name, ZERO)
        for name, amount in capacity.capacity.items()
        if amount != capacity.allocatable.get(name)
    }
    return Occupancy(
        origin.node,
        state.boot_id,
        state.epoch,
        state.generation,
        now_seconds,
        NodePolicies(
            "none" if managers.cpu is None else "static",
            "None" if managers.memory is None else "Static",
            str(managers.topology.name),
            str(managers.topology.scope),
        ),
        capacity.capacity,
        capacity.allocatable,
        reserved,
        add(*(pod.terms.effective for pod in pods.values())),
        tuple(_zones(state, managers)),
        pods,
    )


# --- pods ---------------------------------------------------------------------------------------------------------------


def _pod(
    record: PodRecord, state: State, gates: FeatureGates, machine: Machine, splits: Mapping[str, Split], origin: Origin
) -> PodOccupancy:
    pod, resize, cpu = record.pod, record.resize, state.grants.cpu
    shown = as_status(record)
    entries = cpu.entries.get(pod.uid, {})
    own = cpu.pod_entries.get(pod.uid) or union(entries.values())
    whole = splits.get("") or _sum(splits)
    effective = effective_container_requests(shown)
    wanted, occupied = pod_requests(resize.desired or pod, _SPEC), effective_requests(record)
    gpus = gpu_request(pod, occupied)
    held = _container_holdings(machine, state, pod, splits)
    actual = {each.name: each for each in (resize.actual or pod).containers}
    desired = {each.name: each for each in (resize.desired or pod).containers}
    return PodOccupancy(
        pod.uid,
        pod.namespace,
        pod.name,
        pod_qos(pod, pod_level_resources=gates.pod_level_resources),
        record.phase,
        pod.priority,
        pod.labels.get(origin.queue_label, ""),
        pod.annotations.get(POD_GROUP_ANNOTATION, ""),
        pod_preemptibility(pod),
        Terms(wanted, pod_requests(pod, _SPEC), pod_requests(resize.actual or pod, _SPEC), occupied),
        ResizeReport(resize.state, resize.reason, resize.message or resize.error, resize.shortfall),
        _holdings(machine, own, whole),
        tuple(
            ContainerOccupancy(
                each.name,
                each.kind,
                Terms(
                    desired.get(each.name, each).resources.requests,
                    each.resources.requests,
                    actual.get(each.name, each).resources.requests,
                    effective.get(each.name, {}),
                ),
                held.get(each.name, {}),
            )
            for each in pod.containers
        ),
        record.unplaced.message if record.unplaced is not None else "",
        record.degraded.message if record.degraded is not None else "",
        gpus.hundredths(None),
        gpu_request(pod, wanted).hundredths(None),
        gpus.memory,
    )


def _container_holdings(machine: Machine, state: State, pod: Pod, splits: Mapping[str, Split]) -> dict[str, Holdings]:
    """What is each container's alone; nothing for a member of the pod's shared pool, whose CPUs and bytes the pod has."""
    cpu, memory = state.grants.cpu, state.grants.memory
    bubble = pod.uid in cpu.pod_entries or pod.uid in memory.pod_entries
    left = {node: dict(tables) for node, tables in splits.get("", {}).items()}
    result: dict[str, Holdings] = {}
    for container in pod.containers:
        name, alone = container.name, has_slice(cpu, pod, container)
        if bubble and not alone:
            continue
        cpus = cpu.entries.get(pod.uid, {}).get(name, CPUSet()) if alone else CPUSet()
        bytes_ = cut(left, memory.entries.get(pod.uid, {}).get(name, ())) if bubble else splits.get(name, {})
        result[name] = _holdings(machine, cpus, bytes_)
    return result


def _holdings(machine: Machine, cpus: CPUSet, memory: Split) -> Holdings:
    found: dict[int, Held] = {}
    for node in machine.numa_nodes:
        here = cpus & CPUSet(machine.topology.numa_masks.get(node, 0))
        held = {kind: size for kind, size in memory.get(node, {}).items() if size}
        if here or held:
            found[node] = Held(here, held)
    return found


def _sum(splits: Mapping[str, Split]) -> Split:
    total: Split = {}
    for split in splits.values():
        for node, tables in split.items():
            kept = total.setdefault(node, {})
            for kind, size in tables.items():
                kept[kind] = kept.get(kind, 0) + size
    return total


# --- zones --------------------------------------------------------------------------------------------------------------


def _zones(state: State, managers: Managers) -> list[Zone]:
    machine, grants = managers.machine, state.grants
    reserved = managers.cpu.reserved if managers.cpu is not None else state.policy.reserved_cpus
    exclusive = grants.cpu.held
    zones = []
    for node in machine.numa_nodes:
        cpus = CPUSet(machine.topology.numa_masks.get(node, 0))
        kept, held = cpus & reserved, cpus & exclusive
        resources: dict[str, Amounts] = {}
        if cpus:
            allocatable = len(cpus - kept)
            resources["cpu"] = Amounts(len(cpus), allocatable, len(held), len(cpus - kept - held))
        resources |= _memory(state, machine, node)
        row = machine.distances.get(node, ())
        distances = dict(zip(machine.numa_nodes, row, strict=False))
        zones.append(Zone(node, resources, cpus, kept, held, distances))
    return zones


def _memory(state: State, machine: Machine, node: int) -> dict[str, Amounts]:
    """As the memory manager counts; without it the node's plain amounts, of which nothing is held."""
    tables = state.grants.memory.machine.get(node)
    if tables is None:
        plain = machine.numa_memory.get(node, {})
        return {kind: Amounts(size, size, 0, size) for kind, size in sorted(plain.items())}
    return {
        kind: Amounts(table.total, table.allocatable, table.reserved, table.free)
        for kind, table in sorted(tables.memory.items())
    }
