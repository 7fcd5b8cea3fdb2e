"""What the CPU and memory managers say of NUMA placement (kubelet cm/cpumanager and cm/memorymanager, policy_static.go).

How they say it is `agent.policy.hint_family`; what becomes of it is `agent.policy.topology_manager`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet, bits
from agent.model.machine import CPUTopology
from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.state import NUMANodeState
from agent.policy.hint_family import CapacityHints, Hint, Need, ResourceHints
from agent.policy.hint_narrowest import least_size
from agent.policy.hint_search import narrowest_size
from agent.policy.hint_tables import Universe, hint_table, numbers, preferred_sizes

MOST_LISTED_NODES = 16  # 65535 hints


class TooManyHintsError(BadInputError):
    """The hints of this machine cannot be listed."""

    hint = "merge them instead; the result needs no list"

    def __init__(self, nodes: NodeMask) -> None:
        super().__init__(
            f"{nodes.bit_count()} NUMA nodes have too many hints to list: at most {MOST_LISTED_NODES} can be"
        )


def cpu_hints(
    topology: CPUTopology, available: CPUSet, reusable: CPUSet, n: int, *, align_by_socket: bool
) -> ResourceHints:
    """Where `n` exclusive CPUs can come from. An empty tuple: nowhere.

    available: free CPUs that may be given. reusable: CPUs of the pod's finished init containers; every mask has to contain
    all their nodes. Preferred is the smallest number of nodes that could ever do, with all their CPUs free.
    """
    nodes = topology.numa_masks
    free = {
        node: (available.mask & cpus).bit_count() + (reusable.mask & cpus).bit_count() for node, cpus in nodes.items()
    }
    smallest = _fewest({node: cpus.bit_count() for node, cpus in nodes.items()}, n)
    sockets: dict[int, int] = {}
    socket_count = 0
    per_socket = len(nodes) // len(topology.socket_masks) if topology.socket_masks else 0
    if align_by_socket and per_socket:
        sockets = {
            node: sum(1 << rank for rank, cpus in enumerate(topology.socket_masks.values()) if cpus & mask)
            for node, mask in nodes.items()
        }
        socket_count = -(-smallest // per_socket)
    hints = CapacityHints(
        nodes=node_mask(nodes),
        needs=(Need(free, n),),
        preferred_size=smallest,
        required=node_mask(node for node, cpus in nodes.items() if cpus & reusable.mask),
        sockets=sockets,
        socket_count=socket_count,
    )
    return hints if hints.is_open() else ()


def _fewest(amounts: Mapping[int, int], n: int) -> int:
    """How many nodes are needed for n if the largest come first; all of them where even they do not suffice."""
    total = 0
    for count, amount in enumerate(sorted(amounts.values(), reverse=True), 1):
        total += amount
        if total >= n:
            return count
    return len(amounts)


def memory_hints(
    machine: Mapping[int, NUMANodeState], request: Mapping[str, int], reusable: Mapping[NodeMask, Mapping[str, int]]
) -> dict[str, ResourceHints]:
    """Where the requested memory can come from: resource -> hints, the same for each. Empty: nowhere, which is no preference.

    request: resource -> bytes. reusable: bytes of finished init containers, for exactly this mask. A node is used either by
    itself or in one group of nodes, never both. Preferred is the smallest number of nodes whose allocatable memory would do.
    """
    family = memory_family(machine, request, reusable)
    return {} if family is None else dict.fromkeys(request, family)


def memory_family(
    machine: Mapping[int, NUMANodeState], request: Mapping[str, int], reusable: Mapping[NodeMask, Mapping[str, int]]
) -> CapacityHints | None:
    """The masks that have the requested memory, all resources of it at once; None where no mask has."""
    table = _MemoryTable(machine, request, reusable)
    loose = node_mask(node for node, state in machine.items() if state.assignments == 0)
    needs = table.needs(loose)
    others = {state.cells for state in machine.values() if state.assignments > 0} | set(reusable) - {0}
    if any(machine[node].cells.bit_count() > 1 for node in node_ids(loose)):
        # free, yet still in a group: such a node takes part in groups only, so that each of the others is looked at by itself
        needs += (Need(dict.fromkeys(node_ids(loose), 1), 2),)
        others |= {1 << node for node in node_ids(loose)}
    smallest, exact = table.fewest_nodes()
    by_rule = CapacityHints(loose, needs, smallest, exact=exact)
    members = tuple(mask for mask in sorted(others) if table.fits(mask) and not by_rule.admits(mask))
    return replace(by_rule, others=members) if members or by_rule.is_open() else None


class _MemoryTable:
    """A memory request held against the nodes."""

    def __init__(
        self,
        machine: Mapping[int, NUMANodeState],
        request: Mapping[str, int],
        reusable: Mapping[NodeMask, Mapping[str, int]],
    ) -> None:
        self._machine, self._request, self._reusable = machine, request, reusable
        self._free = {
            resource: {node: state.memory[resource].free for node, state in machine.items() if resource in state.memory}
            for resource in request
        }
        self._allocatable = {
            resource: {
                node: state.memory[resource].allocatable for node, state in machine.items() if resource in state.memory
            }
            for resource in request
        }

    def needs(self, nodes: NodeMask) -> tuple[Need, ...]:
        needs = []
        for resource, size in self._request.items():
            free, allocatable = self._free[resource], self._allocatable[resource]
            needs.append(Need(free, size))
            if any(free.get(node, 0) > allocatable.get(node, 0) for node in node_ids(nodes)):
                needs.append(Need(allocatable, size))
        return tuple(needs)

    def fewest_nodes(self) -> tuple[int, bool]:
        """The smallest number of nodes with enough allocatable memory, and whether that is proven."""
        needs = tuple(Need(self._allocatable[resource], size) for resource, size in self._request.items())
        if len(needs) == 1:
            return _fewest({node: needs[0].amounts.get(node, 0) for node in self._machine}, needs[0].at_least), True
        family = CapacityHints(node_mask(self._machine), needs, 0)
        size, exact = narrowest_size(family)
        # nothing has fewer nodes than the bound: no hint is called preferred wrongly
        return (size, True) if exact else (least_size(family), False)

    def fits(self, mask: NodeMask) -> bool:
        """Whether a mask is a hint, by the rules one after the other."""
        nodes = node_ids(mask)
        if any(node not in self._machine for node in nodes):
            return False
        if len(nodes) == 1:
            if self._machine[nodes[0]].cells.bit_count() > 1:
                return False
        elif breaks_groups(self._machine, mask):
            return False
        spare = self._reusable.get(mask, {})
        return all(
            sum(self._allocatable[resource].get(node, 0) for node in nodes) >= size
            and sum(self._free[resource].get(node, 0) for node in nodes) + spare.get(resource, 0) >= size
            for resource, size in self._request.items()
        )


def breaks_groups(machine: Mapping[int, NUMANodeState], mask: NodeMask) -> bool:
    """Whether an allocation on these nodes would mix single-node and multi-node use of a node, or two groups."""
    if mask.bit_count() == 1:
        return False
    return any(machine[node].assignments > 0 and machine[node].cells != mask for node in bits(mask) if node in machine)


def enumerate_hints(hints: ResourceHints) -> tuple[Hint, ...]:
    """Every hint, listed in the kubelet's order: few nodes first, then by their ids.

    The list doubles with every NUMA node: for replay, explain and tests. Raises TooManyHintsError for large machines.
    """
    if not isinstance(hints, CapacityHints):
        return hints or ()
    nodes = hints.nodes
    for mask in hints.others:
        nodes |= mask
    if nodes.bit_count() > MOST_LISTED_NODES:
        raise TooManyHintsError(nodes)
    universe = Universe.of(nodes)
    preferred = preferred_sizes(hints, universe).to_bytes(universe.size, "little")
    listed = [
        Hint(universe.mask(number), bool(preferred[number]))
        for number in numbers(hint_table(hints, universe), universe)
    ]
    return tuple(sorted(listed, key=_listing_order))


def _listing_order(hint: Hint) -> tuple[int, tuple[int, ...]]:
    nodes = node_ids(hint.affinity or 0)
    return len(nodes), nodes
