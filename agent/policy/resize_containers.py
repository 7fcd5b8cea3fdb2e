"""The resize of a pinned pod without a bubble: one container after the other, under its own hint or the pod's."""

from __future__ import annotations

from agent.model.cpuset import CPUSet, union
from agent.model.numa import union_of
from agent.model.pod import Container, ContainerKind
from agent.model.resources import most_at_once
from agent.model.state import nodes_of
from agent.policy.hint_family import Hint
from agent.policy.memory_growth import bytes_of
from agent.policy.memory_static import pod_request
from agent.policy.resize_draft import ResizeDraft
from agent.policy.topology_options import TopologyScope


def resize_containers(draft: ResizeDraft) -> None:
    """Give back first, then grow in spec order. Raises Refusal and NotEnoughCPUs."""
    containers = [each for each in draft.pod.containers if each.kind is not ContainerKind.INIT]
    for container in containers:
        _shrink(draft, container)
    growing = [each for each in containers if _more_cpus(draft, each) or _more_memory(draft, each)]
    if not growing:
        return
    for_pod = _pod_affinity(draft) if draft.managers.effective_scope is TopologyScope.POD else None
    for container in growing:
        _grow(draft, container, for_pod or _container_affinity(draft, container))


def _target(draft: ResizeDraft, container: Container) -> int:
    return draft.asked.cpus.get(container.name, 0)


def _more_cpus(draft: ResizeDraft, container: Container) -> int:
    held = draft.cpus.get(container.name)
    return max(_target(draft, container) - len(held), 0) if held and not draft.keeps_cpus else 0


def _more_memory(draft: ResizeDraft, container: Container) -> bool:
    held = bytes_of(draft.memory, container.name)
    wanted = draft.asked.memory.get(container.name, {})
    return container.name in draft.memory and any(size > held.get(kind, 0) for kind, size in wanted.items())


def _less_memory(draft: ResizeDraft, container: Container) -> bool:
    wanted = draft.asked.memory.get(container.name)
    if wanted is None:  # under the gates or the scope of now it would get none of its own, and keeps what it was given
        return False
    return any(size > wanted.get(kind, 0) for kind, size in bytes_of(draft.memory, container.name).items())


def _shrink(draft: ResizeDraft, container: Container) -> None:
    name = container.name
    held = draft.cpus.get(name)
    if held and not draft.keeps_cpus and _target(draft, container) < len(held):
        draft.cpus[name] = draft.shrunk(held, draft.floor.cpus.get(name, CPUSet()), _target(draft, container))
        draft.give_back(held)
    if _less_memory(draft, container):
        first = draft.floor.memory.get(name, ())
        draft.memory[name] = draft.resize_blocks(draft.memory[name], first, draft.asked.memory[name], None)


def _grow(draft: ResizeDraft, container: Container, affinity: Hint) -> None:
    name = container.name
    draft.affinities[name] = affinity
    if _more_cpus(draft, container):
        draft.cpus[name] = draft.grown(draft.cpus[name], _target(draft, container), affinity)
    if _more_memory(draft, container):
        first = draft.floor.memory.get(name, ())
        draft.memory[name] = draft.resize_blocks(draft.memory[name], first, draft.asked.memory[name], affinity)


def _container_affinity(draft: ResizeDraft, container: Container) -> Hint:
    name = container.name
    held = draft.cpus.get(name, CPUSet())
    blocks = draft.memory.get(name, ())
    return draft.merged(
        draft.cpu_provider(held, max(_target(draft, container), len(held))),
        draft.memory_provider(
            [blocks],
            draft.asked.memory.get(name, {}) if blocks else {},
            grows=_more_memory(draft, container),
            nodes=nodes_of(blocks),
        ),
    )


def _pod_affinity(draft: ResizeDraft) -> Hint:
    """One hint for the pod's total, as at admission, that contains all that the pod holds."""
    pod, asked = draft.pod, draft.asked
    held = union(draft.cpus.values())
    total = most_at_once((each.kind, asked.cpus.get(each.name, 0)) for each in pod.containers)
    blocks = list(draft.memory.values())
    return draft.merged(
        draft.cpu_provider(held, max(total, len(held))),
        draft.memory_provider(
            blocks,
            pod_request(pod) if blocks else {},
            grows=any(_more_memory(draft, each) for each in pod.containers if each.kind is not ContainerKind.INIT),
            nodes=union_of(map(nodes_of, blocks)),
        ),
    )
