"""Which NUMA nodes the memory manager settles on once hints are merged (kubelet cm/memorymanager/policy_static.go)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.cpuset import bits
from agent.model.numa import NodeMask
from agent.model.state import NUMANodeState
from agent.policy.hint_family import Hint
from agent.policy.hint_search import narrowest
from agent.policy.hints import breaks_groups, memory_family

__all__ = ["best_memory_hint", "breaks_groups", "has_free"]


def best_memory_hint(
    machine: Mapping[int, NUMANodeState],
    request: Mapping[str, int],
    reusable: Mapping[NodeMask, Mapping[str, int]],
    *,
    containing: NodeMask = 0,
) -> Hint | None:
    """The memory manager's own best hint whose mask contains `containing`: preferred first, then fewest nodes, lowest value.

    Preferred hints have the fewest nodes of all, so this is the narrowest mask. containing 0: the default hint (upstream
    getDefaultHint), else the extension of that mask (extendTopologyManagerHint). None: there is no such mask, or nothing is
    requested; the caller words the refusal.
    """
    family = memory_family(machine, request, reusable) if request else None
    if family is None:
        return None
    found = narrowest(family, containing)
    return None if found.mask is None else Hint(found.mask, family.prefers(found.mask))


def has_free(machine: Mapping[int, NUMANodeState], request: Mapping[str, int], mask: NodeMask) -> bool:
    """Whether these nodes together have every requested resource free, reusable memory aside (isAffinitySatisfyRequest)."""
    states = [machine[node] for node in bits(mask) if node in machine]
    return all(
        sum(state.memory[resource].free for state in states if resource in state.memory) >= size
        for resource, size in request.items()
    )
