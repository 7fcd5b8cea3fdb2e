"""The readable tree: what goes around what, and the words for sizes. Whole outputs are the golden files of fixtures/sysfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.formats.topology_text import WIDTH, render_text
from agent.formats.topology_tree import Block, format_bytes, topology_blocks
from agent.model.cpuset import CPUSet, union
from agent.model.topology import Topology
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
