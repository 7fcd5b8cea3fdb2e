"""On which NUMA nodes the bytes of each promise lie. A block over several nodes says only that it is theirs together; how much of
it each has is in the tables (kubelet cm/memorymanager/policy_static.go fills them in the order of their ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agent.model.numa import node_ids
from agent.model.state import Blocks, MemoryBlock, MemoryState

Split = dict[int, dict[str, int]]  # NUMA node -> resource type -> bytes


def pod_splits(memory: MemoryState, order: Iterable[str]) -> dict[str, dict[str, Split]]:
    """UID -> container ("" alone: the pod's bubble) -> split. order: UIDs in the order of their admission.

    What single-node blocks hold is subtracted from the tables, the rest goes to the others in that order, so that the sums over
    all pods are what the tables say is reserved.
    """
    uids = [uid for uid in order if uid in memory.entries or uid in memory.pod_entries]
    uids += [uid for uid in {**memory.entries, **memory.pod_entries} if uid not in uids]
    left = {
        node: {kind: table.reserved for kind, table in state.memory.items()} for node, state in memory.machine.items()
    }
    charged = {uid: _charged(memory, uid) for uid in uids}
    for blocks in _all(charged):
        for block in blocks:
            if block.nodes.bit_count() == 1:
                _take(left, block)
    result: dict[str, dict[str, Split]] = {}
    for uid in uids:
        result[uid] = {name: _split(left, blocks) for name, blocks in charged[uid].items()}
    return result


def _charged(memory: MemoryState, uid: str) -> Mapping[str, Blocks]:
    """The blocks that the tables count: the bubble's where there is one, else the containers'."""
    return {"": memory.pod_entries[uid]} if uid in memory.pod_entries else memory.entries.get(uid, {})


def _all(charged: Mapping[str, Mapping[str, Blocks]]) -> Iterable[Sequence[MemoryBlock]]:
    return (blocks for entries in charged.values() for blocks in entries.values())


def _take(left: Split, block: MemoryBlock) -> None:
    tables = left.get(node_ids(block.nodes)[0])
    if tables is not None:
        tables[block.type] = max(tables.get(block.type, 0) - block.size, 0)


def _split(left: Split, blocks: Blocks) -> Split:
    result: Split = {}
    for block in blocks:
        nodes = node_ids(block.nodes)
        size = block.size
        for node in nodes:
            room = size if len(nodes) == 1 else min(size, left.get(node, {}).get(block.type, 0))
            if not room:
                continue
            if len(nodes) > 1:
                left[node][block.type] -= room
            _add(result, node, block.type, room)
            size -= room
        if size and nodes:  # more than the tables hold: memory that went away; it is shown where the group ends
            _add(result, nodes[-1], block.type, size)
    return result


def cut(left: Split, blocks: Blocks) -> Split:
    """The part of a bubble's bytes that these blocks of one of its containers are; it is taken from `left`."""
    result: Split = {}
    for block in blocks:
        size = block.size
        for node in node_ids(block.nodes):
            part = min(size, left.get(node, {}).get(block.type, 0))
            if part:
                left[node][block.type] -= part
                _add(result, node, block.type, part)
                size -= part
    return result


def _add(split: Split, node: int, kind: str, size: int) -> None:
    tables = split.setdefault(node, {})
    tables[kind] = tables.get(kind, 0) + size
