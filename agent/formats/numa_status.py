"""Who holds what on every NUMA node: the answer to "why is node 1 full", for the status and the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask, node_ids
from agent.model.state import Blocks, State
from agent.policy.managers import Managers
from agent.policy.memory_count import charged_blocks


def encode_numa(state: State, managers: Managers) -> list[dict[str, Any]]:
    """Every NUMA node, those with memory only included. CPU lists in kernel form, sizes in bytes.

    held: what pods have for themselves, in the order of their admission. A block of memory that spans nodes is shown whole on
    each of them, with all its nodes: its split is not what is decided.
    """
    reserved = managers.cpu.reserved if managers.cpu is not None else state.policy.reserved_cpus
    names = {uid: record.pod.namespaced_name for uid, record in state.pods.items()}
    cpus = [(name, held) for uid, name in names.items() if (held := state.grants.cpu.held_by(uid))]
    blocks = [(name, own) for uid, name in names.items() if (own := charged_blocks(state.grants.memory, uid))]
    masks = managers.machine.topology.numa_masks
    return [
        {
            "node": node,
            "cpus": str(CPUSet(masks.get(node, 0))),
            "reserved": str(reserved & CPUSet(masks.get(node, 0))),
            "shared": str((state.grants.cpu.default - reserved) & CPUSet(masks.get(node, 0))),
            "held": [
                {"pod": name, "cpus": str(mine)} for name, held in cpus if (mine := held & CPUSet(masks.get(node, 0)))
            ],
            "memory": _memory(state, node, blocks),
        }
        for node in managers.machine.numa_nodes
    ]


def _memory(state: State, node: int, blocks: Sequence[tuple[str, Blocks]]) -> list[dict[str, Any]]:
    tables = state.grants.memory.machine.get(node)
    held: dict[str, dict[tuple[str, NodeMask], int]] = {}  # resource -> (pod, nodes of the block) -> bytes
    for name, own in blocks:
        for block in own:
            if block.size and block.nodes >> node & 1:
                of = held.setdefault(block.type, {})
                of[name, block.nodes] = of.get((name, block.nodes), 0) + block.size
    return [
        {
            "type": resource,
            "allocatable": table.allocatable,
            "free": table.free,
            "held": [
                {"pod": pod, "size": size, "numa": list(node_ids(nodes))}
                for (pod, nodes), size in held.get(resource, {}).items()
            ],
        }
        for resource, table in (sorted(tables.memory.items()) if tables is not None else ())
    ]
