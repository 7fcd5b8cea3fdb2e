"""The best mask that several families of hints have in common: by tables on small machines, by packing on large ones.

"Best" is `agent.policy.numa_distances.fittest`. Work on large machines is bounded; a result says whether it is proven.
"""

from __future__ import annotations

from collections.abc import Sequence

from agent.model.numa import NodeMask
from agent.policy import hint_narrowest, hint_tables
from agent.policy.hint_family import CapacityHints, Found, Offer
from agent.policy.hint_intersections import best_intersection
from agent.policy.hint_preferred import best_preferred
from agent.policy.hint_tables import MOST_TABLE_NODES, TABLE_NODES, TableSearch, Universe
from agent.policy.node_packing import Budget
from agent.policy.numa_distances import NUMADistances

MOST_LISTED = 64  # masks that a provider lists one by one; with more, tables cost less than packing


class CommonMasks:
    """The best masks that these offers have in common. default: all nodes of the machine, those of every family included."""

    def __init__(self, offers: Sequence[Offer], default: NodeMask, distances: NUMADistances | None) -> None:
        self._offers, self._default, self._distances = offers, default, distances
        nodes = _every_node(offers, default)
        long_lists = any(len(offer.listed) > MOST_LISTED for offer in offers)
        self._tables_first = long_lists or nodes.bit_count() <= TABLE_NODES
        fits = nodes.bit_count() <= MOST_TABLE_NODES
        self._tables = TableSearch(offers, default, nodes, distances) if fits else None

    def best_preferred(self) -> Found:
        """The best mask that is preferred by every offer at once."""
        if self._tables is not None and self._tables_first:
            return self._tables.best_preferred()
        found = best_preferred(self._offers, self._default, self._distances)
        return found if found.exact or self._tables is None else self._tables.best_preferred()

    def best_intersection(self) -> Found:
        """The best mask that is an intersection of one mask of each offer; sized for the offer that needs the most nodes."""
        if self._tables is not None and self._tables_first:
            return self._tables.best_intersection()
        found = best_intersection(self._offers, self._default, self._distances)
        return found if found.exact or self._tables is None else self._tables.best_intersection()


def narrowest(hints: CapacityHints, containing: NodeMask) -> Found:
    """The hint with the fewest nodes, then the lowest value, among those whose mask has all nodes of `containing`."""
    nodes = _every_node([Offer(hints)], containing)
    if nodes.bit_count() <= TABLE_NODES:
        return Found(hint_tables.narrowest(hints, containing, nodes))
    found = hint_narrowest.narrowest(hints, containing)
    if not found.exact and nodes.bit_count() <= MOST_TABLE_NODES:
        return Found(hint_tables.narrowest(hints, containing, nodes))
    return found


def narrowest_size(hints: CapacityHints) -> tuple[int, bool]:
    """The number of nodes in the narrowest mask, and whether that is proven; 0 if there is no mask."""
    size, exact = hint_narrowest.narrowest_size(hints, Budget())
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
