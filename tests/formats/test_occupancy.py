"""What readers of reports get: JSON for accountants and files, objects and annotations for schedulers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from agent.formats.node_resource_topology import encode_node_resource_topology
from agent.formats.numa_placement import encode_placement
from agent.formats.occupancy import OccupancyEncoder, encode_changes, encode_occupancy
from agent.formats.pods_fingerprint import fingerprint, xxh64
from agent.model.cpuset import CPUSet
from agent.model.occupancy import Held, Holdings, Occupancy
from agent.policy.occupancy import OccupancyMaker, Origin
from agent.queues.charge import NANO
from agent.queues.node_report_format import decode_report
from tests.nodes import GIB, named, node
from tests.pods import app, guaranteed
from tests.policy.cpu_machines import regular
from tests.policy.resizing import EXCLUSIVE, Node, capacity, sizes
from tests.policy.test_occupancy import histories


def small_node() -> Node:
    managers = node(
        regular(8, numa=2), feature_gates=EXCLUSIVE, memory_policy="Static", topology_policy="single-numa-node"
    )
    return Node(managers, capacity("cpu=7 memory=100Gi"))


def report_of(node_: Node) -> Occupancy:
    return OccupancyMaker(Origin("worker-1")).report(node_.state, node_.managers, node_.node, 1_700_000_000.25)


def labelled() -> Any:
    pod = named("db", guaranteed("2"))
    return replace(pod, labels={"kai.scheduler/queue": "team-a"}, annotations={"pod-group-name": "pg"}, priority=7)


def test_a_report_reads_as_documented() -> None:
    node_ = small_node()
    node_.want(labelled(), named("web", app("cpu=500m", "cpu=1")))
    node_.want(sizes(labelled(), "cpu=4 memory=1Gi"))
    document = json.loads(encode_occupancy(report_of(node_)))
    assert document["time"] == "2023-11-14T22:13:20.250000+00:00"
    assert document["totals"] == {"cpu": "2500m", "memory": "1Gi"}
    assert document["zones"][0] == {
        "name": "node-0",
        "cpus": "0-3",
        "reservedCpus": "0",
        "exclusiveCpus": "1-2",
        "distances": {"node-0": 10, "node-1": 20},
        "resources": {
            "cpu": {"capacity": 4, "allocatable": 3, "held": 2, "free": 1},
            "memory": {"capacity": 64 * GIB, "allocatable": 63 * GIB, "held": GIB, "free": 62 * GIB},
        },
    }
    pod = document["pods"]["db"]
    assert (pod["queue"], pod["podGroup"], pod["priority"], pod["qos"]) == ("team-a", "pg", 7, "Guaranteed")
    assert "preemptible" not in pod
    assert pod["resize"]["state"] == "infeasible"
    assert pod["resize"]["shortfall"] == [{"resource": "cpu", "milliCpus": 1000, "zones": ["node-0"]}]
    assert pod["held"] == {"node-0": {"cpus": "1-2", "memory": {"memory": GIB}}}
    assert pod["containers"][0]["held"] == pod["held"]
    assert (pod["requested"]["cpu"], pod["effective"]["cpu"]) == ("4", "2")


@given(histories())
def test_an_encoder_that_remembers_writes_what_one_without_memory_writes(history: list[tuple[Node, Occupancy]]) -> None:
    encoder = OccupancyEncoder()
    for _, report in history:
        text = encoder.encode(report)
        assert text == encode_occupancy(report)
        assert list(json.loads(text)["pods"]) == list(report.pods)


@given(histories())
def test_an_accountant_reads_full_reports_and_differences_alike(history: list[tuple[Node, Occupancy]]) -> None:
    base, known = None, dict[str, Any]()
    for _, report in history:
        read = decode_report(encode_occupancy(report).encode())
        assert read.stamp == report.stamp
        assert read.base is None
        total = sum(pod.allocated.cpu for pod in read.pods.values())
        assert total == int(report.totals["cpu"].number * NANO if "cpu" in report.totals else 0)
        if base is None:
            known = dict(read.pods)
        else:
            change = decode_report(encode_changes(base, report).encode())
            assert change.base == base.stamp
            known = {uid: pod for uid, pod in {**known, **change.pods}.items() if uid not in change.gone}
        assert known == read.pods
        base = report


@pytest.mark.parametrize(
    ("holdings", "expected"),
    [
        pytest.param({}, None, id="nothing held: no annotation"),
        pytest.param({0: Held()}, None, id="an empty zone says nothing"),
        pytest.param(
            {0: Held(CPUSet.parse("0-7"), {"memory": 16 * GIB})},
            '[{"zone":"node-0","amount":{"cpu":"8","memory":"17179869184"}}]',
            id="KAI's own example",
        ),
        pytest.param(
            {10: Held(CPUSet.parse("1")), 2: Held(CPUSet(), {"memory": 2000, "hugepages-2Mi": 4 << 20})},
            '[{"zone":"node-10","amount":{"cpu":"1"}},{"zone":"node-2","amount":{"hugepages-2Mi":"4194304","memory":"2k"}}]',
            id="zones by name, quantities canonical",
        ),
    ],
)
def test_the_placement_annotation(holdings: Holdings, expected: str | None) -> None:
    assert encode_placement(holdings) == expected


def test_a_node_resource_topology() -> None:
    node_ = small_node()
    node_.want(named("db", guaranteed("2")))
    found = encode_node_resource_topology(report_of(node_), node_uid="n-1")
    assert found["metadata"] == {
        "name": "worker-1",
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "n-1"}],
    }
    assert found["topologyPolicies"] == ["SingleNUMANodeContainerLevel"]
    assert found["zones"][0] == {
        "name": "node-0",
        "type": "Node",
        "costs": [{"name": "node-0", "value": 10}, {"name": "node-1", "value": 20}],
        "resources": [
            {"name": "cpu", "capacity": "4", "allocatable": "3", "available": "1"},
            {
                "name": "memory",
                "capacity": "68719476736",
                "allocatable": "67645734912",
                "available": "66571993088",
            },
        ],
    }


def test_the_attributes_and_the_fingerprint_are_there_on_request() -> None:
    node_ = small_node()
    node_.want(named("db", guaranteed("2")))
    found = encode_node_resource_topology(report_of(node_), pods_fingerprint=True)
    attributes = {each["name"]: each["value"] for each in found["attributes"]}
    assert attributes.pop("nodeTopologyPodsFingerprint") == fingerprint([("default", "db")])
    assert attributes == {
        "topologyManagerPolicy": "single-numa-node",
        "topologyManagerScope": "container",
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "nodeTopologyPodsFingerprintMethod": "all",
    }
    assert "ownerReferences" not in found["metadata"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_the_hash_is_xxh64(data: bytes, expected: int) -> None:
    assert xxh64(data) == expected


def test_the_fingerprint_is_that_of_upstream_in_any_order() -> None:
    pods = [("ns1", "n1"), ("ns1", "n2"), ("ns2", "n1"), ("ns3", "n1"), ("ns3", "n2")]
    assert fingerprint(pods) == fingerprint(reversed(pods)) == "pfp0v001b92008c14168b3a6"
