"""Admission of one pod: hints, merge, allocation, in the kubelet's order; all or nothing.

`admit` is a pure function from grants and a pod to a verdict with the next grants. Nothing is changed by a refusal, and a
pod that already holds its grants keeps exactly these, before any check of free capacity. Here are the scopes container and
pod; pods with pod-level resources in scope pod are `agent.policy.pod_level_admission`, what ends a grant `agent.policy.removal`.
Source: kubelet cm/topologymanager scope_container.go, scope_pod.go, scope_none.go; KEP-693, KEP-5526.
"""

from __future__ import annotations

from agent.model.cpuset import CPUSet
from agent.model.pod import Container, Pod
from agent.model.resources import most_at_once
from agent.model.state import Grants
from agent.policy import cpu_static, memory_static
from agent.policy.admission_draft import AdmissionDraft
from agent.policy.device_hints import NO_HINTS, DeviceHints
from agent.policy.eligibility import Claims, claims
from agent.policy.hint_family import Hint
from agent.policy.managers import Managers
from agent.policy.memory_placement import allocate_memory
from agent.policy.pod_level_admission import admit_pod_level
from agent.policy.refusal import AllocationError, Refusal
from agent.policy.removal import holds
from agent.policy.topology_options import TopologyScope
from agent.policy.verdict import Verdict

UNALIGNED = Hint(None, False)  # topology policy `none` stores no hint; the kubelet then reads a zero one
NO_LOCALITY = "Resources cannot be allocated with Topology locality"


def admit(managers: Managers, grants: Grants, pod: Pod, devices: DeviceHints = NO_HINTS) -> Verdict:
    """Decide about one pod. devices: the first hint provider's answers, where devices are known.

    A pod that holds something already is kept as it is.
    """
    asked = claims(pod, managers.gates)
    if holds(grants, pod.uid):
        return Verdict(True, grants, asked)
    draft = AdmissionDraft(managers, pod, grants.cpu.default, grants.memory.machine)
    try:
        if asked.pod_level and managers.effective_scope is TopologyScope.POD:
            admit_pod_level(draft, asked, devices)
        elif managers.effective_scope is TopologyScope.POD:
            _admit_pod(draft, asked, devices)
        else:
            _admit_containers(draft, asked, devices)
        check_minimum_shared_pool(managers, grants.cpu.default, draft.shared, pod)
    except Refusal as refusal:
        return Verdict.refused(grants, asked, refusal, tuple(draft.merges))
    return Verdict(True, draft.commit(grants), asked, affinities=draft.affinities, merges=tuple(draft.merges))


def _admit_containers(draft: AdmissionDraft, asked: Claims, devices: DeviceHints) -> None:
    """Scope container, and policy none: one container after the other, hints after the one before is allocated."""
    message = NO_LOCALITY
    if asked.pod_level:
        message = "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
    for container in draft.pod.containers:
        affinity = UNALIGNED
        if draft.managers.aligned:
            count, request = asked.cpus.get(container.name, 0), asked.memory.get(container.name)
            providers = [
                devices.containers.get(container.name),
                draft.cpu_provider(count),
                draft.memory_provider(request),
            ]
            affinity = draft.merge(container.name, providers, {"cpu": count, **(request or {})}, message)
            draft.affinities[container.name] = affinity
        _allocate(draft, container, asked, affinity, devices)


def _admit_pod(draft: AdmissionDraft, asked: Claims, devices: DeviceHints) -> None:
    """Scope pod: one merged hint for the pod's total, then each container is allocated under it."""
    pod = draft.pod
    total = most_at_once((c.kind, asked.cpus.get(c.name, 0)) for c in pod.containers)
    request = memory_static.pod_request(pod) if asked.memory else None
    providers = [devices.pod, draft.cpu_provider(total), draft.memory_provider(request)]
    affinity = draft.merge("", providers, {"cpu": total, **(request or {})}, NO_LOCALITY)
    for container in pod.containers:
        draft.affinities[container.name] = affinity
        _allocate(draft, container, asked, affinity, devices)


def _allocate(draft: AdmissionDraft, container: Container, asked: Claims, affinity: Hint, devices: DeviceHints) -> None:
    """CPUs, then memory, for one container under its affinity."""
    managers = draft.managers
    count = asked.cpus.get(container.name)
    if managers.cpu is not None and count:
        cpu_static.check_physical_cpus(managers.cpu, draft.shared, count)
        cpus = draft.pick_cpus(count, affinity, devices=bool(devices.containers.get(container.name)))
        draft.cpus[container.name] = cpus
        draft.shared -= cpus
        draft.cpu_reuse = cpu_static.reusable_after(container.kind, draft.cpu_reuse, cpus)
    request = asked.memory.get(container.name)
    if managers.memory is not None and request:
        blocks, draft.machine = allocate_memory(draft.machine, request, affinity, draft.memory_reuse)
        draft.memory_reuse = memory_static.reusable_after(container.kind, draft.memory_reuse, blocks)
        draft.memory[container.name] = blocks
        draft.memory = memory_static.shrink_init_blocks(draft.pod.containers, draft.memory, container, blocks)


def check_minimum_shared_pool(managers: Managers, before: CPUSet, after: CPUSet, pod: Pod) -> None:
    """Refuse an exclusive grant that leaves the shared containers fewer CPUs than the configured minimum.

    before, after: the shared pool. Raises AllocationError.

    Judged last, on the outcome for the whole pod: where the kubelet refuses for another reason, that reason stands.
    An empty set would reach the runtime as "no change" (kubernetes/kubernetes#141196).
    """
    taken = before - after
    if managers.cpu is None or not taken or len(after) >= managers.min_shared_cpus:
        return
    usable = max(len(before - managers.cpu.reserved) - managers.min_shared_cpus, 0)
    raise AllocationError(
        f"not enough cpus available to satisfy request: requested={len(taken)}, available={usable}",
        note=(
            f": pod {pod.namespace}/{pod.name} would leave {len(after)} CPUs to the shared containers, "
            f"at least {managers.min_shared_cpus} must stay"
        ),
        hint="ask for fewer CPUs, or lower the minimum shared pool in the configuration",
        rule="exclusive grants leave the shared containers their minimum of CPUs, judged on the whole pod",
    )
