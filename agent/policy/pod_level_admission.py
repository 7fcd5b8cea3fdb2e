"""Admission of a pod with pod-level resources in scope pod: one bubble, with slices and a pod shared pool inside.

Source: kubelet cm/cpumanager/policy_static.go and cm/memorymanager/policy_static.go, AllocatePod; KEP-5526.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.pod import Pod
from agent.policy import cpu_static
from agent.policy.admission_draft import AdmissionDraft
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.device_hints import DeviceHints
from agent.policy.eligibility import Claims
from agent.policy.hint_family import ProviderHints
from agent.policy.memory_placement import allocate_memory
from agent.policy.pod_pool import check_shared_pool, slice_cpus, slice_memory
from agent.policy.refusal import AllocationError, EmptyPodSharedPoolError, TopologyAffinityError

_REFUSED = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"


def admit_pod_level(draft: AdmissionDraft, asked: Claims, devices: DeviceHints) -> None:
    """One bubble for the pod's own resources, slices and a shared pool inside it. Raises Refusal."""
    managers, pod = draft.managers, draft.pod
    memory = asked.pod_memory or None
    providers = [devices.pod, _cpu_provider(draft, asked), _memory_provider(draft, asked, memory)]
    try:
        affinity = draft.merge("", providers, {"cpu": asked.pod_cpus, **(memory or {})}, _REFUSED)
    except TopologyAffinityError:
        _refuse_empty_pool(draft, asked)
        raise
    draft.affinities = {container.name: affinity for container in pod.containers}
    if managers.cpu is not None and asked.pod_cpus:
        check_shared_pool("cpu", pod.containers, asked.cpus, asked.pod_cpus)
        cpu_static.check_physical_cpus(managers.cpu, draft.shared, asked.pod_cpus)
        draft.bubble = draft.pick_cpus(asked.pod_cpus, affinity, devices=bool(devices.pod))
        try:
            draft.cpus = slice_cpus(managers.cpu, pod, asked.cpus, draft.bubble)
        except NotEnoughCPUs as error:
            raise AllocationError(str(error), hint=error.hint) from error
        draft.shared -= draft.bubble
    if managers.memory is not None and memory:
        _check_memory_pool(pod, asked, memory)
        draft.pod_memory, draft.machine = allocate_memory(draft.machine, memory, affinity, {})
        draft.memory = slice_memory(pod, asked.memory, memory, draft.pod_memory[0].nodes)


def _refuse_empty_pool(draft: AdmissionDraft, asked: Claims) -> None:
    """Where a strict policy refuses as a lack of alignment what is an empty shared pool in truth: say so."""
    managers, pod = draft.managers, draft.pod
    try:
        if managers.cpu is not None and asked.pod_cpus:
            check_shared_pool("cpu", pod.containers, asked.cpus, asked.pod_cpus)
        if managers.memory is not None and asked.pod_memory:
            _check_memory_pool(pod, asked, asked.pod_memory)
    except EmptyPodSharedPoolError as empty:
        raise TopologyAffinityError(f"{_REFUSED}: {empty}", hint=empty.hint, rule=empty.rule) from empty


def _check_memory_pool(pod: Pod, asked: Claims, memory: Mapping[str, int]) -> None:
    for resource in sorted(memory):
        slices = {name: request.get(resource, 0) for name, request in asked.memory.items()}
        check_shared_pool(resource, pod.containers, slices, memory[resource])


def _cpu_provider(draft: AdmissionDraft, asked: Claims) -> ProviderHints:
    if draft.managers.cpu is None or asked.pod_cpus == 0:
        return None
    try:
        check_shared_pool("cpu", draft.pod.containers, asked.cpus, asked.pod_cpus)
    except EmptyPodSharedPoolError:
        return {"cpu": ()}  # the kubelet's provider answers "impossible" here, so that a strict policy refuses first
    return draft.cpu_provider(asked.pod_cpus)


def _memory_provider(draft: AdmissionDraft, asked: Claims, memory: Mapping[str, int] | None) -> ProviderHints:
    if draft.managers.memory is None or memory is None:
        return None
    try:
        _check_memory_pool(draft.pod, asked, memory)
    except EmptyPodSharedPoolError:
        return dict.fromkeys(memory, ())
    return draft.memory_provider(memory)
