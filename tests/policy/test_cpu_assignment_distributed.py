"""Distributing CPUs over NUMA nodes: how many nodes, how much from each, and what happens where it does not come out even."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.policy import cpu_balance
from agent.policy.cpu_assignment import PickOptions, take_cpus
from agent.policy.cpu_balance import best_split
from tests.policy.cpu_machines import drawn, regular
from tests.policy.reference_take_cpus import split

SINGLE = PickOptions(distribute_across_numa=True)
CORES = PickOptions(distribute_across_numa=True, cpu_group_size=2)

FOUR_NODES = drawn("0 1 2 3 |; 4 5 6 7 |; 8 9 10 11 |; 12 13 14 15")
THREE_SMT = drawn("0+9 1+10 2+11 |; 3+12 4+13 5+14 |; 6+15 7+16 8+17")
FOUR_SMT = regular(24, sockets=4, numa=4, smt=2)


def taken(topology: CPUTopology, available: str, n: int, options: PickOptions, min_numa_nodes: int = 0) -> str:
    return str(take_cpus(topology, CPUSet.parse(available), n, options, min_numa_nodes=min_numa_nodes))


@pytest.mark.parametrize(
    ("available", "n", "expected"),
    [
        pytest.param("0-15", 0, "", id="nothing asked for"),
        pytest.param("0-15", 4, "0-3", id="one node when it holds them"),
        pytest.param("0-15", 6, "0-2,4-6", id="two nodes, evenly"),
        pytest.param("0-15", 7, "0-6", id="one left over goes to the first"),
        pytest.param("1-15", 4, "4-7", id="a full node: the balance over all nodes is best so"),
        pytest.param("1-15", 7, "4-10", id="left over goes where more is free"),
        pytest.param("0-1,4-5,8-9,12-13", 4, "0-1,4-5", id="more nodes than the machine's size asks for"),
        pytest.param("0-2,4,8-10,12", 6, "0-2,8-10", id="nodes that cannot give an even share are passed over"),
        pytest.param("0-4,8,12", 6, "0-2,4,8,12", id="left over twice to the only node that has it"),
        pytest.param("0-4", 5, "0-4", id="no number of nodes can share evenly: packed"),
    ],
)
def test_distributed(available: str, n: int, expected: str) -> None:
    assert taken(FOUR_NODES, available, n, SINGLE) == expected


@pytest.mark.parametrize(
    ("topology", "available", "n", "expected"),
    [
        pytest.param(THREE_SMT, "0-17", 8, "0-1,3-4,9-10,12-13", id="whole cores, evenly"),
        pytest.param(THREE_SMT, "0-17", 10, "0-4,9-13", id="a core left over"),
        pytest.param(THREE_SMT, "0-17", 7, "0-3,9-11", id="no multiple of a core: packed, as if not asked for"),
        pytest.param(
            THREE_SMT, "1-2,4-5,7-17", 10, "1-2,4-5,7,10-11,13-14,16", id="half reserved cores count for nothing"
        ),
    ],
)
def test_distributed_in_whole_cores(topology: CPUTopology, available: str, n: int, expected: str) -> None:
    assert taken(topology, available, n, CORES) == expected


def test_loose_threads_that_add_up_to_a_group_over_two_nodes_are_no_group() -> None:
    """Four nodes of two free cores and a loose thread each: two such nodes have six CPUs but only four in whole cores."""
    picked = take_cpus(FOUR_SMT, CPUSet(FOUR_SMT.all.mask & ~CPUSet.parse("0,3,6,9").mask), 14, CORES)
    assert len(picked) == 14
    cores = [core for core in FOUR_SMT.core_masks.values() if core & picked.mask]
    assert all(core & ~picked.mask == 0 for core in cores)


def test_spread_order_inside_the_nodes() -> None:
    options = PickOptions(distribute_across_numa=True, spread_cores=True)
    assert taken(THREE_SMT, "0-17", 6, options) == "0-2,9-11"
    assert taken(THREE_SMT, "1-17", 4, options) == "3-5,12"


@pytest.mark.parametrize(
    ("free", "width", "groups", "size", "expected"),
    [
        pytest.param((6,) * 8, 4, 20, 1, (5, 5, 5, 5, 0, 0, 0, 0), id="four of eight equal nodes: the first four"),
        pytest.param((6,) * 8, 6, 32, 1, (6, 6, 5, 5, 5, 5, 0, 0), id="six of them: two left over"),
        pytest.param((6,) * 8, 7, 40, 1, (6, 6, 6, 6, 6, 5, 5, 0), id="seven of them: five left over"),
        pytest.param((4, 5, 10), 3, 8, 1, (2, 2, 4), id="two left over go to the one with most"),
        pytest.param((4, 5, 6), 3, 8, 1, (2, 3, 3), id="or to two"),
        pytest.param((3, 3, 3), 2, 4, 1, (2, 2, 0), id="the first of equals"),
        pytest.param((2, 2, 3), 3, 3, 2, (1, 1, 1), id="groups of two, one CPU stays"),
        pytest.param((2, 2, 3), 3, 4, 2, None, id="three CPUs are one group of two"),
        pytest.param((1, 4, 4), 3, 6, 1, None, id="a node that lacks the even share"),
        pytest.param((4, 4), 3, 6, 1, None, id="more nodes than there are"),
        pytest.param(
            (4, 4, 1, 1, 2, 3, 2), 7, 13, 1, (3, 3, 1, 1, 2, 2, 1), id="six left over to the four that have most"
        ),
        pytest.param((3, 2, 7, 3, 6), 5, 8, 1, (1, 1, 3, 1, 2), id="three left over to two"),
        pytest.param((4, 5, 1, 5, 1, 6), 6, 11, 1, (1, 3, 1, 3, 1, 2), id="by rounds over three of them"),
        pytest.param((404, 901, 2, 403, 3), 4, 6, 1, (1, 3, 1, 1, 0), id="a tie by rounding goes to the first nodes"),
        pytest.param((902, 904, 403), 3, 947, 1, (315, 317, 315), id="two left over to one"),
        pytest.param((903, 906, 902, 402), 4, 7, 2, (1, 3, 2, 1), id="groups of two of many"),
        pytest.param((902, 4, 903, 1), 4, 7, 1, (3, 1, 2, 1), id="a tie by rounding gives the first node more"),
        pytest.param(
            (34, 32, 21, 37, 18, 22), 4, 53, 2, None, id="three nodes that have the share, and three that lack it"
        ),
        pytest.param(
            (2, 4, 1, 4, 1, 1), 5, 4, 2, (1, 2, 0, 1, 0, 0), id="no even share: as many as a node has, in order"
        ),
        pytest.param(
            (0, 11, 3, 6, 5, 9, 6), 7, 5, 4, (0, 2, 0, 1, 0, 1, 1), id="no even share: two to the one with most"
        ),
        pytest.param((6, 9, 6, 9, 6, 6, 9), 4, 15, 2, (3, 4, 0, 4, 0, 0, 4), id="the first of equals that are apart"),
        pytest.param((2, 1), 1, 1, 1, (1, 0), id="one node of two"),
        pytest.param((1, 1, 2), 2, 3, 1, (1, 0, 2), id="the one that can give more is last"),
    ],
)
def test_split(free: Sequence[int], width: int, groups: int, size: int, expected: Sequence[int] | None) -> None:
    assert best_split(free, width, groups, size) == expected


@st.composite
def splits(draw: st.DrawFn, most_nodes: int) -> tuple[list[int], int, int, int]:
    top = draw(st.sampled_from([3, 8, 40, 128, 904]))
    some = (
        st.integers(max(1, top - 4), top) | st.integers(1, 4) if top == 904 else st.integers(1, top)
    )  # ties by rounding
    counts = draw(st.lists(some, min_size=1, max_size=most_nodes))
    if draw(st.booleans()):
        counts.sort()
    size = draw(st.sampled_from([1, 1, 2, 4]))
    groups = draw(st.integers(1, max(1, sum(counts) // size)))
    return counts, draw(st.integers(1, min(len(counts), groups))), groups, size


@given(splits(most_nodes=7))
def test_a_split_is_what_trying_everything_finds(case: tuple[list[int], int, int, int]) -> None:
    counts, width, groups, size = case
    assert best_split(counts, width, groups, size) == split(counts, width, groups, size)


@pytest.mark.long
@given(splits(most_nodes=9))
def test_a_split_over_more_nodes_is_what_trying_everything_finds(case: tuple[list[int], int, int, int]) -> None:
    counts, width, groups, size = case
    assert best_split(counts, width, groups, size) == split(counts, width, groups, size)


@pytest.mark.parametrize("nodes", [12, 16])
def test_a_split_is_exact_beyond_the_kubelets_eight_nodes(nodes: int) -> None:
    counts = [4 + node % 5 for node in range(nodes)]
    for width, groups in ((2, 13), (3, 20), (nodes - 1, 4 * nodes - 1), (nodes, 5 * nodes + 1)):
        assert best_split(counts, width, groups, 1) == split(counts, width, groups, 1)


@given(splits(most_nodes=64))
def test_a_split_over_any_number_of_nodes_adds_up(case: tuple[list[int], int, int, int]) -> None:
    counts, width, groups, size = case
    found = best_split(counts, width, groups, size)
    if found is not None:
        assert sum(found) == groups
        assert sum(given > 0 for given in found) == width
        assert all(given * size <= count for given, count in zip(found, counts, strict=True))
        assert min(given for given in found if given) == groups // width


def test_work_is_bounded_and_what_comes_out_is_still_a_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_balance, "MAX_WORK", 0)
    found = best_split((3, 9, 2, 8, 7, 5), 3, 20, 1)
    assert found is not None
    assert sum(found) == 20
    assert [bool(given) for given in found] == [False, True, False, True, True, False]


@pytest.mark.parametrize("nodes", [16, 34, 64])
@pytest.mark.parametrize("size", [1, 2])
def test_many_free_nodes_are_no_more_work_than_few(nodes: int, size: int) -> None:
    topology = regular(nodes * 8, numa=nodes, smt=2)
    options = PickOptions(distribute_across_numa=True, cpu_group_size=size)
    for n in (2, 10, 8 * nodes // 2 + 2, 8 * nodes - 2):
        assert len(take_cpus(topology, topology.all, n, options)) == n


@pytest.mark.parametrize(
    ("available", "n", "floor", "expected"),
    [
        pytest.param("0-15", 4, 2, "0-1,4-5", id="two nodes though one would do"),
        pytest.param("0-15", 4, 4, "0,4,8,12", id="all four"),
        pytest.param("0-15", 2, 4, "0,4", id="no more nodes than CPUs"),
        pytest.param("0-15", 10, 2, "0-6,8-10", id="a floor below what is needed changes nothing"),
        pytest.param("0,4-15", 12, 4, "4-15", id="not all can share evenly: as many as can"),
        pytest.param("0-7", 4, 4, "0-1,4-5", id="nodes without free CPUs do not count"),
    ],
)
def test_a_floor_for_the_number_of_nodes(available: str, n: int, floor: int, expected: str) -> None:
    assert taken(FOUR_NODES, available, n, SINGLE, min_numa_nodes=floor) == expected


UNEVEN_NODES = drawn("0 1 2 3 4 5 |; 6 7")


def test_it_begins_with_as_many_nodes_as_average_ones_would_need() -> None:
    """Six CPUs are more than the four that an average node has, so the one node that holds them all is not tried alone: two
    nodes cannot give three each, and the CPUs are packed, the smaller node first.
    """
    assert taken(UNEVEN_NODES, "0-7", 4, SINGLE) == "0-3"
    assert taken(UNEVEN_NODES, "0-7", 6, SINGLE) == "0-3,6-7"


def test_an_average_node_is_counted_in_groups() -> None:
    """Eight CPUs in groups of two are four groups, two on an average node: three groups need two nodes."""
    uneven = drawn("0+1 2+3 4+5 |; 6+7")
    assert taken(uneven, "0-7", 6, CORES) == "0-3,6-7"
    assert taken(uneven, "0-7", 4, CORES) == "0-3"


def test_where_no_node_count_from_the_floor_on_works_fewer_are_tried_before_packing() -> None:
    six_and_four = drawn("0 1 2 3 4 5 |; 6 7 8 9")
    assert taken(six_and_four, "0-4,6", 5, SINGLE, min_numa_nodes=2) == "0-4"
    assert taken(six_and_four, "0-4,6", 5, PickOptions()) == "0-3,6"
    four_of_six = regular(24, sockets=4, numa=4)
    assert taken(four_of_six, "0-3,6-9,12,18", 8, SINGLE, min_numa_nodes=4) == "0-3,6-9"  # neither four nor three can
    assert taken(four_of_six, "0-3,6-9,12,18", 8, PickOptions()) == "0-3,6-7,12,18"


def test_a_need_that_is_no_multiple_of_a_group_is_packed_in_the_order_of_the_options() -> None:
    spread = PickOptions(distribute_across_numa=True, cpu_group_size=2, spread_cores=True)
    assert taken(THREE_SMT, "0-17", 3, CORES) == "0-1,9"
    assert taken(THREE_SMT, "0-17", 3, spread) == "0-2"


def test_devices_on_every_node_get_cpus_on_every_node() -> None:
    topology = regular(32, sockets=4, numa=4)
    assert taken(topology, "1-31", 20, SINGLE, min_numa_nodes=4) == "1-5,8-12,16-20,24-28"
    assert taken(topology, "1-31", 20, SINGLE) == "8-14,16-22,24-29"
