"""Memory promises that grow and shrink: more or fewer bytes, on the NUMA nodes held already and more only where these lack them.

The rule of KEP-5554 for memory: what the first admission gave is never taken away, neither bytes nor nodes. Everything else is
the Static policy's own: room, groups of nodes, extension of a hint (kubelet cm/memorymanager/policy_static.go).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.model.cpuset import bits
from agent.model.numa import NodeMask, node_mask
from agent.model.state import Blocks, NUMANodeState
from agent.policy.hint_family import CapacityHints, Hint, ProviderHints, ResourceHints
from agent.policy.hints import memory_family
from agent.policy.memory_affinity import best_memory_hint, breaks_groups, has_free
from agent.policy.memory_static import MachineState, Request, place
from agent.policy.refusal import AllocationError


def replace_blocks(
    machine: MachineState, request: Request, held: NodeMask, floor: NodeMask, affinity: Hint | None
) -> tuple[Blocks, dict[int, NUMANodeState]]:
    """The blocks of a resized request, and the machine state after it.

    machine: without what the container holds now. held: the nodes of that. floor: the nodes of its first admission. affinity:
    the merged hint for a growth, None for a shrink, which goes back to the nodes of the first admission if these will do.
    Nodes that are gone from the machine are left. Raises AllocationError.
    """
    here = node_mask(machine)
    held, floor = held & here, floor & here
    wider = affinity.affinity if affinity is not None and affinity.affinity else 0
    wishes = (held | wider,) if affinity is not None else (floor, held)
    if affinity is not None and _fits(machine, request, held):
        wishes = (held,)
    for nodes in wishes:
        if nodes and _fits(machine, request, nodes):
            return place(machine, request, nodes, {})
    extended = best_memory_hint(machine, request, {}, containing=wishes[-1])
    if extended is None:
        raise AllocationError("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
    if affinity is not None and affinity.preferred and not extended.preferred:
        raise AllocationError("[memorymanager] failed to find the extended preferred hint")
    return place(machine, request, extended.affinity or 0, {})  # a hint has room and breaks no group


def _fits(machine: MachineState, request: Request, nodes: NodeMask) -> bool:
    return (
        has_free(machine, request, nodes) and not breaks_groups(machine, nodes) and not _alone_in_group(machine, nodes)
    )


def _alone_in_group(machine: MachineState, nodes: NodeMask) -> bool:
    """Whether this is a single node that serves a group of several."""
    return nodes.bit_count() == 1 and any(
        machine[node].assignments > 0 and machine[node].cells.bit_count() > 1 for node in bits(nodes)
    )


def growth_hints(machine: MachineState, request: Request, held: NodeMask) -> ProviderHints:
    """Where a growing request can go: the hints of admission that contain the nodes held. An empty tuple: nowhere.

    machine: without what is held.
    """
    family = memory_family(machine, request, {})
    hints: ResourceHints = () if family is None else containing(family, held)
    return dict.fromkeys(request, hints)


def staying_hints(machine: MachineState, request: Request, held: NodeMask) -> ProviderHints:
    """The hint of memory that stays as it is while CPUs grow: its own nodes, preferred if they are as few as can be.

    None where nothing is held: it was admitted while no memory was managed.
    """
    if not held:
        return None
    family = memory_family(machine, request, {})
    preferred = family is None or family.prefers(held)
    return dict.fromkeys(request, (Hint(held, preferred),))


def containing(family: CapacityHints, held: NodeMask) -> CapacityHints | tuple[Hint, ...]:
    """The hints of a family whose mask contains these nodes."""
    others = tuple(mask for mask in family.others if not held & ~mask)
    narrowed = replace(family, required=family.required | held, others=others)
    return narrowed if others or narrowed.is_open() else ()


def bytes_of(entries: Mapping[str, Blocks], name: str) -> dict[str, int]:
    """What a container holds, bytes per resource."""
    held: dict[str, int] = {}
    for block in entries.get(name, ()):
        held[block.type] = held.get(block.type, 0) + block.size
    return held
