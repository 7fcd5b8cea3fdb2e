"""Topology hints as values: explicit ones, and families of NUMA masks that are described instead of listed.

The kubelet lists a hint for each of the 2^n - 1 sets of NUMA nodes that has room (cm/topologymanager, TopologyHint). Room
only grows with the set, so `CapacityHints` says the same in a few numbers per node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from agent.model.cpuset import bits
from agent.model.numa import NodeMask


@dataclass(frozen=True, slots=True)
class Hint:
    """One possible placement. affinity: NUMA nodes, None = any node, 0 = a mask without a node."""

    affinity: NodeMask | None
    preferred: bool


@dataclass(frozen=True, slots=True)
class Need:
    """The nodes of a mask must together have `at_least`. amounts: NUMA id -> what the node has; absent = 0."""

    amounts: Mapping[int, int]
    at_least: int

    def met_by(self, mask: NodeMask) -> bool:
        return sum(self.amounts.get(node, 0) for node in bits(mask)) >= self.at_least


@dataclass(frozen=True, slots=True)
class CapacityHints:
    """A hint for every mask within `nodes` that contains `required` and meets every need, and for the masks in `others`.

    others: masks that are hints although they are not of that form. A hint is preferred if it has `preferred_size` nodes;
    with `sockets` (NUMA id -> bitmask of its sockets; align-by-socket) also if it spans exactly `socket_count` sockets.
    exact: False where the work budget ended before `preferred_size` was proven; it is then a lower bound.
    """

    nodes: NodeMask
    needs: tuple[Need, ...]
    preferred_size: int
    required: NodeMask = 0
    others: tuple[NodeMask, ...] = ()
    sockets: Mapping[int, int] = field(default_factory=dict)
    socket_count: int = 0
    exact: bool = True

    def is_open(self) -> bool:
        """Whether any mask within `nodes` meets the needs: if one does, all nodes together do."""
        return self.nodes != 0 and self.admits_within(self.nodes)

    def admits_within(self, mask: NodeMask) -> bool:
        """Whether the mask is a hint by the rule, `others` aside. `mask` is not empty."""
        return not mask & ~self.nodes and not self.required & ~mask and all(need.met_by(mask) for need in self.needs)

    def admits(self, mask: NodeMask) -> bool:
        """Whether the mask is a hint."""
        return mask != 0 and (mask in self.others or self.admits_within(mask))

    def prefers(self, mask: NodeMask) -> bool:
        """Whether a hint with this mask would be preferred."""
        if mask.bit_count() == self.preferred_size:
            return True
        return bool(self.sockets) and span(self.sockets, mask) == self.socket_count


@dataclass(frozen=True, slots=True)
class Offer:
    """What one resource brings to the merge. hints: those with a mask. anywhere: whether it also has one without a mask."""

    hints: CapacityHints | tuple[Hint, ...] = ()
    anywhere: bool = False
    anywhere_preferred: bool = False

    @property
    def listed(self) -> tuple[NodeMask, ...]:
        """The masks that are listed one by one."""
        if isinstance(self.hints, CapacityHints):
            return self.hints.others
        return tuple(hint.affinity for hint in self.hints if hint.affinity is not None)


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a search. exact: False where the work budget ended before it was proven to be the best, or to be absent."""

    mask: NodeMask | None
    exact: bool = True


# What a provider says of one resource: None = no preference; an empty tuple = no placement is possible.
ResourceHints: TypeAlias = tuple[Hint, ...] | CapacityHints | None
# resource -> hints; None or an empty mapping: the provider says nothing.
ProviderHints: TypeAlias = Mapping[str, ResourceHints] | None


def span(sockets: Mapping[int, int], mask: NodeMask) -> int:
    """How many sockets these NUMA nodes lie in."""
    result = 0
    for node in bits(mask):
        result |= sockets.get(node, 0)
    return result.bit_count()
