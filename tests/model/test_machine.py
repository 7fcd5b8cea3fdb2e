"""The kubelet's discovered form of a machine: which CPUs are one core, what cores are called, which caches they share."""

from __future__ import annotations

import pytest

from agent.model.cpuset import format_list
from agent.model.machine import CPUTopology, Machine, RawCPU, discover
from tests.policy.cpu_machines import drawn, regular


def lists(masks: dict[int, int]) -> dict[int, str]:
    return {element: format_list(mask) for element, mask in masks.items()}


def test_a_core_is_named_by_its_lowest_cpu() -> None:
    topology = discover([RawCPU(cpu, core=10 + cpu % 2, socket=0, numa=0) for cpu in (3, 2, 1, 0)])
    assert [cpu.id for cpu in topology.cpus] == [0, 1, 2, 3]
    assert lists(dict(topology.core_masks)) == {0: "0,2", 1: "1,3"}


def test_equal_core_ids_in_other_sockets_and_nodes_are_other_cores() -> None:
    topology = discover([RawCPU(0, 0, 0, 0), RawCPU(1, 0, 1, 0), RawCPU(2, 0, 1, 1), RawCPU(3, 0, 1, 1)])
    assert lists(dict(topology.core_masks)) == {0: "0", 1: "1", 2: "2-3"}


def test_without_caches_the_socket_stands_for_one() -> None:
    topology = discover([RawCPU(0, 0, 7, 0), RawCPU(1, 1, 7, 0), RawCPU(2, 0, 9, 1)])
    assert lists(dict(topology.uncore_masks)) == {7: "0-1", 9: "2"}


def test_the_first_cache_reported_for_a_core_is_the_cores() -> None:
    topology = discover([RawCPU(0, 0, 0, 0, None), RawCPU(1, 0, 0, 0, 5), RawCPU(2, 1, 0, 0, 6), RawCPU(3, 1, 0, 0, 7)])
    assert [cpu.uncore for cpu in topology.cpus] == [5, 5, 6, 6]


def test_a_cache_id_that_repeats_in_another_socket_is_one_cache() -> None:
    topology = discover([RawCPU(0, 0, 0, 0, 1), RawCPU(1, 0, 1, 1, 1)])
    assert lists(dict(topology.uncore_masks)) == {1: "0-1"}


@pytest.mark.parametrize(
    ("topology", "per_core", "per_socket", "per_uncore"),
    [
        (regular(16, sockets=2, numa=2, smt=2, cache_cores=2), 2, 8, 4),
        (drawn("0+1 2+3 4 5"), 1, 6, 6),
        (drawn("0+1 2 |; 3"), 1, 2, 2),
        (discover([]), 0, 0, 0),
    ],
)
def test_averages_are_the_kubelets_integer_ones(
    topology: CPUTopology, per_core: int, per_socket: int, per_uncore: int
) -> None:
    assert (topology.cpus_per_core, topology.cpus_per_socket, topology.cpus_per_uncore) == (
        per_core,
        per_socket,
        per_uncore,
    )


@pytest.mark.parametrize(
    ("drawing", "numa_is_outer", "outer", "inner"),
    [
        pytest.param("0 1 |; 2 3", True, ["0-1", "2-3"], [["0-1"], ["2-3"]], id="one node per socket"),
        pytest.param("0 | 1 |; 2 | 3", False, ["0-1", "2-3"], [["0", "1"], ["2", "3"]], id="nodes in sockets"),
        pytest.param("0 ; 1 |; 2 ; 3", True, ["0-1", "2-3"], [["0", "1"], ["2", "3"]], id="sockets in nodes"),
        pytest.param(
            "0 | 1 ; 2 | 3", False, ["0-1", "2-3"], [["0", "1-2"], ["1-2", "3"]], id="a node over two sockets"
        ),
    ],
)
def test_levels_of_picking(drawing: str, numa_is_outer: bool, outer: list[str], inner: list[list[str]]) -> None:
    topology = drawn(drawing)
    assert topology.numa_is_outer is numa_is_outer
    assert [format_list(mask) for mask in topology.outer_masks] == outer
    assert [[format_list(mask) for mask in topology.inner_of[element]] for element in topology.outer_masks] == inner


def test_the_cores_and_caches_of_an_element_are_known() -> None:
    topology = drawn("0+4 1+5 / 2+6 |; 3+7")
    first, second = topology.numa_masks.values()
    assert [format_list(core) for core in topology.cores_of[first]] == ["0,4", "1,5", "2,6"]
    assert [format_list(cache) for cache in topology.uncores_of[first]] == ["0-1,4-5", "2-3,6-7"]
    assert [format_list(cache) for cache in topology.uncores_of[second]] == ["2-3,6-7"]


def test_topologies_of_the_same_cpus_are_equal() -> None:
    assert drawn("0+1 2+3") == drawn("0+1 2+3")
    assert drawn("0+1 2+3") != drawn("0 1 2 3")


def test_a_machine_knows_nodes_with_memory_only() -> None:
    machine = Machine(drawn("0 1 |; 2 3"), numa_memory={0: {}, 1: {}, 4: {"memory": 1 << 30}}, distances={})
    assert machine.numa_nodes == (0, 1, 4)
    assert machine.numa_mask == 0b10011
    assert str(machine.topology.all) == "0-3"
    assert machine.topology.by_id[2].numa == 1
