"""Picking CPUs close together: one case for every rule of the packed algorithm, on machines small enough to check by eye."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.policy.cpu_assignment import NotEnoughCPUs, PickOptions, take_cpus
from tests.policy.cpu_machines import drawn, regular

PACKED = PickOptions()
SPREAD = PickOptions(spread_cores=True)
UNCORE = PickOptions(prefer_uncore=True)

ONE_SOCKET = drawn("0+4 1+5 2+6 3+7")
TWO_NODES = drawn("0+4 1+5 |; 2+6 3+7")
NO_SMT = drawn("0 1 2 3 |; 4 5 6 7")
NODES_IN_SOCKETS = drawn("0 1 | 2 3 |; 4 5 | 6 7")
FOUR_NODES = drawn("0 1 2 3 | 4 5 6 7 |; 8 9 10 11 | 12 13 14 15")
SOCKETS_IN_NODES = drawn("0 1 ; 2 3 |; 4 5 ; 6 7")
TWO_CACHES = drawn("0+8 1+9 2+10 3+11 / 4+12 5+13 6+14 7+15")
THREE_CACHES = drawn("0 1 2 3 / 4 5 6 7 / 8 9 10 11")
CACHES_OF_TWO_SIZES = drawn("0 1 2 3 4 5 / 6 7")
SMT4 = drawn("0+1+2+3 4+5+6+7 / 8+9+10+11 12+13+14+15")


def taken(topology: CPUTopology, available: str, n: int, options: PickOptions) -> str:
    return str(take_cpus(topology, CPUSet.parse(available), n, options))


@pytest.mark.parametrize(
    ("topology", "available", "n", "expected"),
    [
        pytest.param(ONE_SOCKET, "0-7", 0, "", id="nothing asked for"),
        pytest.param(ONE_SOCKET, "0-7", 8, "0-7", id="all of it"),
        pytest.param(ONE_SOCKET, "1-7", 2, "1,5", id="a whole core before loose threads"),
        pytest.param(ONE_SOCKET, "1-7", 1, "4", id="a single CPU from the core that is used most"),
        pytest.param(ONE_SOCKET, "0-5,7", 1, "2", id="from a half-used core, though a free one has a lower id"),
        pytest.param(ONE_SOCKET, "0-7", 3, "0-1,4", id="whole cores, then the lowest thread of the next"),
        pytest.param(ONE_SOCKET, "0-2,6-7", 3, "0,2,6", id="the rest from partly used cores, lowest core first"),
        pytest.param(ONE_SOCKET, "0-3", 3, "0-2", id="a thread from each of several half-used cores"),
        pytest.param(TWO_NODES, "0-7", 4, "0-1,4-5", id="a whole NUMA node"),
        pytest.param(TWO_NODES, "1-7", 2, "1,5", id="the fuller node first"),
        pytest.param(TWO_NODES, "1-7", 4, "2-3,6-7", id="a whole node before the fuller one"),
        pytest.param(TWO_NODES, "0-2,4-6", 4, "0-1,4-5", id="the free node whole, the partly used one stays"),
        pytest.param(TWO_NODES, "0-7", 6, "0-2,4-6", id="a whole node and a core of the other"),
        pytest.param(NO_SMT, "1-7", 3, "1-3", id="what is left of the fuller node"),
        pytest.param(NO_SMT, "1-7", 5, "1,4-7", id="a whole node and the fuller one's lowest"),
        pytest.param(NODES_IN_SOCKETS, "0-7", 4, "0-3", id="sockets first where they hold several nodes"),
        pytest.param(NODES_IN_SOCKETS, "1-7", 2, "2-3", id="a whole node of the fuller socket"),
        pytest.param(NODES_IN_SOCKETS, "1-7", 6, "2-7", id="a whole socket, then a whole node"),
        pytest.param(NODES_IN_SOCKETS, "0-2,4-5,7", 1, "2", id="equal sockets by id, in them the fuller node"),
        pytest.param(SOCKETS_IN_NODES, "0-7", 4, "0-3", id="nodes first where they hold several sockets"),
        pytest.param(SOCKETS_IN_NODES, "1-7", 2, "2-3", id="then a whole socket of the fuller node"),
        pytest.param(CACHES_OF_TWO_SIZES, "0-7", 2, "0-1", id="caches play no part unless asked for"),
    ],
)
def test_packed(topology: CPUTopology, available: str, n: int, expected: str) -> None:
    assert taken(topology, available, n, PACKED) == expected


@pytest.mark.parametrize(
    ("topology", "available", "n", "expected"),
    [
        pytest.param(ONE_SOCKET, "0-7", 4, "0-3", id="ascending ids, so one thread of each core"),
        pytest.param(ONE_SOCKET, "1-7", 2, "1-2", id="no whole cores"),
        pytest.param(TWO_NODES, "0-7", 4, "0-1,4-5", id="a whole node is still taken as such"),
        pytest.param(TWO_NODES, "0-7", 3, "0-1,4", id="inside one socket"),
        pytest.param(TWO_NODES, "0-2,4-7", 2, "2,6", id="the fuller socket first"),
        pytest.param(NODES_IN_SOCKETS, "1-2,4-7", 2, "4-5", id="a whole node still comes before single CPUs"),
        pytest.param(NODES_IN_SOCKETS, "1-2,4-7", 1, "1", id="inside a socket the nodes do not matter"),
        pytest.param(FOUR_NODES, "1-3,7-15", 2, "1-2", id="ascending ids, though the socket's other node is fuller"),
    ],
)
def test_spread_over_cores(topology: CPUTopology, available: str, n: int, expected: str) -> None:
    assert taken(topology, available, n, SPREAD) == expected


@pytest.mark.parametrize(
    ("topology", "available", "n", "expected"),
    [
        pytest.param(TWO_CACHES, "1-15", 7, "1-3,8-11", id="an odd count: the cache that has exactly so many"),
        pytest.param(TWO_CACHES, "1-15", 8, "4-7,12-15", id="a whole cache"),
        pytest.param(TWO_CACHES, "1-15", 6, "4-6,12-14", id="even: not from a cache whose first cores are partly used"),
        pytest.param(TWO_CACHES, "1-15", 5, "1-2,8-10", id="odd: a half core counts when it makes the number even out"),
        pytest.param(TWO_CACHES, "0-15", 5, "0-2,8-9", id="odd: the sibling of the last core is left"),
        pytest.param(TWO_CACHES, "0-2,4-5,8-10,12-13", 8, "0-2,4,8-10,12", id="no cache is large enough: whole cores"),
        pytest.param(THREE_CACHES, "1-11", 4, "4-7", id="the whole cache before the fuller one"),
        pytest.param(THREE_CACHES, "1-11", 7, "1-7", id="a whole cache, the rest from the fullest that has it"),
        pytest.param(THREE_CACHES, "0-11", 9, "0-8", id="two whole caches, the rest from the third"),
        pytest.param(THREE_CACHES, "1-3,5-7,9-11", 3, "1-3", id="equal caches by id"),
        pytest.param(THREE_CACHES, "1-3,5-7,9-11", 4, "1-3,5", id="from no cache alone: packed"),
        pytest.param(CACHES_OF_TWO_SIZES, "0-7", 2, "6-7", id="the smallest cache that has it"),
        pytest.param(THREE_CACHES, "0-5,8-11", 2, "4-5", id="the fullest of equal caches that has it"),
        pytest.param(
            drawn("0+1 / 2+3 |; 4+5 6+7 / 8+9 10+11"),
            "0-1,4-10",
            3,
            "8-10",
            id="a cache over two nodes has its turn where its free CPUs are",
        ),
        pytest.param(
            CACHES_OF_TWO_SIZES, "0-7", 3, "0-2", id="less than an average cache: no whole one, however small"
        ),
        pytest.param(
            SMT4, "0-2,8,12-15", 2, "0,8", id="SMT 4, even: not three free threads of a core, cut down to two"
        ),
        pytest.param(SMT4, "1-15", 8, "8-15", id="SMT 4: a whole cache"),
        pytest.param(SMT4, "0-15", 7, "0-6", id="SMT 4: one CPU of a core can be left"),
        pytest.param(SMT4, "0-15", 5, "0-4", id="SMT 4: three cannot, cores and threads as without caches"),
        pytest.param(NODES_IN_SOCKETS, "1-7", 2, "2-3", id="no caches reported: the socket is one"),
    ],
)
def test_uncore_alignment(topology: CPUTopology, available: str, n: int, expected: str) -> None:
    assert taken(topology, available, n, UNCORE) == expected


def test_a_whole_node_is_taken_before_caches_are_looked_at() -> None:
    topology = drawn("0 1 / 2 3 |;/ 4 5 / 6 7")
    assert taken(topology, "1-7", 4, UNCORE) == "4-7"
    assert taken(topology, "1-7", 3, UNCORE) == "1-3"


def test_a_cache_that_spans_nodes_is_taken_once() -> None:
    topology = drawn("0 1 2 3 |; 4 5 6 7")
    shared = drawn("0 1 2 3 |;/ 4 5 6 7")
    assert taken(topology, "1-7", 6, UNCORE) == taken(shared, "1-7", 6, UNCORE) == "1-2,4-7"


def test_a_node_in_two_sockets_is_looked_at_where_its_free_cpus_are() -> None:
    """The middle node lies in both sockets, its free CPUs in the second one: there the node with fewer free CPUs comes first."""
    assert taken(drawn("0 1 | 2 3 ; 4 5 | 6 7"), "0,4-6", 2, PACKED) == "0,6"


def test_too_few_cpus_are_refused_in_the_kubelets_words() -> None:
    with pytest.raises(NotEnoughCPUs) as refusal:
        taken(ONE_SOCKET, "1-3", 4, PACKED)
    assert str(refusal.value) == "not enough cpus available to satisfy request: requested=4, available=3"
    assert refusal.value.exit_status == 1
    assert refusal.value.hint


def test_cpus_that_the_machine_does_not_have_are_not_available() -> None:
    assert taken(ONE_SOCKET, "6-9", 2, PACKED) == "6-7"
    with pytest.raises(NotEnoughCPUs, match="requested=3, available=2"):
        taken(ONE_SOCKET, "6-9", 3, PACKED)


HYBRID = drawn("0+1 2+3 4 5 6 7 8 9")
OFFLINE_THREAD = drawn("0+4 1+5 2+6 3")
UNEVEN_SOCKETS = drawn("0+8 1+9 |; 2+10 3+11 4+12 5+13")


@pytest.mark.parametrize(
    ("topology", "available", "n", "expected"),
    [
        pytest.param(HYBRID, "1-9", 2, "4-5", id="hybrid: a half used core is not a whole one"),
        pytest.param(HYBRID, "1-9", 8, "2-9", id="hybrid: small cores, then the free large one"),
        pytest.param(HYBRID, "1-9", 9, "1-9", id="hybrid: the free thread of the used core comes last"),
        pytest.param(HYBRID, "0-3", 3, "0-2", id="hybrid: a whole large core counts as whole"),
        pytest.param(OFFLINE_THREAD, "1-3,5-6", 3, "1,3,5", id="offline sibling: a core of one thread is whole"),
        pytest.param(OFFLINE_THREAD, "2-6", 3, "2-3,6", id="offline sibling: no half used core"),
        pytest.param(
            UNEVEN_SOCKETS, "0-3,8-11", 4, "0-1,8-9", id="uneven sockets: the small one is whole by its own size"
        ),
        pytest.param(
            UNEVEN_SOCKETS, "1-5,8-13", 8, "2-5,10-13", id="uneven sockets: the large one is whole by its own"
        ),
    ],
)
def test_uneven_machines_are_judged_by_their_real_siblings(
    topology: CPUTopology, available: str, n: int, expected: str
) -> None:
    assert taken(topology, available, n, PACKED) == expected


def test_a_large_machine_needs_no_drawing() -> None:
    topology = regular(512, sockets=2, numa=8, smt=2, cache_cores=8)
    assert taken(topology, "1-255,257-511", 8, PACKED) == "1-4,257-260"
    assert taken(topology, "1-255,257-511", 16, UNCORE) == "8-15,264-271"
    assert taken(topology, "1-255,257-511", 64, PACKED) == "32-63,288-319"
