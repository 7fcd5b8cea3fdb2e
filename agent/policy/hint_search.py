"""The best mask that several families of hints have in common: by tables on small machines, by packing on large ones.

"Best" is `agent.policy.numa_distances.fittest`. Work on large machines is bounded; a result says whether it is proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.model.numa import NodeMask
from agent.policy import hint_packing, hint_tables
from agent.policy.hint_family import CapacityHints, Found, Offer
from agent.policy.hint_packing import PackingSearch
from agent.policy.hint_tables import MOST_TABLE_NODES, TABLE_NODES, TableSearch, Universe
from agent.policy.node_packing import Budget
from agent.policy.numa_distances import NUMADistances


class CommonMasks(Protocol):
    """What the offers have in common."""

    def best_preferred(self) -> Found:
        """The best mask that is preferred by every offer at once."""

    def best_intersection(self) -> Found:
        """The best mask that is an intersection of one mask of each offer; sized for the offer that needs the most nodes."""


def common_masks(offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> CommonMasks:
    """The search for these offers. default: all nodes of the machine, those of every `CapacityHints` among them."""
    nodes = _every_node(offers, default)
    if nodes.bit_count() <= TABLE_NODES:
        return TableSearch(offers, default, nodes, distances)
    packing = PackingSearch(offers, default, distances)
    if nodes.bit_count() <= MOST_TABLE_NODES:
        return _ProvenSearch(packing, TableSearch(offers, default, nodes, distances))
    return packing


class _ProvenSearch:
    """Packing first; tables where it cannot prove its answer."""

    def __init__(self, packing: CommonMasks, tables: CommonMasks) -> None:
        self._packing, self._tables = packing, tables

    def best_preferred(self) -> Found:
        found = self._packing.best_preferred()
        return found if found.exact else self._tables.best_preferred()

    def best_intersection(self) -> Found:
        found = self._packing.best_intersection()
        return found if found.exact else self._tables.best_intersection()


def narrowest(hints: CapacityHints, containing: NodeMask = 0) -> Found:
    """The hint with the fewest nodes, then the lowest value, among those whose mask has all nodes of `containing`."""
    nodes = _every_node([Offer(hints)], containing)
    if nodes.bit_count() <= TABLE_NODES:
        return Found(hint_tables.narrowest(hints, containing, nodes))
    found = hint_packing.narrowest(hints, containing)
    if not found.exact and nodes.bit_count() <= MOST_TABLE_NODES:
        return Found(hint_tables.narrowest(hints, containing, nodes))
    return found


def narrowest_size(hints: CapacityHints) -> tuple[int, bool]:
    """The number of nodes in the narrowest mask, and whether that is proven; 0 if there is no mask."""
    size, exact = hint_packing.narrowest_size(hints, Budget())
    nodes = _every_node([Offer(hints)], 0)
    if not exact and nodes.bit_count() <= MOST_TABLE_NODES:
        universe = Universe.of(nodes)
        return hint_tables.narrowest_size(hint_tables.hint_table(hints, universe), universe), True
    return size, exact


def _every_node(offers: Sequence[Offer], default: NodeMask) -> NodeMask:
    nodes = default
    for offer in offers:
        if isinstance(offer.hints, CapacityHints):
            nodes |= offer.hints.nodes
        for mask in offer.listed:
            nodes |= mask
    return nodes
