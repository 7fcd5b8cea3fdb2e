"""Gauges of what the node holds, computed from the state and the machine whenever somebody asks.

Source of the kubelet's names: cm/cpumanager/policy_static.go and pkg/kubelet/metrics/metrics.go of 1.36; what it adds and
subtracts (and lets drift, k/k#141261) is counted here from the sets themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric

from agent import __version__
from agent.model.cpuset import CPUSet, union
from agent.model.machine import Machine
from agent.model.pod import ContainerKind
from agent.model.state import PodPhase, ResizeState, State
from agent.serve.health import SourceHealth

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GaugedNode:
    """What the gauges are computed from: the state in force, the machine it is about, whether the agent is ready.

    sources: whoever the agent listens to, by name. refused: pods that are wanted here and were refused. mispinned: cgroups
    that are not as they should be after the last look. watchers: of the node service. misaligned: pods whose devices are far from
    their CPUs.
    """

    state: State
    machine: Machine
    ready: bool
    sources: Mapping[str, SourceHealth] = field(default_factory=dict)
    refused: int = 0
    mispinned: int = 0
    watchers: int = 0
    misaligned: int = 0


def kubelet_gauges(observed: GaugedNode) -> Iterator[Metric]:
    """The gauges of the kubelet's CPU manager and of its pods' resizes."""
    state, machine = observed.state, observed.machine
    static = state.policy.cpu_policy == "static"
    held = state.grants.cpu.held
    pool = len(state.grants.cpu.default - state.policy.reserved_cpus) if static else 0
    yield gauge(
        "kubelet_cpu_manager_shared_pool_size_millicores",
        "Shared pool without the reserved CPUs, in thousandths of a CPU.",
        [({}, 1000 * pool)],
    )
    yield gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count", "CPUs held exclusively.", [({}, len(held))])
    yield gauge(
        "kubelet_cpu_manager_allocation_per_numa",
        "CPUs held exclusively, per NUMA node.",
        [
            ({"numa_node": str(node)}, len(held & CPUSet(mask)))
            for node, mask in machine.topology.numa_masks.items()
            if static
        ],
    )
    resizes = Counter(record.resize.state for record in state.pods.values())
    yield gauge(
        "kubelet_pod_pending_resizes",
        "Resizes that wait or can never be granted.",
        [
            ({"reason": "deferred"}, resizes[ResizeState.DEFERRED]),
            ({"reason": "infeasible"}, resizes[ResizeState.INFEASIBLE]),
        ],
    )
    in_progress = resizes[ResizeState.IN_PROGRESS] + resizes[ResizeState.ERROR]
    yield gauge(
        "kubelet_pod_in_progress_resizes", "Resizes that are granted and not in force yet.", [({}, in_progress)]
    )


def own_gauges(observed: GaugedNode) -> Iterator[Metric]:
    """What the node holds, per NUMA node and in all."""
    state = observed.state
    grants, records = state.grants, state.pods.values()
    phases = Counter(record.phase for record in records)
    held = state.grants.cpu.held
    yield gauge("pinfold_build_info", "Always 1; the version is a label.", [({"version": __version__}, 1)])
    yield gauge("pinfold_ready", "Whether every readiness check is fine.", [({}, int(observed.ready))])
    yield gauge("pinfold_state_generation", "Generation of the state in force.", [({}, state.generation)])
    yield gauge(
        "pinfold_pods", "Pods that hold a place here.", [({"phase": str(phase)}, phases[phase]) for phase in PodPhase]
    )
    marked = [
        ({"mark": "unplaced"}, sum(record.unplaced is not None for record in records)),
        ({"mark": "degraded"}, sum(record.degraded is not None for record in records)),
        ({"mark": "misaligned"}, observed.misaligned),
    ]
    yield gauge(
        "pinfold_marked_pods", "Pods with less than they asked for or were granted, or far from their devices.", marked
    )
    yield gauge("pinfold_refused_pods", "Pods that are wanted here and were refused.", [({}, observed.refused)])
    resizes = Counter(record.resize.state for record in records)
    yield gauge(
        "pinfold_resizes",
        "Pods by how far their resize has come.",
        [({"state": str(each)}, resizes[each]) for each in ResizeState if each is not ResizeState.NONE],
    )
    yield gauge(
        "pinfold_mispinned_cgroups",
        "Cgroups that are not as they should be after the last look.",
        [({}, observed.mispinned)],
    )
    yield gauge("pinfold_node_service_watchers", "Clients that watch the node service.", [({}, observed.watchers)])
    yield from _sources(observed.sources)
    levels = {
        ("cpu", "container"): sum(map(len, grants.cpu.entries.values())),
        ("cpu", "pod"): len(grants.cpu.pod_entries),
        ("memory", "container"): sum(map(len, grants.memory.entries.values())),
        ("memory", "pod"): len(grants.memory.pod_entries),
    }
    yield gauge(
        "pinfold_grants",
        "Grants in force; level pod is a bubble.",
        [({"resource_name": resource, "level": level}, count) for (resource, level), count in levels.items()],
    )
    yield gauge("pinfold_numa_cpus", "Online CPUs by what they are used for.", _numa_cpus(observed, held))
    yield gauge(
        "pinfold_numa_memory_bytes", "Memory under the memory manager by what it is used for.", _numa_memory(state)
    )
    yield gauge(
        "pinfold_bubble_idle_cpus", "CPUs of bubbles that no container may use.", [({}, _idle_in_bubbles(state))]
    )
    leaked = observed.machine.topology.all - grants.cpu.default - held - state.policy.reserved_cpus
    leaks = len(leaked) if state.policy.cpu_policy == "static" else 0
    yield gauge(
        "pinfold_leaked_cpus", "CPUs that are in no set of the state; always 0 unless there is a bug.", [({}, leaks)]
    )


def _sources(sources: Mapping[str, SourceHealth]) -> Iterator[Metric]:
    readable = [({"source": name}, int(each.readable)) for name, each in sources.items()]
    ages = [({"source": name}, each.age_seconds) for name, each in sources.items() if each.age_seconds is not None]
    yield gauge("pinfold_source_readable", "Whether a pod source can be read now.", readable)
    yield gauge("pinfold_source_age_seconds", "Time since a pod source's last sign of life.", ages)


def _numa_cpus(observed: GaugedNode, held: CPUSet) -> Iterator[tuple[Labels, float]]:
    reserved = observed.state.policy.reserved_cpus - held
    for node, mask in observed.machine.topology.numa_masks.items():
        cpus = CPUSet(mask)
        parts = {"held": cpus & held, "reserved": cpus & reserved, "free": cpus - held - reserved}
        for part, ids in parts.items():
            yield {"numa_node": str(node), "state": part}, len(ids)


def _numa_memory(state: State) -> Iterator[tuple[Labels, float]]:
    for node, tables in sorted(state.grants.memory.machine.items()):
        for kind, table in sorted(tables.memory.items()):
            parts = {"held": table.reserved, "free": table.free, "system_reserved": table.system_reserved}
            for part, size in parts.items():
                yield {"numa_node": str(node), "type": kind, "state": part}, size


def _idle_in_bubbles(state: State) -> int:
    idle = CPUSet()
    for uid, bubble in state.grants.cpu.pod_entries.items():
        record, entries = state.pods.get(uid), state.grants.cpu.entries.get(uid, {})
        # An ordinary init container gives its CPUs back, yet keeps its entry for the life of the pod.
        done = {one.name for one in record.pod.containers if one.kind is ContainerKind.INIT} if record else set()
        idle |= bubble - union(cpus for name, cpus in entries.items() if name not in done)
    return len(idle)


def gauge(name: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """A family of type gauge: (labels, value) each."""
    family = GaugeMetricFamily(name, text)
    for labels, value in samples:
        family.add_sample(name, dict(labels), value)
    return family
