"""What holds for every pick on every machine, even cores or not: and that the fast way is the straightforward one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology, RawCPU, discover
from agent.policy.cpu_assignment import NotEnoughCPUs, PickOptions, take_cpus
from tests.policy.cpu_machines import regular
from tests.policy.reference_take_cpus import reference_take_cpus

Pick = tuple[CPUTopology, CPUSet, int, PickOptions]

options = st.builds(
    PickOptions,
    distribute_across_numa=st.booleans(),
    spread_cores=st.booleans(),
    prefer_uncore=st.booleans(),
    cpu_group_size=st.sampled_from([1, 2, 4]),
)


@st.composite
def even_machines(draw: st.DrawFn) -> CPUTopology:
    sockets, nodes = draw(st.sampled_from([(1, 1), (1, 4), (2, 1), (2, 2), (2, 4), (2, 6), (4, 2), (4, 4)]))
    smt = draw(st.sampled_from([1, 2, 4]))
    cores = 12 if nodes == 6 else 4 * draw(st.integers(1, 4))
    return regular(cores * smt, sockets=sockets, numa=nodes, smt=smt, cache_cores=draw(st.sampled_from([0, 1, 2, 3])))


@st.composite
def any_machines(draw: st.DrawFn) -> CPUTopology:
    """Cores of one to four threads in places drawn at random: nodes over sockets, sockets over nodes, caches over both."""
    cores = draw(st.lists(st.tuples(*[st.integers(0, 3)] * 3, st.integers(1, 4)), min_size=1, max_size=12))
    threads = [(core, place) for core, place in enumerate(cores) for _ in range(place[3])]
    ids = draw(st.permutations(range(len(threads))))
    return discover(
        RawCPU(cpu, core, socket=place[0], numa=place[1], uncore=place[2])
        for cpu, (core, place) in zip(ids, threads, strict=True)
    )


@st.composite
def picks(draw: st.DrawFn, machines: st.SearchStrategy[CPUTopology]) -> Pick:
    topology = draw(machines)
    ids = [cpu.id for cpu in topology.cpus]
    taken = draw(st.one_of(st.just(set()), st.sets(st.sampled_from(ids))))
    available = CPUSet.of(cpu for cpu in ids if cpu not in taken)
    return topology, available, draw(st.integers(0, len(available))), draw(options)


@given(picks(st.one_of(even_machines(), any_machines())), st.integers(0, 6))
def test_a_pick_has_the_size_asked_for_and_only_free_cpus(pick: Pick, floor: int) -> None:
    topology, available, n, way = pick
    picked = take_cpus(topology, available, n, way, min_numa_nodes=floor)
    assert len(picked) == n
    assert picked <= available


@given(picks(any_machines()))
def test_equal_questions_get_equal_answers(pick: Pick) -> None:
    topology, available, n, way = pick
    again = discover(RawCPU(cpu.id, cpu.core, cpu.socket, cpu.numa, cpu.uncore) for cpu in reversed(topology.cpus))
    assert take_cpus(again, CPUSet.of(reversed(list(available))), n, way) == take_cpus(topology, available, n, way)


@given(picks(any_machines()), st.integers(1, 5))
def test_more_than_is_free_is_refused(pick: Pick, excess: int) -> None:
    topology, available, _, way = pick
    with pytest.raises(NotEnoughCPUs):
        take_cpus(topology, available, len(available) + excess, way)


@given(picks(even_machines()))
def test_picks_on_even_machines_are_those_of_the_straightforward_way(pick: Pick) -> None:
    assert take_cpus(*pick) == reference_take_cpus(*pick)


@given(picks(any_machines()))
def test_picks_on_uneven_machines_are_those_of_the_straightforward_way(pick: Pick) -> None:
    assert take_cpus(*pick) == reference_take_cpus(*pick)


@given(picks(even_machines()), st.integers(2, 6))
def test_a_floor_changes_nothing_unless_fewer_nodes_would_do(pick: Pick, floor: int) -> None:
    topology, available, n, way = pick
    plain = take_cpus(topology, available, n, way)
    nodes = sum(1 for node in topology.numa_masks.values() if node & plain.mask)
    if not way.distribute_across_numa or nodes >= floor:
        assert take_cpus(topology, available, n, way, min_numa_nodes=floor) == plain
