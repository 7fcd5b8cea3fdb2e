"""Families of NUMA masks as tables over all 2^n sets of nodes: exact for every kind of hint, for up to TABLE_NODES nodes.

A table is one big integer with a byte per set: byte i is 1 if set i belongs to the family. Set i has the k-th lowest node
if bit k of i is set, so sets are in order of their masks' values, with or without gaps in the node ids.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import or_
from typing import TypeAlias

from agent.model.cpuset import bits
from agent.model.numa import NodeMask, node_ids
from agent.policy.hint_family import CapacityHints, Found, Hint, Offer
from agent.policy.numa_distances import NUMADistances, fittest

TABLE_NODES = 8  # 256 sets: microseconds per family and pair; beyond, `agent.policy.node_packing` is faster
MOST_TABLE_NODES = 12  # 4096 sets: some milliseconds, where packing cannot prove its answer

Table: TypeAlias = int


@dataclass(frozen=True, slots=True)
class Universe:
    """The nodes that the sets are made of, ascending."""

    nodes: tuple[int, ...]

    @classmethod
    def of(cls, mask: NodeMask) -> Universe:
        return cls(node_ids(mask))

    @property
    def size(self) -> int:
        """How many sets there are, the empty one included."""
        return 1 << len(self.nodes)

    def number(self, mask: NodeMask) -> int:
        """The set that has the mask's nodes. All of them belong to the universe."""
        if self.nodes[-1:] == (len(self.nodes) - 1,):
            return mask
        return sum(1 << self.nodes.index(node) for node in bits(mask))

    def mask(self, number: int) -> NodeMask:
        """The mask of a set."""
        if self.nodes[-1:] == (len(self.nodes) - 1,):
            return number
        return sum(1 << self.nodes[position] for position in bits(number))


def numbers(table: Table, universe: Universe) -> list[int]:
    """The sets in a table, ascending."""
    return [number for number, inside in enumerate(table.to_bytes(universe.size, "little")) if inside]


def table_of(masks: Iterable[NodeMask], universe: Universe) -> Table:
    """The family of these masks."""
    content = bytearray(universe.size)
    for mask in masks:
        content[universe.number(mask)] = 1
    return int.from_bytes(content, "little")


def hint_table(hints: CapacityHints | Sequence[Hint], universe: Universe) -> Table:
    """All masks that are hints. Hints without a mask are left out."""
    if not isinstance(hints, CapacityHints):
        return table_of((hint.affinity for hint in hints if hint.affinity is not None), universe)
    table = _within(universe, hints.nodes, hints.required)
    for need in hints.needs:
        have = [0]
        for node in universe.nodes:
            amount = need.amounts.get(node, 0)
            have += [so_far + amount for so_far in have]
        least = need.at_least
        table &= int.from_bytes(bytes([total >= least for total in have]), "little")
    return table | table_of(hints.others, universe)


def preferred_sizes(hints: CapacityHints, universe: Universe) -> Table:
    """All sets that would be preferred if they were hints."""
    preferred = of_size(hints.preferred_size, len(universe.nodes))
    if hints.sockets:
        spans = [0]
        for node in universe.nodes:
            sockets = hints.sockets.get(node, 0)
            spans += [so_far | sockets for so_far in spans]
        count = hints.socket_count
        preferred |= int.from_bytes(bytes([spanned.bit_count() == count for spanned in spans]), "little")
    return preferred


def _within(universe: Universe, nodes: NodeMask, required: NodeMask) -> Table:
    """The non-empty sets within `nodes`, which belong to the universe, that contain `required`."""
    inside = b"\1"
    for node in universe.nodes:
        without = bytes(len(inside)) if required >> node & 1 else inside
        inside = without + (inside if nodes >> node & 1 else bytes(len(inside)))
    return 0 if required & ~nodes else int.from_bytes(inside, "little") & ~1


@cache
def sizes(nodes: int) -> bytes:
    """The number of nodes in each set."""
    return bytes(number.bit_count() for number in range(1 << nodes))


@cache
def of_size(size: int, nodes: int) -> Table:
    """All sets of this size."""
    return int.from_bytes(bytes(count == size for count in sizes(nodes)), "little")


def intersections(one: Table, other: Table, universe: Universe) -> Table:
    """Every set that is the intersection of a set of one family with a set of the other.

    Count the pairs whose intersection contains a set: it is the product of how many sets of each family contain it. Undo the
    summing over supersets, and what is left is the number of pairs whose intersection is exactly that set.
    """
    count = len(universe.nodes)
    ways = _supersets(one, universe)
    others = ways if one == other else _supersets(other, universe)
    pairs = int.from_bytes(
        struct.pack(f"<{universe.size}I", *[a * b for a, b in zip(ways, others, strict=True)]), "little"
    )
    for step in range(count):
        pairs -= (pairs >> _lane(step)) & _without(step, count)
    exactly = struct.unpack(f"<{universe.size}I", pairs.to_bytes(4 * universe.size, "little"))
    return int.from_bytes(bytes([ways != 0 for ways in exactly]), "little")


def _supersets(table: Table, universe: Universe) -> tuple[int, ...]:
    """For every set: how many sets of the family contain it."""
    members = table.to_bytes(universe.size, "little")
    lanes = int.from_bytes(struct.pack(f"<{universe.size}I", *members), "little")
    for step in range(len(universe.nodes)):
        lanes += (lanes >> _lane(step)) & _without(step, len(universe.nodes))
    return struct.unpack(f"<{universe.size}I", lanes.to_bytes(4 * universe.size, "little"))


def _lane(step: int) -> int:
    # a set is 32 bits wide here, room for 4096 * 4096 pairs; its superset with node `step` is this far up
    return 32 << step


@cache
def _without(step: int, count: int) -> int:
    """The lanes of the sets without node `step`."""
    lanes = b"".join(bytes(4) if number >> step & 1 else b"\xff" * 4 for number in range(1 << count))
    return int.from_bytes(lanes, "little")


class TableSearch:
    """The best masks that these offers, one at least, have in common.

    default: all nodes of the machine. nodes: all that occur anywhere.
    """

    def __init__(
        self, offers: Sequence[Offer], default: NodeMask, nodes: NodeMask, distances: NUMADistances | None
    ) -> None:
        self._offers, self._default, self._distances = offers, default, distances
        self._universe = Universe.of(nodes)
        self._tables: dict[int, Table] = {}

    def best_preferred(self) -> Found:
        """The best mask that is preferred by every offer at once."""
        preferred = [
            self._members(offer) & preferred_sizes(offer.hints, self._universe)
            if isinstance(offer.hints, CapacityHints)
            else hint_table([hint for hint in offer.hints if hint.preferred], self._universe)
            for offer in self._offers
        ]
        common = reduce(or_, preferred)
        for offer, table in zip(self._offers, preferred, strict=True):
            if not offer.anywhere_preferred:
                common &= table
        return Found(self._fittest(common, 1))

    def best_intersection(self) -> Found:
        """The best mask that is an intersection of one mask of each offer; sized for the offer that needs the most nodes."""
        target = 0
        tables = []
        for offer in self._offers:
            table = self._members(offer)
            target = max(target, narrowest_size(table, self._universe))
            if offer.anywhere:
                table |= 1 << 8 * (self._universe.size - 1)
            tables.append(table)
        common = reduce(lambda one, other: intersections(one, other, self._universe), tables)
        return Found(self._fittest(common, target))

    def _members(self, offer: Offer) -> Table:
        key = id(offer.hints)  # memory and hugepages share one family
        if key not in self._tables:
            self._tables[key] = hint_table(offer.hints, self._universe)
        return self._tables[key]

    def _fittest(self, table: Table, target: int) -> NodeMask | None:
        universe = self._universe
        if self._default.bit_count() < len(universe.nodes):
            masks = {universe.mask(number) & self._default for number in numbers(table, universe)}
            return fittest(masks - {0}, target, self._distances)
        count = len(universe.nodes)
        for size in sorted(range(1, count + 1), key=lambda size: (size > target, abs(size - target))):
            found = table & of_size(size, count)
            if found:
                masks = set(map(universe.mask, numbers(found, universe)))
                return min(masks) if self._distances is None else fittest(masks, size, self._distances)
        return None


def narrowest_size(table: Table, universe: Universe) -> int:
    """The number of nodes in the smallest set of a table; 0 where it has none."""
    count = len(universe.nodes)
    return next((size for size in range(count + 1) if table & of_size(size, count)), 0)


def narrowest(hints: CapacityHints, containing: NodeMask, nodes: NodeMask) -> NodeMask | None:
    """The hint with the fewest nodes, then the lowest value, among those whose mask has all nodes of `containing`."""
    universe = Universe.of(nodes)
    masks = map(universe.mask, numbers(hint_table(hints, universe), universe))
    return fittest((mask for mask in masks if not containing & ~mask), 1, None)
