"""The policies' machine from plain facts: which ids name sockets, cores and uncore caches, and what memory counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.cpuset import CPUSet
from agent.model.topology import Cache, HugePages, Package, Topology
from agent.node.topology import read_topology
from agent.policy.policy_machine import (
    cpu_topology,
    hugepages_name,
    policy_machine,
    socket_ids,
    uncore_groups,
    uncore_ids,
)
from tests.node.sysfs_machines import FIXTURES
from tests.node.sysfs_tree import regular, write_tree

GIB = 1 << 30


@pytest.fixture
def topology(tmp_path: Path) -> Topology:
    """2 packages, 1 node each, 2 L3 caches per node, 2 cores per cache, 2 CPUs per core: 16 CPUs, neighbours are siblings."""
    return read_topology(write_tree(tmp_path, regular(2, 1, 2, 2, 2, hugepages={2048: (512, 500), 1048576: (0, 0)})))


def with_llc(topology: Topology, *caches: tuple[str, int | None, int | None]) -> Topology:
    """The machine with these last-level caches: CPUs, level, id."""
    llc = tuple(
        Cache(min(CPUSet.parse(cpus)), CPUSet.parse(cpus), level, id=cache_id) for cpus, level, cache_id in caches
    )
    return replace(topology, llc=llc)


def test_a_regular_machine_keeps_the_kernels_ids(topology: Topology) -> None:
    cpus = cpu_topology(topology)
    assert {socket: str(CPUSet(mask)) for socket, mask in cpus.socket_masks.items()} == {0: "0-7", 1: "8-15"}
    assert {core: str(CPUSet(mask)) for core, mask in cpus.core_masks.items()} == {
        n: f"{n}-{n + 1}" for n in range(0, 16, 2)
    }
    assert {uncore: str(CPUSet(mask)) for uncore, mask in cpus.uncore_masks.items()} == {
        0: "0-3",
        1: "4-7",
        2: "8-11",
        3: "12-15",
    }


@pytest.mark.parametrize(
    ("ids", "sockets"),
    [
        pytest.param((36, 8442), {0: 36, 8: 8442}, id="huge ids are ids"),
        pytest.param((-1, -1), {0: 0, 8: 8}, id="no ids"),
        pytest.param((1, 1), {0: 0, 8: 8}, id="one id in two books"),
        pytest.param((None, 3), {0: 0, 8: 8}, id="an id for one of them only"),
    ],
)
def test_sockets_are_named_by_the_kernel_where_that_tells_them_apart(
    topology: Topology, ids: tuple[int | None, int | None], sockets: dict[int, int]
) -> None:
    packages = tuple(Package(row.key, number, row.cpus) for row, number in zip(topology.packages, ids, strict=True))
    assert socket_ids(replace(topology, packages=packages)) == sockets


@pytest.mark.parametrize(
    ("caches", "groups"),
    [
        pytest.param([("0-3", 3, 0), ("4-7", 3, 1)], ["0-3", "4-7"], id="level 3"),
        pytest.param([("0-7", 4, None)], ["0-7"], id="level 4, no id, as large as the node"),
        pytest.param([("0-7", 2, 0)], [], id="level 2 is no uncore cache"),
        pytest.param([("0-15", 3, 0)], [], id="spans packages"),
        pytest.param([("0-2", 3, 0), ("3-7", 3, 1)], [], id="cuts through a core"),
        pytest.param([("0-7", None, None)], [], id="no cache shown"),
    ],
)
def test_only_caches_that_placement_may_rely_on_are_uncore_groups(
    topology: Topology, caches: list[tuple[str, int | None, int | None]], groups: list[str]
) -> None:
    assert [str(cpus) for cpus in uncore_groups(with_llc(topology, *caches))] == groups


def test_without_uncore_groups_the_socket_stands_in(topology: Topology) -> None:
    machine = with_llc(topology, ("0-15", 3, 0))
    assert uncore_ids(machine) == {}
    assert [cpu.uncore for cpu in cpu_topology(machine).cpus] == [0] * 8 + [1] * 8


@pytest.mark.parametrize("ids", [(7, 7, 7, 7), (None, None, None, None), (0, 1, 2, None)])
def test_uncore_ids_that_do_not_tell_groups_apart_give_way_to_the_lowest_cpu(
    topology: Topology, ids: tuple[int | None, ...]
) -> None:
    machine = with_llc(topology, *((f"{4 * n}-{4 * n + 3}", 3, cache_id) for n, cache_id in enumerate(ids)))
    assert uncore_ids(machine) == {cpu: cpu // 4 * 4 for cpu in range(16)}


def test_what_a_package_has_beside_its_caches_is_one_group_of_its_own(topology: Topology) -> None:
    machine = with_llc(topology, ("0-3", 3, 0), ("4-5", 2, 0), ("6-7", 2, 0), ("8-15", 2, 0))
    assert uncore_ids(machine) == {
        **dict.fromkeys(range(4), 0),
        **dict.fromkeys(range(4, 8), 4),
        **dict.fromkeys(range(8, 16), 8),
    }


def test_cores_are_sibling_lists_where_ids_repeat() -> None:
    """arm64 with a device tree: core ids restart in every cluster, and the only cache spans both sockets."""
    machine = policy_machine(read_topology(FIXTURES / "q-arm64-2s2c3n"))
    assert len(machine.topology.core_masks) == 16
    assert machine.topology.uncore_masks == machine.topology.socket_masks
    assert machine.numa_nodes == (0, 1, 2)
    assert machine.distances[2] == (80, 80, 10)


def test_an_l3_as_large_as_its_node_is_an_uncore_group_without_cache_ids() -> None:
    machine = policy_machine(read_topology(FIXTURES / "arm64-l3-per-node"))
    assert sorted(machine.topology.uncore_masks.values()) == sorted(machine.topology.numa_masks.values())
    assert list(machine.topology.socket_masks) == [36, 8442]


def test_memory_is_the_total_and_huge_pages_are_bytes(topology: Topology) -> None:
    assert policy_machine(topology).numa_memory == {
        node: {"memory": 16 * GIB, "hugepages-2Mi": GIB, "hugepages-1Gi": 0} for node in (0, 1)
    }


def test_memory_that_is_not_stated_promises_nothing(topology: Topology) -> None:
    unknown = replace(topology.numa[0], memory_bytes=None, hugepages=(HugePages(2048, None, None, None),))
    machine = policy_machine(replace(topology, numa=(unknown, topology.numa[1])))
    assert machine.numa_memory[0] == {"memory": 0, "hugepages-2Mi": 0}


def test_cpus_of_no_node_are_left_out_as_cadvisor_leaves_them_out(topology: Topology) -> None:
    cpus = tuple(replace(cpu, node=None) if cpu.id in (4, 5) else cpu for cpu in topology.cpus)
    machine = policy_machine(replace(topology, cpus=cpus))
    assert str(machine.topology.all) == "0-3,6-15"
    assert machine.topology.num_cpus == 14


@pytest.mark.parametrize("row", [None, (10,), (10, 20, 30)])
def test_a_distance_row_that_cannot_be_used_becomes_the_kernels_default(
    topology: Topology, row: tuple[int, ...] | None
) -> None:
    numa = (topology.numa[0], replace(topology.numa[1], distances=row))
    assert policy_machine(replace(topology, numa=numa)).distances == {0: (10, 21), 1: (20, 10)}


@pytest.mark.parametrize(
    ("size_kib", "name"),
    [
        (64, "hugepages-64Ki"),
        (1024, "hugepages-1Mi"),
        (2048, "hugepages-2Mi"),
        (16384, "hugepages-16Mi"),
        (524288, "hugepages-512Mi"),
        (1048576, "hugepages-1Gi"),
        (16777216, "hugepages-16Gi"),
        (1500, "hugepages-1500Ki"),
    ],
)
def test_huge_page_sizes_are_canonical_quantities(size_kib: int, name: str) -> None:
    assert hugepages_name(size_kib) == name


@pytest.mark.parametrize("machine", sorted(path.name for path in FIXTURES.iterdir()))
def test_cores_nest_in_everything_on_every_machine(machine: str) -> None:
    cpus = policy_machine(read_topology(FIXTURES / machine)).topology
    for core in cpus.core_masks.values():
        for groups in (cpus.socket_masks, cpus.numa_masks, cpus.uncore_masks):
            assert any(core & ~group == 0 for group in groups.values())
