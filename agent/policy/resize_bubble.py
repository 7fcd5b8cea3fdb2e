"""The resize of a pod with a bubble (KEP-5526): the bubble by the rule for containers, its slices by the same rule inside it."""

from __future__ import annotations

from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask
from agent.model.pod import Container, ContainerKind
from agent.model.state import Blocks, nodes_of
from agent.policy.cpu_assignment import take_cpus
from agent.policy.cpu_growth import grow
from agent.policy.hint_family import Hint
from agent.policy.pod_pool import check_shared_pool, slice_memory
from agent.policy.resize_draft import ResizeDraft


def resize_bubble(draft: ResizeDraft) -> None:
    """The bubble first, so that its slices find their room. Raises Refusal and NotEnoughCPUs."""
    affinity = _affinity(draft) if _grows(draft) else None
    if affinity is not None:
        draft.affinities = {container.name: affinity for container in draft.pod.containers}
    if draft.bubble is not None and not draft.keeps_cpus:
        _resize_cpus(draft, draft.bubble, affinity)
    if draft.pod_memory is not None:
        _resize_memory(draft, draft.pod_memory, affinity)


def _grows(draft: ResizeDraft) -> bool:
    return (draft.bubble is not None and draft.asked.pod_cpus > len(draft.bubble)) or _memory_grows(draft)


def _memory_grows(draft: ResizeDraft) -> bool:
    held = {block.type: block.size for block in draft.pod_memory or ()}
    return draft.pod_memory is not None and any(
        size > held.get(kind, 0) for kind, size in (draft.asked.pod_memory or {}).items()
    )


def _affinity(draft: ResizeDraft) -> Hint:
    bubble, blocks = draft.bubble or CPUSet(), draft.pod_memory or ()
    return draft.merged(
        draft.cpu_provider(bubble, max(draft.asked.pod_cpus, len(bubble))),
        draft.memory_provider(
            [blocks], draft.asked.pod_memory or {}, grows=_memory_grows(draft), nodes=nodes_of(blocks)
        ),
    )


# --- CPUs ---------------------------------------------------------------------------------------------------------------


def _resize_cpus(draft: ResizeDraft, bubble: CPUSet, affinity: Hint | None) -> None:
    total = draft.asked.pod_cpus
    check_shared_pool("cpu", draft.pod.containers, draft.asked.cpus, total)
    if total < len(bubble):
        draft.bubble = draft.shrunk(bubble, _must_stay(draft, bubble, total), total)
        draft.cpus = {name: cpus & draft.bubble for name, cpus in draft.cpus.items()}
        draft.give_back(bubble)
    elif total > len(bubble) and affinity is not None:
        draft.bubble = draft.grown(bubble, total, affinity)
    _resize_slices(draft)


def _must_stay(draft: ResizeDraft, bubble: CPUSet, total: int) -> CPUSet:
    """The first bubble, and the slices that stay as large as they are where these fit too."""
    first = (draft.floor.pod_cpus or bubble) & bubble
    slices = union(
        draft.cpus[each.name]
        for each in _with_slices(draft)
        if each.name in draft.cpus and draft.asked.cpus[each.name] >= len(draft.cpus[each.name])
    )
    return first | slices if len(first | slices) <= total else first


def _with_slices(draft: ResizeDraft) -> list[Container]:
    return [
        each for each in draft.pod.containers if each.kind is not ContainerKind.INIT and each.name in draft.asked.cpus
    ]


def _resize_slices(draft: ResizeDraft) -> None:
    """Slices shrink to sets that contain their first ones, then grow from what is left; the rest is the pod's shared pool."""
    assert draft.managers.cpu is not None
    assert draft.bubble is not None
    slices = {each.name: draft.cpus.get(each.name, CPUSet()) for each in _with_slices(draft)}
    for name, held in slices.items():
        if len(held) > draft.asked.cpus[name]:
            slices[name] = draft.shrunk(held, draft.floor.cpus.get(name, CPUSet()), draft.asked.cpus[name])
    for name, held in slices.items():
        pool = draft.bubble - union(slices.values())
        slices[name] = grow(draft.managers.cpu, pool, held, draft.asked.cpus[name] - len(held), None)
    draft.cpus = _entries(draft, slices)


def _entries(draft: ResizeDraft, slices: dict[str, CPUSet]) -> dict[str, CPUSet]:
    """Every container's CPUs, by the order of `pod_pool.slice_cpus`; an init container keeps its slice while it is whole."""
    assert draft.managers.cpu is not None
    assert draft.bubble is not None
    entries: dict[str, CPUSet] = {}
    pool = draft.bubble
    for container in draft.pod.containers:
        name, count = container.name, draft.asked.cpus.get(container.name)
        if name in slices:
            if container.kind is ContainerKind.SIDECAR:
                pool -= slices[name]
        elif count is None:
            if container.kind is ContainerKind.INIT:
                entries[name] = pool
        else:  # an ordinary init container: all others that have a number have their slices
            kept = draft.cpus.get(name, CPUSet()) & pool
            manager = draft.managers.cpu
            entries[name] = kept if len(kept) == count else take_cpus(manager.topology, pool, count, manager.pick)
    rest = draft.bubble - union(slices.values())
    return {each.name: slices.get(each.name, entries.get(each.name, rest)) for each in draft.pod.containers}


# --- memory -------------------------------------------------------------------------------------------------------------


def _resize_memory(draft: ResizeDraft, held: Blocks, affinity: Hint | None) -> None:
    wanted = draft.asked.pod_memory or {}
    for resource in sorted(wanted):
        slices = {name: request.get(resource, 0) for name, request in draft.asked.memory.items()}
        check_shared_pool(resource, draft.pod.containers, slices, wanted[resource])
    first = draft.floor.pod_memory or held
    if {block.type: block.size for block in held} != dict(wanted):
        growth = affinity if _memory_grows(draft) else None
        draft.pod_memory = draft.resize_blocks(held, first, wanted, growth)
    nodes: NodeMask = nodes_of(draft.pod_memory or ())
    entries = slice_memory(draft.pod, draft.asked.memory, wanted, nodes)
    draft.memory = {name: entries[name] for name in draft.memory if name in entries}  # ended init containers have none
