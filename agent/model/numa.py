"""Sets of NUMA nodes as bitmasks (the kubelet's `bitmask.BitMask`): bit n is NUMA node n."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from agent.model.cpuset import bits

NodeMask: TypeAlias = int

# the kernel's largest MAX_NUMNODES (CONFIG_NODES_SHIFT of 10); bounds what a damaged file makes us allocate
MAX_NODES = 1024


def node_mask(nodes: Iterable[int]) -> NodeMask:
    """The mask of these node ids."""
    mask = 0
    for node in nodes:
        mask |= 1 << node
    return mask


def union_of(masks: Iterable[NodeMask]) -> NodeMask:
    """The nodes in any of these masks."""
    nodes = 0
    for mask in masks:
        nodes |= mask
    return nodes


def node_ids(mask: NodeMask) -> tuple[int, ...]:
    """The node ids in a mask, ascending."""
    return tuple(bits(mask))
