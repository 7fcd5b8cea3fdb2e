"""The JSON of a machine: the documented fields, in every machine the same. Whole outputs are fixtures/sysfs/*/topology.json."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agent.formats.topology_json import render_json, topology_object
from agent.node.topology import read_topology
from tests.node.sysfs_machines import FIXTURES

MACHINES = sorted(path.name for path in FIXTURES.iterdir())


@pytest.mark.parametrize("machine", MACHINES)
def test_the_text_is_the_object(machine: str) -> None:
    topology = read_topology(FIXTURES / machine)
    assert json.loads(render_json(topology)) == topology_object(topology)


def test_every_machine_has_the_same_fields() -> None:
    objects = [json.loads((FIXTURES / machine / "topology.json").read_text(encoding="utf-8")) for machine in MACHINES]
    assert len({tuple(found) for found in objects}) == 1
    for table in ("cpu", "numa", "packages"):
        assert len({tuple(row) for found in objects for row in found[table]}) == 1


def test_a_row_is_a_line_so_that_differences_stay_small() -> None:
    topology = read_topology(FIXTURES / "q-no-l3")
    changed = replace(topology, cpus=(*topology.cpus[:-1], replace(topology.cpus[-1], capacity=512)))
    before, after = render_json(topology).splitlines(), render_json(changed).splitlines()
    assert sum(1 for old, new in zip(before, after, strict=True) if old != new) == 1


def test_uneven_machines_give_lists_where_even_ones_give_a_number() -> None:
    even = topology_object(read_topology(FIXTURES / "two-socket-smt"))["counts"]
    uneven = topology_object(read_topology(FIXTURES / "hybrid-p-e-cores"))["counts"]
    assert isinstance(even, dict)
    assert isinstance(uneven, dict)
    assert (even["threads_per_core"], even["threads_per_core_seen"]) == (2, [2])
    assert (uneven["threads_per_core"], uneven["threads_per_core_seen"]) == (None, [1, 2])
