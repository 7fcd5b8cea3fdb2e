"""Nodes for tests: a machine with its managers on one line, pods by name, and grants as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology, Machine
from agent.model.numa import node_ids
from agent.model.pod import Container, Pod, ResourceRequirements
from agent.model.state import Grants
from agent.policy.admission import admit
from agent.policy.managers import ManagerConfig, Managers, start
from agent.policy.restore import fresh
from agent.policy.verdict import Verdict

GIB = 2**30
PODS_ON = {"PodLevelResourceManagers": True}


def machine(
    topology: CPUTopology,
    memory_gib: int = 64,
    distances: Mapping[int, tuple[int, ...]] | None = None,
    *,
    hugepages: Mapping[str, int] | None = None,
) -> Machine:
    """A machine of these CPUs; every NUMA node has the same memory, in GiB, and nodes are equally far apart by default.

    hugepages: page size -> GiB of them on every node, out of its memory: {"2Mi": 1}.
    """
    nodes = list(topology.numa_masks)
    rows = distances or {node: tuple(10 if other == node else 20 for other in nodes) for node in nodes}
    amounts = {"memory": memory_gib, **{f"hugepages-{size}": gib for size, gib in (hugepages or {}).items()}}
    sizes = {resource: gib * GIB for resource, gib in amounts.items()}
    return Machine(topology, dict.fromkeys(nodes, sizes), rows)


def node(
    topology: CPUTopology,
    reserved: str = "0",
    *,
    memory_gib: int = 64,
    hugepages: Mapping[str, int] | None = None,
    **config: Any,
) -> Managers:
    """The managers of a node with the static CPU policy. reserved: CPU list. Memory is managed where memory_policy says so."""
    values: dict[str, Any] = {"cpu_policy": "static", "reserved_cpus": CPUSet.parse(reserved)}
    if config.get("memory_policy") == "Static":
        values["reserved_memory"] = {min(topology.numa_masks): {"memory": GIB}}
    return start(machine(topology, memory_gib, hugepages=hugepages), ManagerConfig(**{**values, **config}))


def named(name: str, *containers: Container, resources: ResourceRequirements | None = None) -> Pod:
    """A pod whose uid is its name."""
    return Pod(name, name, containers=containers, resources=resources)


def admitted(managers: Managers, *pods: Pod, grants: Grants | None = None) -> Grants:
    """The grants after these pods, each of which must be admitted."""
    held = fresh(managers) if grants is None else grants
    for pod in pods:
        verdict = admit(managers, held, pod)
        assert verdict.admitted, f"{pod.name}: {verdict.reason}: {verdict.message}"
        held = verdict.grants
    return held


def outcome(verdict: Verdict) -> str:
    """A verdict on one line: the reason, or every container's CPUs."""
    if not verdict.admitted:
        return f"{verdict.reason}: {verdict.message}"
    return cpus_of(verdict.grants)


def cpus_of(grants: Grants) -> str:
    """Who holds which CPUs: "pod/container=1-2 pod=1-4 shared=0"."""
    parts = [
        f"{uid}/{name}={cpus}" for uid, entries in sorted(grants.cpu.entries.items()) for name, cpus in entries.items()
    ]
    parts += [f"{uid}={cpus}" for uid, cpus in sorted(grants.cpu.pod_entries.items())]
    return " ".join([*parts, f"shared={grants.cpu.default}"])


def memory_of(grants: Grants, uid: str) -> str:
    """A pod's memory blocks in GiB: "app=2@0 init=0@0,1"."""
    entries = grants.memory.entries.get(uid, {})
    return " ".join(
        f"{name}={block.size / GIB:g}@{','.join(map(str, node_ids(block.nodes)))}"
        for name, blocks in entries.items()
        for block in blocks
    )


def renamed(pod: Pod, uid: str) -> Pod:
    """The same pod under another uid and name."""
    return replace(pod, uid=uid, name=uid)
