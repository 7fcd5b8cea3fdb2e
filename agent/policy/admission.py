"""Admission of one pod: hints, merge, allocation, in the kubelet's order; all or nothing.

`admit` is a pure function from grants and a pod to a verdict with the next grants. Nothing is changed by a refusal, and a
pod that already holds its grants keeps exactly these, before any check of free capacity.
Source: kubelet cm/topologymanager scope_container.go, scope_pod.go, scope_none.go; KEP-693, KEP-5526.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask
from agent.model.pod import Container, Pod
from agent.model.state import Blocks, CPUState, Grants, MemoryState, NUMANodeState
from agent.policy import cpu_static, memory_static
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.device_hints import NO_HINTS, DeviceHints
from agent.policy.eligibility import Claims, claims
from agent.policy.hint_family import Hint, ProviderHints
from agent.policy.hints import cpu_hints, memory_hints
from agent.policy.managers import Managers
from agent.policy.memory_placement import allocate_memory, check_page_sizes
from agent.policy.misalignment import Situation, anchors, misalignment
from agent.policy.pod_pool import check_shared_pool, slice_cpus, slice_memory
from agent.policy.refusal import AllocationError, EmptyPodSharedPoolError, Refusal, TopologyAffinityError
from agent.policy.topology_manager import Merged, merge
from agent.policy.topology_options import TopologyScope

UNALIGNED = Hint(None, False)  # topology policy `none` stores no hint; the kubelet then reads a zero one
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one pod and the grants after it; a refusal has the grants it was given.

    affinities: container -> the merged hint its resources were allocated under. merges: every merge on the way. rule: what
    decided a refusal, in words.
    """

    admitted: bool
    grants: Grants
    claims: Claims
    reason: str = ""
    message: str = ""
    hint: str = ""
    affinities: Mapping[str, Hint] = field(default_factory=dict)
    merges: tuple[MergeStep, ...] = ()
    rule: str = ""

    @classmethod
    def refused(cls, grants: Grants, asked: Claims, refusal: Refusal, merges: tuple[MergeStep, ...] = ()) -> Verdict:
        """A refusal, with everything it says."""
        return cls(False, grants, asked, refusal.reason, str(refusal), refusal.hint, merges=merges, rule=refusal.rule)

    @property
    def exact(self) -> bool:
        """False where a merge ran out of its work budget: the answer is safe but may not be the best."""
        return all(step.merged.exact for step in self.merges)


@dataclass(frozen=True, slots=True)
class MergeStep:
    """One merge of an admission, for `explain`. container: "" where the whole pod is aligned. providers: what each said."""

    container: str
    providers: tuple[ProviderHints, ...]
    merged: Merged


@dataclass(slots=True)
class _Draft:
    """The pod's grants in the making; lives inside one call of `admit`."""

    shared: CPUSet
    machine: Mapping[int, NUMANodeState]
    cpus: dict[str, CPUSet] = field(default_factory=dict)
    memory: dict[str, Blocks] = field(default_factory=dict)
    bubble: CPUSet = field(default_factory=CPUSet)
    pod_memory: Blocks = ()
    cpu_reuse: CPUSet = field(default_factory=CPUSet)
    memory_reuse: Mapping[NodeMask, Mapping[str, int]] = field(default_factory=dict)
    affinities: dict[str, Hint] = field(default_factory=dict)
    merges: list[MergeStep] = field(default_factory=list)


def admit(managers: Managers, grants: Grants, pod: Pod, devices: DeviceHints = NO_HINTS) -> Verdict:
    """Decide about one pod. devices: the first hint provider's answers, where devices are known.

    A pod that holds something already is kept as it is.
    """
    asked = claims(pod, managers.gates)
    if holds(grants, pod.uid):
        return Verdict(True, grants, asked)
    draft = _Draft(grants.cpu.default, grants.memory.machine)
    try:
        if asked.pod_level and managers.effective_scope is TopologyScope.POD:
            _admit_pod_level(managers, draft, pod, asked, devices)
        elif managers.effective_scope is TopologyScope.POD:
            _admit_pod(managers, draft, pod, asked, devices)
        else:
            _admit_containers(managers, draft, pod, asked, devices)
        check_minimum_shared_pool(managers, grants.cpu.default, draft.shared, pod)
    except Refusal as refusal:
        return Verdict.refused(grants, asked, refusal, tuple(draft.merges))
    return Verdict(
        True, _commit(grants, pod.uid, draft), asked, affinities=draft.affinities, merges=tuple(draft.merges)
    )


def holds(grants: Grants, uid: str) -> bool:
    """Whether this pod has any grant."""
    return (
        uid in grants.cpu.entries
        or uid in grants.cpu.pod_entries
        or uid in grants.memory.entries
        or uid in grants.memory.pod_entries
    )


def _commit(grants: Grants, uid: str, draft: _Draft) -> Grants:
    cpu, memory = grants.cpu, grants.memory
    return Grants(
        CPUState(
            draft.shared,
            {**cpu.entries, uid: draft.cpus} if draft.cpus else cpu.entries,
            {**cpu.pod_entries, uid: draft.bubble} if draft.bubble else cpu.pod_entries,
        ),
        MemoryState(
            draft.machine,
            {**memory.entries, uid: draft.memory} if draft.memory else memory.entries,
            {**memory.pod_entries, uid: draft.pod_memory} if draft.pod_memory else memory.pod_entries,
        ),
    )


# --- hints -----------------------------------------------------------------------------------------------------------


def _merge(
    managers: Managers,
    draft: _Draft,
    pod: Pod,
    container: str,
    providers: Sequence[ProviderHints],
    asked: Mapping[str, int],
    message: str,
) -> Hint:
    merged = merge(managers.machine.numa_mask, managers.machine.distances, managers.topology, providers)
    draft.merges.append(MergeStep(container, tuple(providers), merged))
    if not merged.admit:
        reserved = managers.cpu.reserved if managers.cpu is not None else CPUSet()
        tied = anchors(pod.containers, draft.cpus, draft.cpu_reuse)
        now = Situation(asked, draft.shared - reserved, draft.cpu_reuse, draft.machine, tied)
        why = misalignment(managers, merged, now)
        raise TopologyAffinityError(f"{message}{why.note}", hint=why.hint, rule=why.rule)
    return merged.best


def _cpu_provider(managers: Managers, draft: _Draft, count: int) -> ProviderHints:
    manager = managers.cpu
    if manager is None or count == 0:
        return None
    free = draft.shared - manager.reserved
    hints = cpu_hints(manager.topology, free, draft.cpu_reuse, count, align_by_socket=manager.options.align_by_socket)
    return {"cpu": hints}


def _memory_provider(managers: Managers, draft: _Draft, request: Mapping[str, int] | None) -> ProviderHints:
    if managers.memory is None or request is None:
        return None
    check_page_sizes(draft.machine, request)
    return memory_hints(draft.machine, request, draft.memory_reuse)


# --- containers ------------------------------------------------------------------------------------------------------

NO_LOCALITY = "Resources cannot be allocated with Topology locality"


def _admit_containers(managers: Managers, draft: _Draft, pod: Pod, asked: Claims, devices: DeviceHints) -> None:
    """Scope container, and policy none: one container after the other, hints after the one before is allocated."""
    message = NO_LOCALITY
    if asked.pod_level:
        message = "Pod Scope pod with pod-level resources failed admission with a container-level topology manager"
    for container in pod.containers:
        affinity = UNALIGNED
        if managers.aligned:
            count, request = asked.cpus.get(container.name, 0), asked.memory.get(container.name)
            providers = [
                devices.containers.get(container.name),
                _cpu_provider(managers, draft, count),
                _memory_provider(managers, draft, request),
            ]
            amounts = {"cpu": count, **(request or {})}
            affinity = _merge(managers, draft, pod, container.name, providers, amounts, message)
            draft.affinities[container.name] = affinity
        _allocate(managers, draft, pod, container, asked, affinity, devices)


def _admit_pod(managers: Managers, draft: _Draft, pod: Pod, asked: Claims, devices: DeviceHints) -> None:
    """Scope pod: one merged hint for the pod's total, then each container is allocated under it."""
    total = cpu_static.pod_exclusive_cpus([(c.kind, asked.cpus.get(c.name, 0)) for c in pod.containers])
    request = memory_static.pod_request(pod) if asked.memory else None
    providers = [devices.pod, _cpu_provider(managers, draft, total), _memory_provider(managers, draft, request)]
    affinity = _merge(managers, draft, pod, "", providers, {"cpu": total, **(request or {})}, NO_LOCALITY)
    for container in pod.containers:
        draft.affinities[container.name] = affinity
        _allocate(managers, draft, pod, container, asked, affinity, devices)


def _allocate(
    managers: Managers,
    draft: _Draft,
    pod: Pod,
    container: Container,
    asked: Claims,
    affinity: Hint,
    devices: DeviceHints,
) -> None:
    """CPUs, then memory, for one container under its affinity."""
    count = asked.cpus.get(container.name, 0)
    if managers.cpu is not None and count:
        cpu_static.check_physical_cpus(managers.cpu, draft.shared, count)
        forced = affinity.affinity.bit_count() if affinity.affinity and devices.containers.get(container.name) else 0
        cpus = _take(managers, draft, count, affinity, forced)
        draft.cpus[container.name] = cpus
        draft.shared -= cpus
        draft.cpu_reuse = cpu_static.reusable_after(container.kind, draft.cpu_reuse, cpus)
    request = asked.memory.get(container.name)
    if managers.memory is not None and request:
        blocks, draft.machine = allocate_memory(draft.machine, request, affinity, draft.memory_reuse)
        draft.memory_reuse = memory_static.reusable_after(container.kind, draft.memory_reuse, blocks)
        draft.memory[container.name] = blocks
        draft.memory = memory_static.shrink_init_blocks(pod.containers, draft.memory, container, blocks)


def _take(managers: Managers, draft: _Draft, count: int, affinity: Hint, forced: int) -> CPUSet:
    assert managers.cpu is not None
    try:
        return cpu_static.allocate(
            managers.cpu, draft.shared, count, affinity.affinity, draft.cpu_reuse, min_numa_nodes=forced
        )
    except NotEnoughCPUs as error:
        raise AllocationError(str(error), hint=error.hint) from error


# --- pods with pod-level resources, scope pod --------------------------------------------------------------------------


def _admit_pod_level(managers: Managers, draft: _Draft, pod: Pod, asked: Claims, devices: DeviceHints) -> None:
    """One bubble for the pod's own resources, slices and a shared pool inside it."""
    memory = asked.pod_memory or None
    providers = [
        devices.pod,
        _pod_cpu_provider(managers, draft, pod, asked),
        _pod_memory_provider(managers, draft, pod, asked, memory),
    ]
    message = "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager"
    try:
        affinity = _merge(managers, draft, pod, "", providers, {"cpu": asked.pod_cpus, **(memory or {})}, message)
    except TopologyAffinityError:
        if {"cpu": ()} in providers or () in (providers[-1] or {}).values():
            _refuse_empty_pool(managers, pod, asked, message)
        raise
    draft.affinities = {container.name: affinity for container in pod.containers}
    if managers.cpu is not None and asked.pod_cpus:
        check_shared_pool("cpu", pod.containers, asked.cpus, asked.pod_cpus)
        cpu_static.check_physical_cpus(managers.cpu, draft.shared, asked.pod_cpus)
        forced = affinity.affinity.bit_count() if affinity.affinity and devices.pod else 0
        draft.bubble = _take(managers, draft, asked.pod_cpus, affinity, forced)
        try:
            draft.cpus = slice_cpus(managers.cpu, pod, asked.cpus, draft.bubble)
        except NotEnoughCPUs as error:
            raise AllocationError(str(error), hint=error.hint) from error
        draft.shared -= draft.bubble
    if managers.memory is not None and memory:
        _check_memory_pool(pod, asked, memory)
        draft.pod_memory, draft.machine = allocate_memory(draft.machine, memory, affinity, {})
        draft.memory = slice_memory(pod, asked.memory, memory, draft.pod_memory[0].nodes)


def _refuse_empty_pool(managers: Managers, pod: Pod, asked: Claims, message: str) -> None:
    """What a strict policy refuses as a lack of alignment is an empty shared pool in truth: say so."""
    try:
        if managers.cpu is not None and asked.pod_cpus:
            check_shared_pool("cpu", pod.containers, asked.cpus, asked.pod_cpus)
        if managers.memory is not None and asked.pod_memory:
            _check_memory_pool(pod, asked, asked.pod_memory)
    except EmptyPodSharedPoolError as empty:
        raise TopologyAffinityError(f"{message}: {empty}", hint=empty.hint, rule=empty.rule) from empty


def _check_memory_pool(pod: Pod, asked: Claims, memory: Mapping[str, int]) -> None:
    for resource in sorted(memory):
        slices = {name: request.get(resource, 0) for name, request in asked.memory.items()}
        check_shared_pool(resource, pod.containers, slices, memory[resource])


def _pod_cpu_provider(managers: Managers, draft: _Draft, pod: Pod, asked: Claims) -> ProviderHints:
    if managers.cpu is None or asked.pod_cpus == 0:
        return None
    try:
        check_shared_pool("cpu", pod.containers, asked.cpus, asked.pod_cpus)
    except EmptyPodSharedPoolError:
        return {"cpu": ()}  # the kubelet's provider answers "impossible" here, so that a strict policy refuses first
    return _cpu_provider(managers, draft, asked.pod_cpus)


def _pod_memory_provider(
    managers: Managers, draft: _Draft, pod: Pod, asked: Claims, memory: Mapping[str, int] | None
) -> ProviderHints:
    if managers.memory is None or memory is None:
        return None
    try:
        _check_memory_pool(pod, asked, memory)
    except EmptyPodSharedPoolError:
        return dict.fromkeys(memory, ())
    return _memory_provider(managers, draft, memory)


# --- what must be left -------------------------------------------------------------------------------------------------


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


# --- the other transitions -----------------------------------------------------------------------------------------------


def remove(managers: Managers, grants: Grants, uid: str) -> Grants:
    """The grants after this pod ended: its CPUs go back to the shared pool, its memory to the nodes."""
    if not holds(grants, uid):
        return grants
    cpu, memory = grants.cpu, grants.memory
    held = cpu.held_by(uid)
    others = (cpu.held_by(other) for other in {**cpu.entries, **cpu.pod_entries} if other != uid)
    if managers.cpu is not None:
        returned = (held & managers.cpu.managed) - union(others)  # a file with two owners of one CPU was taken over
    else:  # with policy none there is a shared pool only while pods still hold what static gave them
        returned = (held & managers.machine.topology.all) - union(others) if cpu.default else CPUSet()
    machine = memory.machine
    if uid in memory.pod_entries:
        machine = memory_static.release(machine, memory.pod_entries[uid])
    else:
        for blocks in memory.entries.get(uid, {}).values():
            machine = memory_static.release(machine, blocks)
    return Grants(
        CPUState(cpu.default | returned, _without(cpu.entries, uid), _without(cpu.pod_entries, uid)),
        MemoryState(machine, _without(memory.entries, uid), _without(memory.pod_entries, uid)),
    )


def container_started(grants: Grants, pod: Pod, name: str) -> Grants:
    """The grants once container `name` of the pod runs: earlier ordinary init containers no longer hold memory.

    Their CPU entries stay for the life of the pod, as in the kubelet. In a bubble the entry ends and the bubble keeps its bytes.
    """
    entries = grants.memory.entries.get(pod.uid)
    if entries is None:
        return grants
    finished = memory_static.finished_before(pod.containers, name)
    gone = [blocks for container, blocks in entries.items() if container in finished]
    if not gone:
        return grants
    machine = grants.memory.machine
    if pod.uid not in grants.memory.pod_entries:
        for blocks in gone:
            machine = memory_static.release(machine, blocks)
    left = {container: blocks for container, blocks in entries.items() if container not in finished}
    memory = replace(grants.memory, machine=machine, entries={**grants.memory.entries, pod.uid: left})
    return replace(grants, memory=memory)


def _without(entries: Mapping[str, _T], uid: str) -> Mapping[str, _T]:
    return {key: value for key, value in entries.items() if key != uid} if uid in entries else entries
