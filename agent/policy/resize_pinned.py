"""Resizing pods that hold CPUs and NUMA memory of their own: the rule of KEP-5554, for containers, bubbles and memory blocks.

What the first admission gave is never taken away; a growth is a superset, chosen by the rules of admission (hints, merge,
options); a shrink gives back only what is beyond the first admission. A growth that the node cannot hold now is deferred, one
that it could not hold even if this were its only pod is infeasible. Nothing is changed by a refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.model.cpuset import CPUSet, union
from agent.model.numa import node_mask
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.state import Blocks, CPUState, FirstGrant, Grants, MemoryState
from agent.policy import memory_static
from agent.policy.admission import check_minimum_shared_pool
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.cpu_static import CPUManager
from agent.policy.eligibility import Claims, claims
from agent.policy.hint_family import Hint
from agent.policy.managers import Managers
from agent.policy.refusal import Refusal, SMTAlignmentError
from agent.policy.resize_bubble import resize_bubble
from agent.policy.resize_containers import resize_containers
from agent.policy.resize_draft import ResizeDraft
from agent.policy.restore import fresh
from agent.policy.topology_options import TopologyScope


class PinnedResizeRefusal(Refusal):
    """A resize of a pinned pod that cannot be. never: no other pod's end would help. `detail`: a word for events and metrics."""

    def __init__(self, message: str, *, never: bool, detail: str, hint: str = "") -> None:
        super().__init__(message, hint=hint or None)
        self.never = never
        self.reason = detail


@dataclass(frozen=True, slots=True)
class PinnedResize:
    """The grants after the resize. affinities: by container, the hints that were merged for it."""

    grants: Grants
    affinities: Mapping[str, Hint]


def resize_pinned(managers: Managers, grants: Grants, first: FirstGrant, old: Pod, new: Pod) -> PinnedResize:
    """Resize a pod that holds pins, or that would hold some at its new size.

    first: what its first admission gave; where it says nothing of a container, what that holds now. old, new: the allocated
    and the desired pod, of one quality of service. Raises PinnedResizeRefusal.
    """
    asked = claims(new, managers.gates)
    floor = floor_of(grants, first, new.uid)
    _check_first_admission(managers, grants, floor, claims(old, managers.gates), asked, new)
    try:
        return _attempt(managers, grants, floor, asked, new)
    except (Refusal, NotEnoughCPUs) as refusal:
        try:
            _attempt(managers, alone(managers, grants, new.uid), floor, asked, new)
        except (Refusal, NotEnoughCPUs) as never:
            raise PinnedResizeRefusal(str(never), never=True, detail=_detail(never), hint=never.hint) from never
        raise PinnedResizeRefusal(str(refusal), never=False, detail=_detail(refusal), hint=refusal.hint) from refusal


def _detail(refusal: Refusal | NotEnoughCPUs) -> str:
    return "OutOfcpu" if isinstance(refusal, NotEnoughCPUs) else refusal.reason


def floor_of(grants: Grants, first: FirstGrant, uid: str) -> FirstGrant:
    """What the pod can never lose: the first admission's sets, and what it holds where nothing is known of these."""
    return FirstGrant(
        {**grants.cpu.entries.get(uid, {}), **first.cpus},
        {**grants.memory.entries.get(uid, {}), **first.memory},
        first.pod_cpus if first.pod_cpus is not None else grants.cpu.pod_entries.get(uid),
        first.pod_memory if first.pod_memory is not None else grants.memory.pod_entries.get(uid),
    )


def alone(managers: Managers, grants: Grants, uid: str) -> Grants:
    """The same node with this pod only."""
    empty = fresh(managers)
    entries, bubble = grants.cpu.entries.get(uid, {}), grants.cpu.pod_entries.get(uid)
    memory, pod_memory = grants.memory.entries.get(uid, {}), grants.memory.pod_entries.get(uid)
    machine = dict(empty.memory.machine)
    for blocks in [pod_memory] if pod_memory is not None else memory.values():
        for block in blocks:
            nodes = block.nodes & node_mask(machine)  # none of them where the memory policy is off now
            machine = memory_static.charge(machine, nodes, block.type, block.size)
    held = union([*entries.values(), bubble or CPUSet()])
    return Grants(
        CPUState(empty.cpu.default - held, {uid: entries} if entries else {}, {uid: bubble} if bubble else {}),
        MemoryState(machine, {uid: memory} if memory else {}, {uid: pod_memory} if pod_memory is not None else {}),
    )


# --- what can never be --------------------------------------------------------------------------------------------------


def _check_first_admission(
    managers: Managers, grants: Grants, floor: FirstGrant, was: Claims, asked: Claims, pod: Pod
) -> None:
    """Refuse to take from a first admission, to end exclusiveness and to begin it.

    A bubble is one for the life of its pod, whatever the scope has become since.
    """
    bubble = grants.cpu.pod_entries.get(pod.uid)
    if managers.cpu is not None:
        entries = grants.cpu.entries.get(pod.uid, {})
        in_bubble = asked.pod_level and (bubble is not None or managers.effective_scope is TopologyScope.POD)
        if in_bubble and (bubble or asked.pod_cpus):
            _check_cpus(managers.cpu, f"pod {pod.name}", asked.pod_cpus, bubble or CPUSet(), floor.pod_cpus or CPUSet())
        for container in resizable(pod) if bubble or not in_bubble else ():
            name = container.name
            held = entries.get(name, CPUSet()) if bubble is None or name in was.cpus else CPUSet()
            target = asked.cpus.get(name, 0)
            if held or target:
                _check_cpus(managers.cpu, f'container "{name}"', target, held, floor.cpus.get(name, CPUSet()))
    else:
        _check_kept_cpus(grants, was, asked, pod)
    if managers.memory is not None:
        if pod.uid in grants.memory.pod_entries:
            _check_bytes(f"pod {pod.name}", asked.pod_memory or {}, floor.pod_memory or ())
        for container in resizable(pod):
            if container.name in was.memory:
                wanted = asked.memory.get(container.name, {})
                _check_bytes(f'container "{container.name}"', wanted, floor.memory.get(container.name, ()))


def _check_kept_cpus(grants: Grants, was: Claims, asked: Claims, pod: Pod) -> None:
    """Refuse other numbers of CPUs where the policy is `none` by now: what the pod was given stays."""
    bubble = grants.cpu.pod_entries.get(pod.uid, CPUSet())
    held = union([bubble, *grants.cpu.entries.get(pod.uid, {}).values()])
    if held and (was.cpus, was.pod_cpus) != (asked.cpus, asked.pod_cpus):
        raise PinnedResizeRefusal(
            f"Resize is infeasible: pod {pod.name} keeps the exclusive CPUs {held} until it ends; "
            "cpuManagerPolicy none gives and takes none",
            never=True,
            detail="cpu_manager_policy_none",
            hint="create the pod anew, or configure cpuManagerPolicy static again",
        )


def resizable(pod: Pod) -> list[Container]:
    """The containers whose size can change: ordinary init containers keep theirs."""
    return [container for container in pod.containers if container.kind is not ContainerKind.INIT]


def _check_cpus(manager: CPUManager, owner: str, target: int, held: CPUSet, first: CPUSet) -> None:
    if held and not target:
        raise PinnedResizeRefusal(
            f"Resize is infeasible: {owner} holds the exclusive CPUs {held} and keeps them for its life; "
            "its new request is no whole number of CPUs",
            never=True,
            detail="exclusiveness_changed",
            hint="ask for a whole number of CPUs",
        )
    if target and not held:
        raise PinnedResizeRefusal(
            f"Resize is infeasible: {owner} would need {target} exclusive CPUs; a running container cannot become exclusive",
            never=True,
            detail="exclusiveness_changed",
            hint="create the pod anew with this request, or ask for a fraction of a CPU",
        )
    if target < len(first):
        raise PinnedResizeRefusal(
            f"Resize is infeasible: {target} CPUs are fewer than the {len(first)} that {owner} got at its first admission "
            f"({first})",
            never=True,
            detail="below_first_admission",
            hint=f"ask for at least {len(first)} CPUs",
        )
    if target != len(held) and manager.options.full_pcpus_only and target % manager.group_size:
        smt = SMTAlignmentError.not_multiple(target, manager.group_size)
        raise PinnedResizeRefusal(str(smt), never=True, detail=smt.reason, hint=smt.hint)


def _check_bytes(owner: str, wanted: Mapping[str, int], first: Blocks) -> None:
    for block in first:
        if wanted.get(block.type, 0) < block.size:
            raise PinnedResizeRefusal(
                f"Resize is infeasible: {wanted.get(block.type, 0)} bytes of {block.type} are fewer than the {block.size} "
                f"that {owner} got at its first admission",
                never=True,
                detail="below_first_admission",
                hint=f"ask for at least {block.size} bytes",
            )


# --- the attempt --------------------------------------------------------------------------------------------------------


def _attempt(managers: Managers, grants: Grants, floor: FirstGrant, asked: Claims, pod: Pod) -> PinnedResize:
    draft = ResizeDraft.of(managers, grants, floor, asked, pod)
    if draft.bubble is not None or draft.pod_memory is not None:
        resize_bubble(draft)
    else:
        resize_containers(draft)
    check_minimum_shared_pool(managers, grants.cpu.default, draft.shared, pod)
    return PinnedResize(_commit(grants, draft), draft.affinities)


def _commit(grants: Grants, draft: ResizeDraft) -> Grants:
    uid = draft.pod.uid
    cpu = replace(grants.cpu, default=draft.shared)
    memory = replace(grants.memory, machine=draft.machine)
    if draft.cpus:
        cpu = replace(cpu, entries={**cpu.entries, uid: draft.cpus})
    if draft.bubble is not None:
        cpu = replace(cpu, pod_entries={**cpu.pod_entries, uid: draft.bubble})
    if draft.memory:
        memory = replace(memory, entries={**memory.entries, uid: draft.memory})
    if draft.pod_memory is not None:
        memory = replace(memory, pod_entries={**memory.pod_entries, uid: draft.pod_memory})
    return Grants(cpu, memory)
