"""Records of kinds `topology` and `take_cpus`: their forms here, and the recorded ones beside the repository."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet
from agent.replay import take_cpus, topology
from agent.replay.context import Context, decode_machine
from tests.shared import KUBELET, records

TWO_CORES = {
    "cpus": [
        {"id": 0, "core": 0, "socket": 0, "numa": 0},
        {"id": 1, "core": 1, "socket": 0, "numa": 0},
        {"id": 2, "core": 0, "socket": 0, "numa": 0},
        {"id": 3, "core": 1, "socket": 0, "numa": 0},
    ],
    "numa_memory": {"0": {"memory": 1 << 30}},
    "distances": {"0": [10]},
}


def test_a_topology_is_answered_with_the_discovered_form() -> None:
    assert topology.replay(TWO_CORES, Context()) == {
        "num_cpus": 4,
        "num_cores": 2,
        "num_sockets": 1,
        "num_numa_nodes": 1,
        "num_uncore_caches": 1,
        "cpus_per_core": 2,
        "cpus_per_socket": 4,
        "cpus_per_uncore": 4,
        "cpu": {
            "0": {"core": 0, "socket": 0, "numa": 0, "uncore": 0},
            "1": {"core": 1, "socket": 0, "numa": 0, "uncore": 0},
            "2": {"core": 0, "socket": 0, "numa": 0, "uncore": 0},
            "3": {"core": 1, "socket": 0, "numa": 0, "uncore": 0},
        },
    }


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        pytest.param(
            {"n": 2, "algo": "packed", "sort": "packed", "prefer_uncore": False}, {"cpus": "1,3"}, id="packed"
        ),
        pytest.param({"n": 2, "algo": "packed", "sort": "spread"}, {"cpus": "1-2"}, id="spread, a field left out"),
        pytest.param(
            {"n": 2, "algo": "distributed", "sort": "packed", "cpu_group_size": 2}, {"cpus": "1,3"}, id="cores"
        ),
        pytest.param({"n": 0, "algo": "packed", "sort": "packed"}, {"cpus": ""}, id="nothing"),
        pytest.param(
            {"n": 4, "algo": "packed", "sort": "packed"},
            {"error": "not enough cpus available to satisfy request: requested=4, available=3"},
            id="too many",
        ),
    ],
)
def test_a_pick_is_answered_with_cpus_or_an_error(asked: dict[str, Any], answer: dict[str, str]) -> None:
    context = Context(machines={"two-cores": decode_machine(TWO_CORES)})
    assert take_cpus.replay({"topology": "two-cores", "available": "1-3", **asked}, context) == answer


def test_the_topology_may_stand_in_the_record_itself() -> None:
    record = {"topology": TWO_CORES, "available": "0-3", "n": 1, "algo": "packed", "sort": "packed"}
    assert take_cpus.replay(record, Context()) == {"cpus": "0"}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"topology": "nowhere"}, id="a machine that no record defined"),
        pytest.param({"available": "3-1"}, id="a set that is none"),
        pytest.param({"n": "2"}, id="a number in quotes"),
        pytest.param({"n": None}, id="no number"),
        pytest.param({"algo": "random"}, id="an algorithm that does not exist"),
        pytest.param({"sort": "random"}, id="an order that does not exist"),
        pytest.param({"cpu_group_size": -1}, id="a group of fewer than one"),
    ],
)
def test_a_wrong_record_is_refused(wrong: dict[str, Any]) -> None:
    record = {"topology": TWO_CORES, "available": "0-3", "n": 1, "algo": "packed", "sort": "packed", **wrong}
    with pytest.raises(BadInputError):
        take_cpus.replay(record, Context())


@pytest.mark.shared
@pytest.mark.parametrize("name", ["take_cpus", "take_cpus_irregular"])
def test_recorded_picks_come_out_as_wanted(name: str) -> None:
    context = Context()
    wrong = []
    for record in records(KUBELET / f"{name}.jsonl.gz"):
        asked, wanted = record["input"], record["want"]
        if record["kind"] == "topology":
            context.machines[record["id"]] = decode_machine(asked)
            assert topology.replay(asked, context) == wanted
            continue
        answer = take_cpus.replay(asked, context)
        if wanted is None and "cpus" in answer:  # only safety is demanded
            cpus = CPUSet.parse(answer["cpus"])
            right = len(cpus) == asked["n"] and cpus <= CPUSet.parse(asked["available"])
        elif wanted is None:
            right = len(CPUSet.parse(asked["available"])) < asked["n"]
        else:
            right = answer == wanted
        if not right:
            wrong.append((record["id"], answer, wanted))
    assert not wrong
