"""The picture: every CPU once, nothing outside its surroundings, and nobody's text as markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.formats.topology_layout import MAX_WIDTH, PlacedBlock, cell_size, place
from agent.formats.topology_svg import CPUOwner, render_svg
from agent.formats.topology_tree import topology_blocks
from agent.model.topology import Topology
from agent.node.topology import read_topology
from tests.node.sysfs_machines import FIXTURES
from tests.node.sysfs_tree import regular, write_tree

SVG = "{http://www.w3.org/2000/svg}"
MACHINES = sorted(path.name for path in FIXTURES.iterdir())


def cpu_squares(picture: str) -> list[ElementTree.Element]:
    return [rect for rect in ElementTree.fromstring(picture).iter(f"{SVG}rect") if rect.get("data-cpu")]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Topology:
    """512 CPUs: 2 sockets, 4 nodes each, 4 L3 caches of 8 two-thread cores per node."""
    return read_topology(write_tree(tmp_path_factory.mktemp("large"), regular(2, 4, 4, 8, 2, near_siblings=False)))


@pytest.mark.parametrize("machine", MACHINES)
def test_every_online_cpu_has_one_square(machine: str) -> None:
    topology = read_topology(FIXTURES / machine)
    drawn = sorted(int(square.get("data-cpu", "")) for square in cpu_squares(render_svg(topology)))
    assert drawn == list(topology.lists.online)


def test_512_cpus_fit_a_page_and_their_ids_stay_readable(large: Topology) -> None:
    picture = ElementTree.fromstring(render_svg(large))
    assert len(cpu_squares(render_svg(large))) == 512
    assert int(picture.get("width", "")) <= MAX_WIDTH + 24
    assert int(picture.get("height", "")) <= 1000
    assert cell_size(512) >= 16


def boxes(placed: PlacedBlock) -> Iterator[tuple[float, float, float, float]]:
    yield from ((inner.x, inner.y, inner.width, inner.height) for inner in placed.inner)
    yield from ((core.x, core.y, core.width, core.height) for core in placed.cores)


def everything(placed: tuple[PlacedBlock, ...]) -> Iterator[PlacedBlock]:
    for block in placed:
        yield block
        yield from everything(block.inner)


@pytest.mark.parametrize("machine", MACHINES)
def test_blocks_stay_inside_and_do_not_overlap(machine: str) -> None:
    topology = read_topology(FIXTURES / machine)
    placed, width, height = place(topology_blocks(topology), cell_size(len(topology.cpus)))
    assert all(block.x + block.width <= width and block.y + block.height <= height for block in placed)
    for block in everything(placed):
        within = list(boxes(block))
        for x, y, box_width, box_height in within:
            assert x >= 0
            assert y >= 0
            assert x + box_width <= block.width
            assert y + box_height <= block.height
        for index, (x, y, box_width, box_height) in enumerate(within):
            for other_x, other_y, other_width, other_height in within[index + 1 :]:
                apart = x + box_width <= other_x or other_x + other_width <= x
                assert apart or y + box_height <= other_y or other_y + other_height <= y


def test_owners_colour_their_cpus_and_appear_in_the_legend() -> None:
    topology = read_topology(FIXTURES / "two-socket-smt")
    owners = {cpu: CPUOwner("shared pool", "shared") for cpu in range(32)} | {
        cpu: CPUOwner("default/db: main", "owner-0") for cpu in (1, 17)
    }
    picture = render_svg(topology, owners)
    coloured = {
        int(square.get("data-cpu", "")) for square in cpu_squares(picture) if square.get("class") == "cpu owner-0"
    }
    assert coloured == {1, 17}
    assert ">default/db: main: 2 CPUs</text>" in picture
    assert ">shared pool: 30 CPUs</text>" in picture


def test_labels_cannot_become_markup() -> None:
    topology = read_topology(FIXTURES / "q-no-l3")
    hostile = "</text><script>alert('x')</script>&\"'"
    picture = render_svg(topology, {0: CPUOwner(hostile, "owner-1")})
    assert "<script" not in picture
    assert [element.tag for element in ElementTree.fromstring(picture).iter() if "script" in element.tag] == []


@pytest.mark.parametrize("css_class", ["", "Owner", "owner 1", 'a"b', "a;b", "-a"])
def test_a_class_that_is_no_plain_name_is_refused(css_class: str) -> None:
    with pytest.raises(ValueError, match="not a CSS class name"):
        CPUOwner("somebody", css_class)


def test_nodes_without_cpus_and_offline_cpus_are_named_below(tmp_path: Path) -> None:
    assert "NUMA node 2: memory-only, 504 MiB, nearest CPUs 0-3" in render_svg(
        read_topology(FIXTURES / "q-2s-memonly-hmat")
    )
    assert "CPUs 1,3,5,7: offline" in render_svg(read_topology(FIXTURES / "q-smt-control-off"))
