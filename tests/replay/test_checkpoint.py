"""Records of kind checkpoint, ours and the recorded ones."""

from __future__ import annotations

import json

import pytest

from agent.errors import BadInputError
from agent.formats.go_dump import fnv1a
from agent.replay.checkpoint import replay
from agent.replay.context import Context
from tests.shared import KUBELET, records


def test_a_record_gives_verdict_and_state() -> None:
    file = '{"policyName":"static","defaultCpuSet":"0-1","checksum":1636926438}'
    output = replay({"manager": "cpu", "file": file}, Context())
    assert json.loads(json.dumps(output))["verdict"] == "valid"
    assert output["state"]["defaultCpuSet"] == "0-1"


def test_a_lone_surrogate_in_a_record_is_what_go_would_have_read() -> None:
    output = replay({"manager": "cpu", "file": '{"policyName":"\ud800","checksum":0}'}, Context())
    assert (output["verdict"], output["state"]["policyName"]) == ("unverified", "\ufffd")


def test_the_answer_is_plain_json_numbers_of_numa_nodes_included() -> None:
    file = (
        '{"policyName":"Static","machineState":{"1":{"numberOfAssignments":0,"memoryMap":{},"cells":[1]}},"checksum":0}'
    )
    output = replay({"manager": "memory", "file": file}, Context())
    assert json.loads(json.dumps(output)) == output


def test_an_unknown_manager_is_refused() -> None:
    with pytest.raises(BadInputError, match="'device'"):
        replay({"manager": "device", "file": ""}, Context())


@pytest.mark.shared
def test_every_recorded_file_gets_its_verdict_and_its_state() -> None:
    seen = 0
    for record in records(KUBELET / "checkpoint.jsonl.gz"):
        if record["kind"] != "checkpoint" or record["want"] is None:
            continue
        output = json.loads(json.dumps(replay(record["input"], Context())))
        assert output["verdict"] == record["want"]["verdict"], record["id"]
        for name, value in (record["want"]["state"] or {}).items():
            assert output["state"][name] == value, (record["id"], name)
        assert (output["state"] is None) == (record["want"]["state"] is None), record["id"]
        seen += 1
    assert seen > 900


@pytest.mark.shared
def test_every_recorded_hash_is_fnv1a_of_its_text() -> None:
    for record in records(KUBELET / "checkpoint.jsonl.gz"):
        text = (record.get("about") or {}).get("hash_input")
        if text and record["about"]["case"] == "genuine":
            fields = json.loads(record["input"]["file"])
            assert fnv1a(text) in (fields["checksum"], fields.get("dataChecksum")), record["id"]
