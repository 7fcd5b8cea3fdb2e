"""What the managers say of NUMA placement: the rules by example, and everything against plain enumeration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.numa import node_ids
from agent.model.state import MemoryTable, NUMANodeState
from agent.policy.hint_family import CapacityHints, Hint, ResourceHints
from agent.policy.hints import TooManyHintsError, cpu_hints, enumerate_hints, memory_family, memory_hints
from agent.policy.topology_manager import merge
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName
from tests.policy import reference_merge
from tests.policy.hint_machines import (
    GIB,
    cpu_subsets,
    cpus_per_node,
    memory_machines,
    memory_node,
    requests,
    reusable_memory,
    topologies,
)

BEST_EFFORT = TopologyPolicy(TopologyPolicyName.BEST_EFFORT)


def shown(hints: ResourceHints) -> str:
    """Hints on one line: "0 01+" is node 0, and nodes 0 and 1 preferred."""
    return " ".join(
        "".join(map(str, node_ids(hint.affinity or 0))) + "+" * hint.preferred for hint in enumerate_hints(hints)
    )


@pytest.mark.parametrize(
    ("free", "reusable", "n", "expected"),
    [
        pytest.param("0-7", "", 2, "0+ 1+ 01", id="the fewest nodes are preferred"),
        pytest.param("1-3,5-7", "", 4, "01", id="preferred is what could ever do, so nothing is on a busy machine"),
        pytest.param("0-7", "", 6, "01+", id="more than a node has"),
        pytest.param("0-6", "", 8, "", id="more than is free"),
        pytest.param("1-7", "0", 2, "0+ 01", id="every mask has the nodes of reusable CPUs"),
        pytest.param("1-3,5-7", "0,4", 2, "01", id="reusable CPUs on two nodes need both"),
        pytest.param("1", "0", 2, "0+ 01", id="reusable CPUs count"),
    ],
)
def test_cpu_hints(free: str, reusable: str, n: int, expected: str) -> None:
    hints = cpu_hints(cpus_per_node(4, 4), CPUSet.parse(free), CPUSet.parse(reusable), n, align_by_socket=False)
    assert shown(hints) == expected


def test_with_align_by_socket_a_mask_is_preferred_that_spans_as_few_sockets_as_would_do() -> None:
    topology = cpus_per_node(2, 2, 2, 2, sockets=2)
    hints = cpu_hints(topology, CPUSet.parse("1-7"), CPUSet(), 2, align_by_socket=True)
    assert shown(hints) == "1+ 2+ 3+ 01+ 02 03 12 13 23+ 012 013 023 123 0123"


def test_with_align_by_socket_as_many_nodes_as_are_needed_are_preferred_wherever_they_are() -> None:
    topology = cpus_per_node(2, 2, 2, 2, sockets=2)
    hints = cpu_hints(topology, topology.all, CPUSet(), 3, align_by_socket=True)
    assert shown(hints) == "01+ 02+ 03+ 12+ 13+ 23+ 012 013 023 123 0123"


def test_with_align_by_socket_nodes_that_do_not_come_out_even_are_counted_per_socket_as_whole_ones() -> None:
    """Five nodes in three sockets are one node per socket, an integer division in the kubelet: three nodes may span three."""
    topology = cpus_per_node(2, 2, 2, 2, 2, sockets=3)
    hints = cpu_hints(topology, topology.all, CPUSet(), 5, align_by_socket=True)
    assert isinstance(hints, CapacityHints)
    assert hints.prefers(0b00111)
    assert not hints.prefers(0b01111), "four nodes in two sockets"


def test_a_request_that_no_cpus_are_free_for_is_impossible_not_without_preference() -> None:
    assert cpu_hints(cpus_per_node(2, 2), CPUSet(), CPUSet(), 1, align_by_socket=False) == ()


@pytest.mark.parametrize(
    ("machine", "request_gib", "expected"),
    [
        pytest.param([memory_node(0, 4), memory_node(1, 4)], 4, "0+ 1+ 01", id="free nodes, alone or together"),
        pytest.param(
            [memory_node(0, 1, allocatable=4), memory_node(1, 1, allocatable=4)],
            2,
            "01",
            id="preferred is what allocatable memory would do, not free memory",
        ),
        pytest.param(
            [memory_node(0, 4, assignments=1), memory_node(1, 4)], 2, "0+ 1+", id="a node used alone joins no group"
        ),
        pytest.param(
            [
                memory_node(0, 4, assignments=1, group=(0, 1)),
                memory_node(1, 4, assignments=1, group=(0, 1)),
                memory_node(2, 4),
            ],
            2,
            "2+ 01",
            id="a node in a group is used with that group only",
        ),
        pytest.param(
            [memory_node(0, 4, group=(0, 1)), memory_node(1, 4), memory_node(2, 4)],
            2,
            "1+ 2+ 01 02 12 012",
            id="a free node that a stale group names is not used alone",
        ),
        pytest.param(
            [memory_node(0, 4), memory_node(1, 4), memory_node(2, 4, group=(1, 2))],
            2,
            "0+ 1+ 01 02 12 012",
            id="wherever it is among the others",
        ),
        pytest.param(
            [memory_node(0, 4), memory_node(1, 3, allocatable=1)],
            2,
            "0+ 01",
            id="free beyond what is allocatable is none",
        ),
        pytest.param(
            [memory_node(0, 1), memory_node(1, 4, allocatable=1)], 2, "01+", id="nor does it make a node enough"
        ),
        pytest.param(
            [memory_node(0, 4), memory_node(1, 9, allocatable=16, assignments=1)],
            8,
            "1+",
            id="what is allocatable on another node counts for nothing",
        ),
        pytest.param([memory_node(0, 1), memory_node(1, 1)], 3, "", id="nowhere"),
    ],
)
def test_memory_hints(machine: list[NUMANodeState], request_gib: int, expected: str) -> None:
    hints = memory_hints(dict(enumerate(machine)), {"memory": request_gib * GIB}, {})
    assert shown(hints.get("memory", ())) == expected


def test_every_memory_resource_has_the_hints_that_all_of_them_together_allow() -> None:
    machine = {0: memory_node(0, 4, pages=0), 1: memory_node(1, 4, pages=2)}
    hints = memory_hints(machine, {"memory": 2 * GIB, "hugepages-2Mi": GIB}, {})
    assert {resource: shown(family) for resource, family in hints.items()} == {
        "memory": "1+ 01",
        "hugepages-2Mi": "1+ 01",
    }


def test_preferred_is_what_has_room_for_all_memory_resources_together() -> None:
    machine = {node: memory_node(node, 4, pages=2) for node in range(3)}
    request = {"memory": GIB, "hugepages-2Mi": 3 * GIB}
    family = memory_family(machine, request, {})
    assert family is not None
    assert family.exact
    assert shown(family) == "01+ 02+ 12+ 012"


@pytest.mark.parametrize("assignments", [0, 1])
@pytest.mark.parametrize("others", [{}, {"memory": GIB}])
def test_a_node_that_does_not_list_a_page_size_has_none_of_it(others: dict[str, int], assignments: int) -> None:
    without = NUMANodeState(assignments, 0b10, {"memory": MemoryTable(4 * GIB, 0, 4 * GIB, 0, 4 * GIB)})
    request = {**others, "hugepages-2Mi": GIB}
    hints = memory_hints({0: memory_node(0, 4, pages=1), 1: without}, request, {})
    assert shown(hints["hugepages-2Mi"]) == ("0+" if assignments else "0+ 01")


def test_none_of_a_page_size_can_be_had_from_a_node_that_does_not_list_it() -> None:
    without = NUMANodeState(1, 0b1, {"memory": MemoryTable(4 * GIB, 0, 4 * GIB, 0, 4 * GIB)})
    assert shown(memory_hints({0: without}, {"memory": GIB, "hugepages-2Mi": 0}, {})["memory"]) == "0+"


def test_memory_of_finished_init_containers_counts_for_exactly_their_mask() -> None:
    machine = {0: memory_node(0, 1, allocatable=4, assignments=1), 1: memory_node(1, 1, allocatable=4)}
    hints = memory_hints(machine, {"memory": 3 * GIB}, {0b01: {"memory": 2 * GIB}})
    assert shown(hints["memory"]) == "0+"


def test_memory_of_finished_init_containers_counts_on_a_node_that_nobody_holds_too() -> None:
    machine = {0: memory_node(0, 1, allocatable=4), 1: memory_node(1, 1, allocatable=4)}
    hints = memory_hints(machine, {"memory": 3 * GIB}, {0b01: {"memory": 2 * GIB}})
    assert shown(hints["memory"]) == "0+"


def test_memory_to_be_used_again_on_a_node_that_has_gone_is_no_place() -> None:
    machine = {0: memory_node(0, 1), 1: memory_node(1, 1)}
    hints = memory_hints(machine, {"memory": 2 * GIB}, {0b100: {"memory": 4 * GIB}, 0b110: {"memory": 4 * GIB}})
    assert shown(hints["memory"]) == "01+"


def test_memory_to_be_used_again_on_no_node_is_no_place() -> None:
    hints = memory_hints({0: memory_node(0, 1)}, {"memory": 0}, {0: {"memory": GIB}})
    assert [hint.affinity for hint in enumerate_hints(hints["memory"])] == [0b1]


def test_no_memory_hint_at_all_is_no_preference() -> None:
    assert memory_hints({0: memory_node(0, 1)}, {"memory": 2 * GIB}, {}) == {}


def test_the_hints_of_a_large_machine_are_not_listed() -> None:
    topology = cpus_per_node(*[2] * 34)
    hints = cpu_hints(topology, topology.all, CPUSet(), 3, align_by_socket=False)
    with pytest.raises(TooManyHintsError, match="34 NUMA nodes have too many hints to list"):
        enumerate_hints(hints)


def test_those_of_sixteen_nodes_are() -> None:
    topology = cpus_per_node(*[1] * 16)
    hints = cpu_hints(topology, topology.all, CPUSet(), 16, align_by_socket=False)
    assert enumerate_hints(hints) == (Hint((1 << 16) - 1, True),)


def test_a_width_that_cannot_be_proven_is_a_bound_and_said_to_be() -> None:
    """Amounts without a pattern on 64 nodes, tight in three resources at once: no fewer nodes than each of them needs alone."""
    amounts = {f"hugepages-{k}Mi": [node * 7919 * k % 8191 for node in range(64)] for k in (1, 31, 577)}
    machine = {
        node: NUMANodeState(0, 1 << node, {r: MemoryTable(a[node], 0, a[node], 0, a[node]) for r, a in amounts.items()})
        for node in range(64)
    }
    together = memory_family(machine, dict.fromkeys(amounts, 4000 * 32), {})
    alone = [memory_family(machine, {resource: 4000 * 32}, {}) for resource in amounts]
    assert together is not None
    assert not together.exact
    assert together.preferred_size == max(each.preferred_size for each in alone if each is not None)
    assert all(each is not None and each.exact for each in alone)
    assert not merge((1 << 64) - 1, {}, BEST_EFFORT, [dict.fromkeys(amounts, together)]).exact


@pytest.mark.parametrize(
    ("mask", "preferred"),
    [
        pytest.param(0b00011, True, id="two nodes of one socket"),
        pytest.param(0b00101, False, id="two sockets"),
        pytest.param(0b01100, True, id="the other socket"),
        pytest.param(0b11100, True, id="a node in no socket counts for none"),
        pytest.param(0b00111, True, id="as many nodes as are needed"),
        pytest.param(0b10000, False, id="no socket at all"),
    ],
)
def test_a_mask_is_preferred_by_its_nodes_or_by_its_sockets(mask: int, *, preferred: bool) -> None:
    hints = CapacityHints(0b11111, (), 3, sockets={0: 0b1, 1: 0b1, 2: 0b10, 3: 0b10}, socket_count=1)
    assert hints.prefers(mask) is preferred


@given(st.data())
def test_cpu_hints_are_those_of_plain_enumeration(data: st.DataObject) -> None:
    topology = data.draw(topologies(6))
    taken = data.draw(cpu_subsets(topology))
    reusable = data.draw(cpu_subsets(topology)) & taken if data.draw(st.booleans()) else CPUSet()
    n, aligned = data.draw(st.integers(1, topology.num_cpus)), data.draw(st.booleans())
    hints = cpu_hints(topology, topology.all - taken, reusable, n, align_by_socket=aligned)
    expected = reference_merge.cpu_hints(topology, topology.all - taken, reusable, n, aligned)
    assert set(enumerate_hints(hints)) == set(expected)


@given(memory_machines(6), requests(), st.data())
def test_memory_hints_are_those_of_plain_enumeration(
    machine: dict[int, NUMANodeState], request: dict[str, int], data: st.DataObject
) -> None:
    reusable = data.draw(reusable_memory(len(machine)))
    hints = memory_hints(machine, request, reusable)
    listed = {resource: set(enumerate_hints(family)) for resource, family in hints.items()}
    expected = reference_merge.memory_hints(machine, request, reusable)
    assert listed == {resource: set(family) for resource, family in expected.items()}


def test_listing_keeps_explicit_hints_as_they_are() -> None:
    assert enumerate_hints((Hint(None, True), Hint(0b10, False))) == (Hint(None, True), Hint(0b10, False))
    assert enumerate_hints(None) == ()
