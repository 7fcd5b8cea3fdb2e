"""allocated_pods_state: resources as allocated, with their checksum."""

from __future__ import annotations

import json

import pytest

from agent.formats.allocated_pods import PodAllocation, allocations, read_allocated_pods, write_allocated_pods
from agent.formats.checkpoint import CheckpointError, Verdict
from agent.formats.go_dump import string_checksum
from agent.model.pod import ResourceRequirements
from agent.model.quantity import Quantity


def amounts(**texts: str) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in texts.items()}


PODS = {
    "uid-a": PodAllocation({"app": ResourceRequirements(amounts(cpu="1500m"), amounts(cpu="2", memory="64Mi"))}),
    "uid-b": PodAllocation({"app": ResourceRequirements()}, ResourceRequirements(amounts(cpu="4"))),
}


def wrapped(data: str, checksum: int | None = None) -> bytes:
    return json.dumps({"data": data, "checksum": string_checksum(data) if checksum is None else checksum}).encode()


def test_pods_come_back_with_the_spelling_of_their_amounts() -> None:
    data = write_allocated_pods(PODS)
    assert allocations(read_allocated_pods(data)) == PODS
    assert write_allocated_pods(allocations(read_allocated_pods(data))) == data
    assert rb"\"cpu\":\"1500m\"" in data
    assert rb"\"memory\":\"64Mi\"" in data
    assert rb"\"PodLevelResources\":null" in data


def test_no_pods_are_an_empty_object() -> None:
    assert json.loads(write_allocated_pods({}))["data"] == "{}"
    assert allocations(read_allocated_pods(write_allocated_pods({}))) == {}


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        pytest.param(wrapped("{}"), Verdict.VALID, id="valid"),
        pytest.param(wrapped("{}", 0), Verdict.UNVERIFIED, id="no checksum"),
        pytest.param(wrapped("{}", 1), Verdict.DAMAGED, id="wrong checksum"),
        pytest.param(wrapped("{"), Verdict.UNREADABLE, id="data cut off"),
        pytest.param(wrapped(""), Verdict.UNREADABLE, id="no data"),
        pytest.param(wrapped('{"entries":[]}'), Verdict.UNREADABLE, id="entries a list"),
        pytest.param(b"{}", Verdict.UNREADABLE, id="nothing in it"),
        pytest.param(b"", Verdict.UNREADABLE, id="empty"),
    ],
)
def test_verdicts(data: bytes, verdict: Verdict) -> None:
    assert read_allocated_pods(data).verdict is verdict


def test_the_newer_form_with_a_pod_list_is_read_by_its_entries() -> None:
    data = wrapped('{"podList":"AAAA","entries":{"u":{"ContainerResources":{"c":{}},"EmptyDirVolumeLimits":null}}}')
    assert allocations(read_allocated_pods(data)) == {"u": PodAllocation({"c": ResourceRequirements()})}


def test_an_amount_that_is_none_names_the_pod() -> None:
    data = wrapped('{"entries":{"uid-x":{"ContainerResources":{"c":{"limits":{"cpu":"much"}}}}}}')
    with pytest.raises(CheckpointError, match="pod uid-x: invalid quantity 'much'"):
        allocations(read_allocated_pods(data))
