"""Containers that run but that the state does not know: what their cgroups prove is taken over, nothing else.

Needed after a state was lost and when pods were started by somebody else. A set of CPUs is proven where the pod is entitled to
exactly so many, none of them is reserved or granted, and no container of another pod may run on them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask, union_of
from agent.model.pod import Pod
from agent.model.state import Blocks, CPUState, Grants, MemoryState
from agent.policy.cpu_static import CPUManager
from agent.policy.eligibility import Claims, claims
from agent.policy.managers import Managers
from agent.policy.memory_count import count
from agent.policy.memory_static import blocks_on, fresh_machine_state
from agent.policy.removal import holds
from agent.policy.repair_plan import Rule, Step
from agent.policy.topology_options import TopologyScope


@dataclass(frozen=True, slots=True)
class EffectiveCpuset:
    """Where a container may run: cpuset.cpus.effective and cpuset.mems.effective of its cgroup."""

    cpus: CPUSet
    nodes: NodeMask


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod with its running containers."""

    pod: Pod
    containers: Mapping[str, EffectiveCpuset] = field(default_factory=dict)


def adopt(managers: Managers, grants: Grants, running: Mapping[str, RunningPod]) -> tuple[Grants, tuple[Step, ...]]:
    """Grants with what the cgroups of these pods prove. running: by UID, every container of the node that is to be seen.

    Pods that hold something already are left alone. A pod that asks for CPUs of its own and proves none stays in the shared
    pool, with a step that says so.
    """
    steps: list[Step] = []
    for uid, each in running.items():
        if holds(grants, uid):
            continue
        asked = claims(each.pod, managers.gates)
        others = union(seen.cpus for other, pod in running.items() if other != uid for seen in pod.containers.values())
        in_bubble = asked.pod_level and managers.effective_scope is TopologyScope.POD
        cpus, bubble = _proven_cpus(managers.cpu, grants.cpu, asked, each, others, in_bubble=in_bubble)
        blocks, pod_blocks = _proven_memory(managers, asked, each, in_bubble=in_bubble)
        if cpus or bubble or blocks or pod_blocks:
            grants = _with(managers, grants, uid, CPUState(CPUSet(), {uid: cpus}, {uid: bubble}), blocks, pod_blocks)
            what = f"CPUs {bubble or union(cpus.values())}" if cpus or bubble else "memory"
            text = f"pod {each.pod.namespaced_name} runs on {what} of its own: taken over from its cgroups"
            steps.append(Step(Rule.ADOPTED, True, text, (uid,), bubble or union(cpus.values())))
        if managers.cpu is not None and (asked.cpus or asked.pod_cpus) and not (cpus or bubble):
            text = f"pod {each.pod.namespaced_name} asks for CPUs of its own, but its cgroups do not prove any"
            steps.append(Step(Rule.NOT_PROVEN, True, text, (uid,)))
    return grants, tuple(steps)


def _proven_cpus(
    manager: CPUManager | None, cpu: CPUState, asked: Claims, running: RunningPod, others: CPUSet, *, in_bubble: bool
) -> tuple[dict[str, CPUSet], CPUSet]:
    """Sets by container, and the bubble."""
    if manager is None:
        return {}, CPUSet()
    free = (cpu.default & manager.allocatable) - others
    seen = {name: observed.cpus for name, observed in running.containers.items()}
    if in_bubble:
        whole = union(seen.values())
        return (seen, whole) if asked.pod_cpus and len(whole) == asked.pod_cpus and whole <= free else ({}, CPUSet())
    found: dict[str, CPUSet] = {}
    for name, wanted in asked.cpus.items():
        cpus = seen.get(name, CPUSet())
        kin = union(other for container, other in seen.items() if container != name)
        if len(cpus) == wanted and cpus <= free and not cpus & kin:
            found[name] = cpus
    return found, CPUSet()


def _proven_memory(
    managers: Managers, asked: Claims, running: RunningPod, *, in_bubble: bool
) -> tuple[dict[str, Blocks], Blocks]:
    """Blocks by container, and the bubble's. A container bound to some of the NUMA nodes has its memory there; one that may
    use all of them proves nothing, unless the machine has but one."""
    if managers.memory is None:
        return {}, ()
    every = managers.machine.numa_mask
    found: dict[str, Blocks] = {}
    for name, request in asked.memory.items():
        nodes = running.containers[name].nodes & every if name in running.containers else 0
        if _is_bound(nodes, every):
            found[name] = blocks_on(nodes, request)
    if not in_bubble:
        return found, ()
    whole = union_of(observed.nodes & every for observed in running.containers.values())
    if not asked.pod_memory or not _is_bound(whole, every):
        return {}, ()
    return found, blocks_on(whole, asked.pod_memory)


def _is_bound(nodes: NodeMask, every: NodeMask) -> bool:
    return nodes != 0 and (nodes != every or every.bit_count() == 1)


def _with(
    managers: Managers,
    grants: Grants,
    uid: str,
    proven: CPUState,
    blocks: Mapping[str, Blocks],
    pod_blocks: Blocks,
) -> Grants:
    cpu, memory = grants.cpu, grants.memory
    sets, bubble = proven.entries[uid], proven.pod_entries[uid]
    cpu = CPUState(
        cpu.default - proven.held_by(uid),
        {**cpu.entries, uid: sets} if sets else cpu.entries,
        {**cpu.pod_entries, uid: bubble} if bubble else cpu.pod_entries,
    )
    if (blocks or pod_blocks) and managers.memory is not None:
        memory = MemoryState(
            memory.machine,
            {**memory.entries, uid: dict(blocks)} if blocks else memory.entries,
            {**memory.pod_entries, uid: pod_blocks} if pod_blocks else memory.pod_entries,
        )
        memory = replace(memory, machine=count(fresh_machine_state(managers.memory), memory).machine)
    return Grants(cpu, memory)
