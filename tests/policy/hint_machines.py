"""Machines, families of hints and distances for tests of hints and merge: by hand, and as strategies."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology, RawCPU, discover
from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.state import MemoryTable, NUMANodeState
from agent.policy.hint_family import CapacityHints, Hint, Need, Offer

GIB = 1 << 30
Rows = dict[int, tuple[int, ...]]


def cpus_per_node(*counts: int, sockets: int = 1) -> CPUTopology:
    """A machine with so many single-thread CPUs in NUMA node 0, 1, ...; the nodes are shared out evenly over the sockets."""
    cpus: list[RawCPU] = []
    for node, count in enumerate(counts):
        for _ in range(count):
            cpus.append(RawCPU(len(cpus), len(cpus), node * sockets // len(counts), node))
    return discover(cpus)


def memory_node(
    node: int,
    free: int,
    *,
    allocatable: int | None = None,
    assignments: int = 0,
    group: tuple[int, ...] = (),
    pages: int = 0,
) -> NUMANodeState:
    """A NUMA node with `free` GiB of memory and `pages` GiB of 2 MiB pages free. group: the nodes of its cells, else itself."""
    most = free if allocatable is None else allocatable
    return NUMANodeState(
        assignments,
        node_mask(group or (node,)),
        {
            "memory": MemoryTable(most * GIB, 0, most * GIB, (most - free) * GIB, free * GIB),
            "hugepages-2Mi": MemoryTable(pages * GIB, 0, pages * GIB, 0, pages * GIB),
        },
    )


def flat_distances(nodes: int) -> Rows:
    """Every other node is equally far."""
    return {one: tuple(10 if one == other else 20 for other in range(nodes)) for one in range(nodes)}


def socket_distances(nodes: int, sockets: int) -> Rows:
    """Near within a socket, far between sockets."""

    def distance(one: int, other: int) -> int:
        if one == other:
            return 10
        return 12 if one * sockets // nodes == other * sockets // nodes else 32

    return {one: tuple(distance(one, other) for other in range(nodes)) for one in range(nodes)}


def distances(nodes: int) -> st.SearchStrategy[Rows]:
    """Flat, by sockets, or any."""
    anything = st.lists(
        st.lists(st.sampled_from([11, 12, 16, 20, 32]), min_size=nodes, max_size=nodes), min_size=nodes, max_size=nodes
    ).map(lambda rows: {node: (*row[:node], 10, *row[node + 1 :]) for node, row in enumerate(rows)})
    sockets = st.sampled_from([1, 2, 4]).map(lambda count: socket_distances(nodes, count))
    return st.one_of(st.just(flat_distances(nodes)), sockets, anything)


@st.composite
def topologies(draw: st.DrawFn, most_nodes: int, least_nodes: int = 1) -> CPUTopology:
    """Up to `most_nodes` NUMA nodes with one to six CPUs each, in one or more sockets."""
    counts = draw(st.lists(st.integers(1, 6), min_size=least_nodes, max_size=most_nodes))
    return cpus_per_node(*counts, sockets=draw(st.integers(1, len(counts))))


@st.composite
def cpu_subsets(draw: st.DrawFn, topology: CPUTopology) -> CPUSet:
    """Any of the machine's CPUs."""
    return CPUSet(draw(st.integers(0, topology.all.mask)) & topology.all.mask)


@st.composite
def memory_machines(draw: st.DrawFn, most_nodes: int, least_nodes: int = 1) -> dict[int, NUMANodeState]:
    """NUMA nodes with unequal memory: all free, or held by themselves or in groups, some stale or contradictory."""
    count, calm = draw(st.integers(least_nodes, most_nodes)), draw(st.booleans())
    machine = {}
    for node in range(count):
        allocatable, pages = draw(st.integers(0, 8)), draw(st.integers(0, 2))
        others = draw(st.sets(st.integers(0, count - 1), max_size=3)) if not calm and draw(st.booleans()) else set()
        machine[node] = memory_node(
            node,
            draw(st.integers(0, allocatable)),
            allocatable=allocatable,
            assignments=0 if calm else draw(st.sampled_from([0, 0, 1, 2])),
            group=tuple(sorted({node, *others})),
            pages=pages,
        )
    return machine


@st.composite
def requests(draw: st.DrawFn) -> dict[str, int]:
    """Memory, pages, or both; sometimes of no size."""
    memory, pages = draw(st.integers(0, 16)) * GIB, draw(st.integers(0, 4)) * GIB
    return draw(
        st.sampled_from([{"memory": memory}, {"memory": memory, "hugepages-2Mi": pages}, {"hugepages-2Mi": pages}])
    )


@st.composite
def reusable_memory(draw: st.DrawFn, nodes: int) -> dict[NodeMask, dict[str, int]]:
    """What finished init containers leave, for a few masks."""
    masks = draw(st.sets(st.integers(1, (1 << nodes) - 1), max_size=2))
    return {mask: {"memory": draw(st.integers(0, 8)) * GIB, "hugepages-2Mi": GIB} for mask in masks}


@st.composite
def families(draw: st.DrawFn, nodes: int, *, sockets: bool = False) -> CapacityHints:
    """Any family on this many nodes that has a mask: several needs, required nodes, listed masks, align-by-socket."""
    within = draw(st.integers(1, (1 << nodes) - 1))
    needs = []
    for _ in range(draw(st.integers(0, 3))):
        amounts = dict(enumerate(draw(st.lists(st.sampled_from([0, 1, 2, 3, 7]), min_size=nodes, max_size=nodes))))
        needs.append(Need(amounts, draw(st.integers(0, sum(amounts[node] for node in node_ids(within))))))
    required = draw(st.sampled_from([0, 0, 0, within & -within]))
    rule = CapacityHints(within, tuple(needs), draw(st.integers(1, nodes)), required)
    masks = draw(st.sets(st.integers(1, (1 << nodes) - 1), max_size=3))
    aligned: Mapping[int, int] = {}
    if sockets and draw(st.booleans()):
        per_socket = draw(st.integers(1, 3))
        aligned = {node: 1 << node // per_socket for node in range(nodes)}
    return CapacityHints(
        rule.nodes,
        rule.needs,
        rule.preferred_size,
        rule.required,
        tuple(sorted(mask for mask in masks if not rule.admits(mask))),
        aligned,
        draw(st.integers(1, 3)) if aligned else 0,
    )


def listed_hints(nodes: int) -> st.SearchStrategy[tuple[Hint, ...]]:
    """Hints one by one, as for devices: any masks, none, and any node."""
    masks = st.one_of(st.none(), st.integers(0, (1 << nodes) - 1))
    return st.lists(st.builds(Hint, masks, st.booleans()), max_size=4).map(tuple)


@st.composite
def offers(draw: st.DrawFn, nodes: int) -> list[Offer]:
    """One to three resources that name masks; memory and hugepages share a family."""
    result = [Offer(draw(families(nodes, sockets=True)))]
    if draw(st.booleans()):
        result += [Offer(draw(families(nodes)))] * draw(st.integers(1, 2))
    if draw(st.booleans()):
        hints = draw(listed_hints(nodes))
        masks = tuple(hint for hint in hints if hint.affinity is not None)
        if masks:
            nowhere = [hint for hint in hints if hint.affinity is None]
            result.insert(0, Offer(masks, bool(nowhere), any(hint.preferred for hint in nowhere)))
    return result
