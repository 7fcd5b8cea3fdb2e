"""Where a container's memory goes: under the merged hint, widened where that does not suffice.

Source: kubelet cm/memorymanager/policy_static.go, Allocate and extendTopologyManagerHint.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.numa import NodeMask, node_ids
from agent.model.state import Blocks, NUMANodeState
from agent.policy.hint_family import Hint
from agent.policy.memory_affinity import best_memory_hint, breaks_groups, has_free
from agent.policy.memory_static import MachineState, Request, Reusable, place
from agent.policy.refusal import AllocationError


def allocate_memory(
    machine: MachineState, request: Request, affinity: Hint, reusable: Reusable
) -> tuple[Blocks, dict[int, NUMANodeState]]:
    """The blocks for one request and the machine state after it.

    affinity: the merged hint; without NUMA nodes the memory manager takes its own best. A hint that lacks free memory is
    extended to more nodes; a preferred hint must not become one that is not. Raises AllocationError with the kubelet's texts.
    """
    check_page_sizes(machine, request)
    hint = affinity
    if hint.affinity is None:
        own = best_memory_hint(machine, request, reusable)
        if own is None:
            raise AllocationError(
                "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
                hint=_shortfall(machine, request),
            )
        if hint.preferred and not own.preferred:
            raise AllocationError("[memorymanager] failed to find the default preferred hint")
        hint = own
    if not has_free(machine, request, hint.affinity or 0):
        extended = best_memory_hint(machine, request, reusable, containing=hint.affinity or 0)
        if extended is None:
            raise AllocationError(
                "[memorymanager] failed to find NUMA nodes to extend the current topology hint",
                hint=_shortfall(machine, request),
            )
        if hint.preferred and not extended.preferred:
            raise AllocationError("[memorymanager] failed to find the extended preferred hint")
        hint = extended
    nodes = hint.affinity or 0
    if breaks_groups(machine, nodes):
        raise AllocationError(
            "[memorymanager] preferred hint violates NUMA node allocation",
            hint="a NUMA node serves either single-node or one group's multi-node memory, never both",
        )
    return place(machine, request, nodes, reusable)


def check_page_sizes(machine: MachineState, request: Request) -> None:
    """Refuse hugepages of a size that no NUMA node of this machine lists; the kubelet 1.36 crashes there.

    Raises AllocationError.
    """
    known = {resource for state in machine.values() for resource in state.memory}
    for resource, size in sorted(request.items()):
        if size and resource not in known:
            raise AllocationError(
                f"[memorymanager] no NUMA node has {resource}",
                hint=f"this machine lists: {', '.join(sorted(known))}; other page sizes are set up at boot",
            )


def _free(machine: MachineState, nodes: NodeMask, resource: str) -> int:
    tables = (machine[node].memory.get(resource) for node in node_ids(nodes) if node in machine)
    return sum(table.free for table in tables if table is not None)


def _shortfall(machine: MachineState, request: Mapping[str, int]) -> str:
    parts = []
    for resource, size in sorted(request.items()):
        free = ", ".join(f"NUMA node {node} {_free(machine, 1 << node, resource)}" for node in sorted(machine))
        parts.append(f"{resource}: asked {size} bytes, free {free}")
    return "; ".join(parts)
