"""Which NUMA nodes the memory manager settles on once the hints are merged (kubelet cm/memorymanager/policy_static.go, Allocate)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.numa import NodeMask
from agent.model.state import NUMANodeState
from agent.policy.hint_family import Hint


def best_memory_hint(
    machine: Mapping[int, NUMANodeState],
    request: Mapping[str, int],
    reusable: Mapping[NodeMask, Mapping[str, int]],
    *,
    containing: NodeMask = 0,
) -> Hint | None:
    """The memory manager's own best hint whose mask contains `containing`: preferred first, then fewest nodes, lowest value.

    containing 0: the default hint (upstream getDefaultHint), else the extension of that mask (extendTopologyManagerHint).
    None: no such mask; nothing is requested. The caller words the refusal.
    """
    raise NotImplementedError


def has_free(machine: Mapping[int, NUMANodeState], request: Mapping[str, int], mask: NodeMask) -> bool:
    """Whether these nodes together have every requested resource free, reusable memory aside (isAffinitySatisfyRequest)."""
    raise NotImplementedError


def breaks_groups(machine: Mapping[int, NUMANodeState], mask: NodeMask) -> bool:
    """Whether an allocation on these nodes would mix single-node and multi-node use, or two groups."""
    raise NotImplementedError
