"""Any damage to a tree ends in a consistent machine or in an error that names a file, never in a crash or a lost CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.topology_json import render_json
from agent.formats.topology_svg import render_svg
from agent.formats.topology_text import render_text
from agent.model.cpuset import CPUSet, union
from agent.model.topology import Topology
from agent.node.sysfs import SysfsError
from agent.node.topology import read_topology
from agent.policy.policy_machine import policy_machine
from tests.node.sysfs_machines import MACHINES, tree_files
from tests.node.sysfs_tree import write_tree

CONTENTS = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.sampled_from(
        [b"", b"\n", b"\0\n", b"0-", b"-1\n", b"65535\n", b"0\n", b"0-3\n", b"1-2,5\n", b"8191\n", b"ffffffff\n"]
    ),
)


@pytest.fixture(scope="module", params=["hybrid-p-e-cores", "old-kernel-masks", "s390-books", "arm64-l3-per-node"])
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    machine, style = MACHINES[request.param]
    return write_tree(tmp_path_factory.mktemp("tree"), machine, style)


@given(st.data())
def test_damage_gives_a_consistent_machine_or_an_error(tree: Path, data: st.DataObject) -> None:
    whole = tree_files(tree)
    damage = data.draw(st.dictionaries(st.sampled_from(sorted(whole)), CONTENTS, max_size=6))
    for name, content in damage.items():
        if content is None:
            (tree / name).unlink()
        else:
            (tree / name).write_bytes(content)
    outcome = read(tree)
    for name in damage:
        (tree / name).write_text(whole[name], encoding="ascii")
    if isinstance(outcome, SysfsError):
        assert str(tree) in str(outcome)
    else:
        check(outcome)


def read(tree: Path) -> Topology | SysfsError:
    try:
        return read_topology(tree)
    except SysfsError as error:
        return error


def check(topology: Topology) -> None:
    online = topology.lists.online
    assert [cpu.id for cpu in topology.cpus] == list(online)
    partitions = [
        [package.cpus for package in topology.packages],
        list(topology.cores),
        [cache.cpus for cache in topology.llc],
        *(list(groups) for groups in (topology.dies, topology.clusters) if groups is not None),
    ]
    for groups in partitions:
        assert union(groups) == online
        assert sum(map(len, groups)) == len(online)
    assert CPUSet.of(cpu.id for cpu in topology.cpus if cpu.node is not None) == union(
        node.cpus for node in topology.numa
    )
    machine = policy_machine(topology)
    assert machine.topology.all <= online
    for render in (render_text, render_json, render_svg):
        assert render(topology)
