"""What one decision adds to the kubelet's counters and ours (names: `agent.serve.series`)."""

from __future__ import annotations

from agent.model.cpuset import CPUSet
from agent.model.isolation import Isolation
from agent.model.machine import CPUTopology
from agent.model.state import Grants
from agent.policy.eligibility import Claims, claims
from agent.policy.managers import Managers
from agent.policy.observation import Decision, Event
from agent.policy.placement import placements
from agent.policy.topology_options import TopologyPolicyName, TopologyScope
from agent.serve.series import Tally

_GUARANTEED = (TopologyPolicyName.RESTRICTED, TopologyPolicyName.SINGLE_NUMA_NODE)


def count_decision(tally: Tally, decision: Decision, managers: Managers, grants: Grants) -> None:
    """Count one decision. grants: those in force after it."""
    asked = claims(decision.pod, managers.gates)
    match decision.event:
        case Event.ADMITTED:
            tally.add("pinfold_decisions_total", outcome="granted")
            _requests(tally, managers, asked)
            _granted(tally, decision, managers, grants, asked)
        case Event.REFUSED:
            tally.add("pinfold_decisions_total", outcome="refused")
            tally.add("kubelet_admission_rejections_total", reason=decision.reason)
            tally.add("pinfold_admission_rejections_total", reason=decision.reason)
            _requests(tally, managers, asked)
            _refused(tally, decision, managers, asked)
        case Event.RELEASED:
            tally.add("pinfold_decisions_total", outcome="released")


def _requests(tally: Tally, managers: Managers, asked: Claims) -> None:
    if managers.cpu is not None:
        tally.add("kubelet_cpu_manager_pinning_requests_total", len(asked.cpus))
    if managers.memory is not None:
        tally.add("kubelet_memory_manager_pinning_requests_total", len(asked.memory))
    if managers.aligned:
        tally.add("kubelet_topology_manager_admission_requests_total")


def _refused(tally: Tally, decision: Decision, managers: Managers, asked: Claims) -> None:
    source = "pod" if asked.pod_level and managers.effective_scope is TopologyScope.POD else "node"
    if decision.reason == "TopologyAffinityError":
        tally.add("kubelet_topology_manager_admission_errors_total")
    elif "[memorymanager]" in decision.message:
        tally.add("kubelet_memory_manager_pinning_errors_total")
        tally.add("resource_manager_allocation_errors_total", resource_name="memory", source=source)
    elif managers.cpu is not None and decision.reason in ("UnexpectedAdmissionError", "SMTAlignmentError"):
        tally.add("kubelet_cpu_manager_pinning_errors_total")
        tally.add("resource_manager_allocation_errors_total", resource_name="cpu", source=source)
        if decision.reason == "SMTAlignmentError":
            _aligned(tally, "physical_cpu", aligned=False)


def _granted(tally: Tally, decision: Decision, managers: Managers, grants: Grants, asked: Claims) -> None:
    uid = decision.pod.uid
    bubble = uid in grants.cpu.pod_entries or uid in grants.memory.pod_entries
    source = "pod" if bubble else "node"
    for placed in placements(grants, decision.pod, managers.gates):
        if placed.assigned is not None:
            _count_cpus(tally, managers, placed.assigned, placed.isolation, source)
        if placed.memory:
            own = not bubble or placed.container in asked.memory
            kind = ("pod_exclusive" if bubble else "node_exclusive") if own else "pod_shared"
            tally.add("resource_manager_container_assignments", resource_name="memory", assignment_type=kind)
            if own:
                tally.add("resource_manager_allocations_total", resource_name="memory", source=source)


def _count_cpus(tally: Tally, managers: Managers, cpus: CPUSet, isolation: Isolation, source: str) -> None:
    kind = "pod_shared" if isolation is Isolation.POD else f"{source}_exclusive"
    tally.add("resource_manager_container_assignments", resource_name="cpu", assignment_type=kind)
    if isolation is not Isolation.CONTAINER or managers.cpu is None:
        return
    tally.add("resource_manager_allocations_total", resource_name="cpu", source=source)
    topology = managers.cpu.topology
    if managers.cpu.options.full_pcpus_only:
        _aligned(tally, "physical_cpu", aligned=_spans(topology, cpus, "core") * topology.cpus_per_core <= len(cpus))
    if managers.topology.name in _GUARANTEED:
        _aligned(tally, "numa_node", aligned=_spans(topology, cpus, "numa") == 1)
    if managers.cpu.options.prefer_uncore:
        _aligned(tally, "uncore_cache", aligned=_spans(topology, cpus, "uncore") == 1)


def _spans(topology: CPUTopology, cpus: CPUSet, level: str) -> int:
    """How many cores, NUMA nodes or uncore caches these CPUs lie in."""
    return len({getattr(topology.by_id[cpu], level) for cpu in cpus})


def _aligned(tally: Tally, boundary: str, *, aligned: bool) -> None:
    name = "kubelet_container_aligned_compute_resources"
    tally.add(f"{name}_{'count' if aligned else 'failure_count'}", scope="container", boundary=boundary)
