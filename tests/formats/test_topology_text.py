"""The readable tree: what goes around what, and the words for sizes. Whole outputs are the golden files of fixtures/sysfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.formats.topology_text import WIDTH, render_text
from agent.formats.topology_tree import Block, format_bytes, topology_blocks
from agent.model.cpuset import CPUSet, union
from agent.model.topology import CPULists, Hybrid, NodeKind, NUMANode, Topology
from agent.node.topology import read_topology
from tests.node.sysfs_machines import FIXTURES
from tests.node.sysfs_tree import regular, write_tree

MACHINES = sorted(path.name for path in FIXTURES.iterdir())


def names(blocks: tuple[Block, ...]) -> list[str]:
    """The names from the outermost block inwards, first child first."""
    return [blocks[0].name, *names(blocks[0].inner)] if blocks else []


def innermost(blocks: tuple[Block, ...]) -> list[Block]:
    return [leaf for block in blocks for leaf in (innermost(block.inner) if block.inner else [block])]


@pytest.mark.parametrize(
    ("machine", "order"),
    [
        pytest.param("two-socket-smt", ["socket 0", "NUMA node 0", "L3"], id="one of each"),
        pytest.param("q-numa-splits-l3", ["socket 0", "L3", "NUMA node 0"], id="two nodes in one cache"),
        pytest.param(
            "q-no-l3", ["NUMA node 0", "socket 0"], id="two sockets in one node; a cache per core is no layer"
        ),
        pytest.param("q-l3-per-die-l2-per-module", ["socket 0", "NUMA node 0", "die 0", "L3"], id="several dies"),
        pytest.param("q-arm64-2s2c3n", ["socket 0", "NUMA node 0"], id="a cache said to span sockets is no layer"),
    ],
)
def test_the_coarser_partition_goes_outside(machine: str, order: list[str]) -> None:
    assert names(topology_blocks(read_topology(FIXTURES / machine))) == order


@pytest.mark.parametrize("machine", MACHINES)
def test_innermost_blocks_hold_every_cpu_once(machine: str) -> None:
    topology = read_topology(FIXTURES / machine)
    leaves = innermost(topology_blocks(topology))
    assert sum(len(leaf.cpus) for leaf in leaves) == len(topology.cpus)
    assert union(core for leaf in leaves for core in leaf.cores) == topology.lists.online


def test_a_block_that_is_cut_by_its_surroundings_says_so(tmp_path: Path) -> None:
    machine = regular(packages=2, cores=2)
    nodes = (replace(machine.nodes[0], cpus=CPUSet.parse("0-2")), replace(machine.nodes[1], cpus=CPUSet.parse("3")))
    lines = render_text(read_topology(write_tree(tmp_path, replace(machine, nodes=nodes)))).splitlines()
    assert [line.split() for line in lines if "NUMA node 0" in line] == [
        ["NUMA", "node", "0", "CPUs", "0-1", "16", "GiB,", "in", "part"],
        ["NUMA", "node", "0", "CPUs", "2", "16", "GiB,", "in", "part"],
    ]


def test_cpus_of_no_node_are_shown_as_such(tmp_path: Path) -> None:
    write_tree(tmp_path, regular(packages=2))
    (tmp_path / "sys/devices/system/node/node1/cpulist").write_text("4-6\n")
    text = render_text(read_topology(tmp_path))
    assert "no NUMA node  CPUs 7" in text
    assert "note: listed by no NUMA node: CPUs 7" in text


def test_lines_of_cores_stay_within_the_width(tmp_path: Path) -> None:
    topology: Topology = read_topology(write_tree(tmp_path, regular(2, 1, 1, 64, 2, near_siblings=False)))
    assert max(len(line) for line in render_text(topology).splitlines()) <= WIDTH


def lines_of(topology: Topology) -> list[str]:
    return render_text(topology).splitlines()


@pytest.mark.parametrize(
    ("hybrid", "line"),
    [
        pytest.param(Hybrid(pmu_groups=(("cpu_core", CPUSet.parse("0-3")),)), "hybrid: cpu_core 0-3", id="kinds (x86)"),
        pytest.param(Hybrid(capacities=(446, 1024)), "hybrid: capacities 446, 1024", id="capacities (arm64)"),
    ],
)
def test_cores_of_several_kinds_are_told_in_the_summary(hybrid: Hybrid, line: str, tmp_path: Path) -> None:
    topology = read_topology(write_tree(tmp_path, regular()))
    assert lines_of(replace(topology, hybrid=hybrid))[1] == line


@pytest.mark.parametrize(
    ("lists", "line"),
    [
        pytest.param({}, None, id="all that is there runs"),
        pytest.param({"directories": "0-4"}, "CPUs online 0-3, offline 4", id="one is offline"),
        pytest.param({"possible": "0-7"}, "CPUs online 0-3, possible 0-7", id="room for more"),
        pytest.param({"present": "0-3", "possible": "0-3"}, None, id="lists that say the same"),
    ],
)
def test_cpus_that_do_not_run_are_told_in_the_summary(lists: dict[str, str], line: str | None, tmp_path: Path) -> None:
    topology = read_topology(write_tree(tmp_path, regular()))
    online = {"online": "0-3", "directories": "0-3", **lists}
    known = CPULists(**{name: CPUSet.parse(cpus) for name, cpus in online.items()})
    assert lines_of(replace(topology, lists=known))[1] == (line or "")


def test_a_machine_that_shows_no_caches_says_so(tmp_path: Path) -> None:
    topology = read_topology(write_tree(tmp_path, regular()))
    bare = replace(topology, llc=tuple(replace(cache, level=None, size_kib=None) for cache in topology.llc))
    assert lines_of(bare)[0].endswith(", no cache shown")


@pytest.mark.parametrize(
    ("local", "line"),
    [
        ("0-1", "NUMA node 7: memory-only, 4 GiB, nearest CPUs 0-1"),
        ("", "NUMA node 7: memory-only, 4 GiB"),
    ],
)
def test_a_node_without_cpus_stands_below_the_tree_with_the_cpus_that_are_near(
    local: str, line: str, tmp_path: Path
) -> None:
    topology = read_topology(write_tree(tmp_path, regular()))
    far = NUMANode(7, NodeKind.MEMORY_ONLY, CPUSet(), 4 << 30, None, (), CPUSet.parse(local))
    assert line in lines_of(replace(topology, numa=(*topology.numa, far)))


def test_distances_are_a_table_where_there_are_any_and_something_to_compare(tmp_path: Path) -> None:
    alone = read_topology(write_tree(tmp_path / "alone", regular()))
    pair = read_topology(write_tree(tmp_path / "pair", regular(packages=2)))
    untold = replace(pair, numa=tuple(replace(node, distances=None) for node in pair.numa))
    assert [any(line.startswith("distances") for line in lines_of(each)) for each in (alone, pair, untold)] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (512, "512 B"),
        (65536, "64 KiB"),
        (2 << 20, "2 MiB"),
        (28835840, "27.5 MiB"),
        (67_274_862_592, "62.7 GiB"),
    ],
)
def test_sizes_for_people(count: int, text: str) -> None:
    assert format_bytes(count) == text
