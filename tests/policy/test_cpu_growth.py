"""Exclusive sets that grow round what they hold, and shrink back towards what they began with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.cpu_growth import grow, shrink
from agent.policy.cpu_options import StaticOptions
from agent.policy.cpu_static import CPUManager, allocate, reserve
from agent.policy.refusal import SMTAlignmentError
from tests.policy.cpu_machines import drawn, regular

TWO_NODES = drawn("0 1 2 3 |; 4 5 6 7")
FOUR_NODES = drawn("0 1 2 3 | 4 5 6 7 |; 8 9 10 11 | 12 13 14 15")
SMT = drawn("0+8 1+9 2+10 3+11 |; 4+12 5+13 6+14 7+15")
CACHES = drawn("0 1 2 3 / 4 5 6 7 / 8 9 10 11")
PLAIN = StaticOptions()
WHOLE = StaticOptions(full_pcpus_only=True)
OVER_NUMA = StaticOptions(distribute_across_numa=True)
OVER_CORES = StaticOptions(distribute_across_cores=True)
UNCORE = StaticOptions(prefer_uncore=True)


def manager(topology: CPUTopology, options: StaticOptions, reserved: str = "0") -> CPUManager:
    explicit = CPUSet.parse(reserved)
    return reserve(topology, options, explicit, len(explicit))


@pytest.mark.parametrize(
    ("topology", "options", "free", "held", "count", "affinity", "expected"),
    [
        pytest.param(TWO_NODES, PLAIN, "3-7", "1-2", 0, None, "1-2", id="by nothing"),
        pytest.param(TWO_NODES, PLAIN, "0,3-7", "1-2", 1, None, "1-3", id="in its node; a reserved CPU is never taken"),
        pytest.param(TWO_NODES, PLAIN, "3-7", "1-2", 3, None, "1-5", id="beyond its node once that is full"),
        pytest.param(TWO_NODES, PLAIN, "3-7", "1-2", 1, 0b10, "1-2,4", id="the hint's node first"),
        pytest.param(TWO_NODES, PLAIN, "3-7", "1-2", 5, 0b10, "1-7", id="then everywhere"),
        pytest.param(TWO_NODES, PLAIN, "1-7", "1-2", 1, None, "1-3", id="what it holds is not free, whatever is said"),
        pytest.param(
            FOUR_NODES, PLAIN, "4-15", "1-3", 2, None, "1-5", id="the other node of its socket, then other sockets"
        ),
        pytest.param(FOUR_NODES, PLAIN, "7-15", "1-3", 2, None, "1-3,7-8", id="there as far as it goes"),
        pytest.param(FOUR_NODES, PLAIN, "2-3,8-15", "1,4-7", 4, None, "1-9", id="as admission would, where that fits"),
        pytest.param(SMT, PLAIN, "2-3,9-11", "1", 1, None, "1,9", id="the half of its own core first"),
        pytest.param(SMT, PLAIN, "2-3,10-11", "1", 1, None, "1-2", id="else another core of its node"),
        pytest.param(SMT, OVER_CORES, "2-3,9-11", "1", 1, None, "1-2", id="spread over cores: a core of its own"),
        pytest.param(SMT, OVER_CORES, "9,4,12", "1", 1, None, "1,9", id="unless admission would have used its own"),
        pytest.param(SMT, OVER_CORES, "9", "1", 1, None, "1,9", id="its own core only if there is no other"),
        pytest.param(SMT, WHOLE, "2,3,10-11", "1,9", 2, None, "1-2,9-10", id="whole cores"),
        pytest.param(SMT, WHOLE, "2,4-7,12-15", "1,9", 2, None, "1,4,9,12", id="not what is left of one"),
        pytest.param(
            CACHES, UNCORE, "3,5-7,8-11", "1-2,4", 2, None, "1-2,4-6", id="the caches it lies in, one that has it all"
        ),
        pytest.param(CACHES, UNCORE, "8-11", "1-2", 2, None, "1-2,8-9", id="then other ones"),
        pytest.param(
            TWO_NODES, OVER_NUMA, "2-3,6-7", "1,5", 2, 0b11, "1-2,5-6", id="spread over nodes: evenly on both"
        ),
        pytest.param(
            TWO_NODES, OVER_NUMA, "1-2,5-6", "3,7", 2, None, "1,3,5,7", id="as many per node as admission would"
        ),
        pytest.param(TWO_NODES, OVER_NUMA, "2-3,5-7", "1,4", 3, None, "1-2,4-6", id="an odd one where more is free"),
        pytest.param(
            TWO_NODES, OVER_NUMA, "2,4,6", "1,3", 2, None, "1,3-4,6", id="all on one node where the other has its share"
        ),
        pytest.param(
            TWO_NODES, OVER_CORES, "1,5", "3,7", 1, 0b10, "3,5,7", id="the hint's node before the other it is on"
        ),
        pytest.param(TWO_NODES, PLAIN, "2-3,5", "6", 2, 0b11, "2,5-6", id="its own node although another has them all"),
        pytest.param(TWO_NODES, PLAIN, "2,6", "1,3-4", 1, None, "1-4", id="the lowest where it is on every node"),
        pytest.param(
            CACHES, UNCORE, "2,5-6", "1,10-11", 2, None, "1-2,5,10-11", id="a cache it lies in before an emptier"
        ),
    ],
)
def test_a_set_grows_in_its_surroundings(
    topology: CPUTopology,
    options: StaticOptions,
    free: str,
    held: str,
    count: int,
    affinity: int | None,
    expected: str,
) -> None:
    grown = grow(manager(topology, options), CPUSet.parse(free), CPUSet.parse(held), count, affinity)
    assert str(grown) == expected


def test_more_than_is_free_is_refused_and_reserved_and_held_cpus_are_not() -> None:
    with pytest.raises(NotEnoughCPUs, match="requested=2, available=1"):
        grow(manager(TWO_NODES, PLAIN), CPUSet.parse("0-3"), CPUSet.parse("1-2"), 2, None)
    with pytest.raises(NotEnoughCPUs, match="requested=4, available=2"):
        grow(manager(SMT, WHOLE), CPUSet.parse("2-4,10"), CPUSet.parse("1,9"), 4, None)


def test_cpu_0_is_near_what_is_held_only_where_it_is() -> None:
    grown = grow(manager(TWO_NODES, PLAIN, reserved="4"), CPUSet.parse("0,2,6"), CPUSet.parse("7"), 1, None)
    assert str(grown) == "6-7"


def test_with_full_pcpus_only_a_set_does_not_grow_to_a_part_of_a_core() -> None:
    with pytest.raises(SMTAlignmentError, match="requested 3 cpus"):
        grow(manager(SMT, WHOLE), CPUSet.parse("2-3,10-11"), CPUSet.parse("1,9"), 1, None)


@pytest.mark.parametrize(
    ("options", "held", "first", "total", "expected"),
    [
        pytest.param(PLAIN, "1-3,9", "1", 4, "1-3,9", id="to what it holds"),
        pytest.param(PLAIN, "1-3,9", "1", 9, "1-3,9", id="never larger"),
        pytest.param(PLAIN, "1-3,9", "1", 2, "1,9", id="back to the first set's own core"),
        pytest.param(PLAIN, "1-3,9", "1", 3, "1-2,9", id="then to its node"),
        pytest.param(PLAIN, "1-2,4,9", "1-2", 2, "1-2", id="to the first set"),
        pytest.param(PLAIN, "1-2,4,9", "1-2", 1, "1-2", id="never below it"),
        pytest.param(PLAIN, "1,4,9", "1-2", 2, "1,9", id="a CPU of the first set that has gone does not count"),
        pytest.param(WHOLE, "1-2,4,9-10,12", "1,9", 4, "1-2,9-10", id="by whole cores"),
        pytest.param(PLAIN, "1,4,6", "4", 2, "4,6", id="what lies elsewhere goes first"),
    ],
)
def test_a_set_shrinks_to_what_its_beginning_would_have_grown_to(
    options: StaticOptions, held: str, first: str, total: int, expected: str
) -> None:
    assert str(shrink(manager(SMT, options), CPUSet.parse(held), CPUSet.parse(first), total)) == expected


MACHINES = (TWO_NODES, FOUR_NODES, SMT, CACHES, regular(32, sockets=2, numa=4, smt=2, cache_cores=4))


@given(st.sampled_from(MACHINES), st.sampled_from([PLAIN, OVER_NUMA, OVER_CORES, UNCORE, WHOLE]), st.data())
def test_growing_and_shrinking_back_keeps_the_first_set_and_the_size(
    topology: CPUTopology, options: StaticOptions, data: st.DataObject
) -> None:
    policy = manager(topology, options)
    unit = policy.group_size if options.full_pcpus_only else 1
    free = topology.all - policy.reserved_physical
    first = allocate(policy, free, unit * data.draw(st.integers(1, len(free) // unit)), None, CPUSet())
    more = unit * data.draw(st.integers(0, (len(free) - len(first)) // unit))
    affinity = data.draw(st.none() | st.sampled_from([1 << node for node in topology.numa_masks]))
    grown = grow(policy, free - first, first, more, affinity)
    assert first <= grown <= free
    assert len(grown) == len(first) + more
    total = unit * data.draw(st.integers(len(first) // unit, len(grown) // unit))
    shrunk = shrink(policy, grown, first, total)
    assert first <= shrunk <= grown
    assert len(shrunk) == total
