"""Counting memory tables anew from the blocks that pods hold, for when tables and blocks disagree or the machine has changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.state import Blocks, MemoryState, NUMANodeState
from agent.policy.memory_static import MachineState


@dataclass(frozen=True, slots=True)
class Count:
    """machine: the tables. reserved: (NUMA node, resource) -> bytes held there, those without a table included."""

    machine: Mapping[int, NUMANodeState]
    reserved: Mapping[tuple[int, str], int]

    def shortages(self) -> dict[tuple[int, str], int]:
        """(NUMA node, resource) -> bytes held beyond what is allocatable."""
        short = {}
        for (node, resource), held in sorted(self.reserved.items()):
            table = self.machine[node].memory.get(resource)
            missing = held - (table.allocatable if table is not None else 0)
            if missing > 0:
                short[node, resource] = missing
        return short


def charged_blocks(memory: MemoryState, uid: str) -> Blocks:
    """The blocks of a pod that nodes are charged for: its bubble's, else its containers'."""
    if uid in memory.pod_entries:
        return memory.pod_entries[uid]
    return tuple(block for blocks in memory.entries.get(uid, {}).values() for block in blocks)


def count(fresh: MachineState, memory: MemoryState) -> Count:
    """The tables of `fresh` (an empty node) charged with every block of `memory`.

    A block on several nodes does not say how it is split. The split of the old tables is kept where its sum is right; else
    nodes are filled in id order, as the kubelet does. Nodes that are not in `fresh` are left out.
    """
    assignments: dict[int, int] = {}
    cells: dict[int, NodeMask] = {node: 1 << node for node in fresh}
    sizes: dict[tuple[NodeMask, str], int] = {}
    for uid in {**memory.entries, **memory.pod_entries}:
        for block in charged_blocks(memory, uid):
            nodes = [node for node in node_ids(block.nodes) if node in fresh]
            mask = node_mask(nodes)
            for node in nodes:
                assignments[node] = assignments.get(node, 0) + 1
                cells[node] |= mask
            sizes[mask, block.type] = sizes.get((mask, block.type), 0) + block.size
    reserved: dict[tuple[int, str], int] = {}
    # blocks on one node first: what they take is not there for the groups
    for (mask, resource), size in sorted(sizes.items(), key=lambda item: item[0][0].bit_count()):
        for node, part in _split(fresh, memory.machine, reserved, node_ids(mask), resource, size).items():
            reserved[node, resource] = reserved.get((node, resource), 0) + part
    machine = {}
    for node, state in fresh.items():
        tables = {}
        for resource, table in state.memory.items():
            held = reserved.get((node, resource), 0)
            tables[resource] = replace(table, reserved=held, free=max(table.allocatable - held, 0))
        machine[node] = NUMANodeState(assignments.get(node, 0), cells[node], tables)
    return Count(machine, {key: held for key, held in reserved.items() if held})


def _split(
    fresh: MachineState,
    old: MachineState,
    taken: Mapping[tuple[int, str], int],
    nodes: tuple[int, ...],
    resource: str,
    size: int,
) -> dict[int, int]:
    written = {node: max(_reserved(old, node, resource) - taken.get((node, resource), 0), 0) for node in nodes}
    if sum(written.values()) == size:
        return written
    parts: dict[int, int] = {}
    for node in nodes:
        table = fresh[node].memory.get(resource)
        room = table.allocatable - taken.get((node, resource), 0) if table is not None else 0
        parts[node] = min(size, max(room, 0))
        size -= parts[node]
    if size and nodes:
        parts[nodes[-1]] += size  # more than there is, to be seen as a shortage
    return parts


def _reserved(machine: MachineState, node: int, resource: str) -> int:
    state = machine.get(node)
    table = state.memory.get(resource) if state is not None else None
    return table.reserved if table is not None else 0
