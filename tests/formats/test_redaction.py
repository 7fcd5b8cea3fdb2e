"""Pseudonyms: the same everywhere in one archive, others in the next, and the numbers stay what they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from agent.formats.redaction import REDACTED, Redaction
from agent.formats.state import decode, encode
from agent.model.pod import ContainerStatus, Pod, PodCondition, PodStatus
from agent.model.state import Affinity, Mark, PodRecord, Resize, State
from tests.pods import guaranteed
from tests.states import EPOCH, states

UUID = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0"
SECRETS = ("payroll", "treasury", "auditor", "hush")


def secret_pod(uid: str = UUID) -> Pod:
    return Pod(
        uid,
        "payroll",
        "treasury",
        containers=(guaranteed("2", name="auditor"),),
        ephemeral_containers=("auditor",),
        labels={"team": "hush"},
        annotations={"hush": "hush"},
        node_name="hush",
        status=PodStatus(
            conditions=(PodCondition("Ready", "False", "hush", "hush"),),
            container_statuses=(ContainerStatus("auditor"),),
            message="treasury/payroll waits",
        ),
    )


def secret_state() -> State:
    record = PodRecord(
        secret_pod(),
        resize=Resize(message="payroll waits", error="auditor fails", desired=secret_pod(), actual=secret_pod()),
        affinities={"auditor": Affinity(1, True)},
        unplaced=Mark("Reason", "container auditor of treasury/payroll"),
        degraded=Mark("Reason", "payroll."),
    )
    return State(EPOCH, pods={UUID: record}, manifest_uids={"treasury/payroll": UUID})


def redaction() -> Redaction:
    return Redaction(b"one archive")


def test_nothing_of_a_pods_names_is_left_in_a_state() -> None:
    text = encode(redaction().state(secret_state())).decode()
    assert [secret for secret in SECRETS if secret in text] == []
    assert UUID in text  # random, so it tells nobody anything


def test_a_uid_that_somebody_wrote_is_a_name() -> None:
    assert redaction().uid(UUID) == UUID
    assert redaction().uid("payroll-7").startswith("uid-")
    assert (redaction().uid(""), redaction().name("", "pod")) == ("", "")


def test_a_name_has_one_pseudonym_in_an_archive_and_another_one_in_the_next() -> None:
    one, next_one = redaction(), Redaction(b"the next one")
    assert one.name("payroll", "pod") == one.name("payroll", "pod") == redaction().name("payroll", "pod")
    assert one.name("payroll", "pod") != next_one.name("payroll", "pod")
    assert one.full_name("treasury/payroll") == f"{one.name('treasury', 'ns')}/{one.name('payroll', 'pod')}"


def test_sentences_lose_the_names_that_are_known_and_only_whole_ones() -> None:
    hidden = redaction()
    pod, container = hidden.name("payroll", "pod"), hidden.name("cpu", "c")
    assert (
        hidden.text("payroll, payroll-2: cpu") == f"{pod}, payroll-2: cpu"
    )  # a word of messages stays, though a name too
    assert container.startswith("c-")


@given(states)
def test_the_numbers_of_a_state_stay(state: State) -> None:
    hidden = decode(encode(redaction().state(state)))
    assert len(hidden.pods) == len(state.pods)
    assert (hidden.generation, hidden.policy, hidden.grants.memory.machine) == (
        state.generation,
        state.policy,
        state.grants.memory.machine,
    )
    for before, after in zip(state.pods.values(), hidden.pods.values(), strict=True):
        assert (after.phase, after.resize.state, after.admitted_seconds) == (
            before.phase,
            before.resize.state,
            before.admitted_seconds,
        )
    held = [sorted(map(str, sets.values())) for sets in state.grants.cpu.entries.values()]
    assert [sorted(map(str, sets.values())) for sets in hidden.grants.cpu.entries.values()] == held
    assert list(hidden.grants.cpu.pod_entries.values()) == list(state.grants.cpu.pod_entries.values())
    assert list(hidden.grants.memory.pod_entries.values()) == list(state.grants.memory.pod_entries.values())


def status() -> dict[str, Any]:
    named = {"namespace": "treasury", "name": "payroll"}
    held = [{"pod": "treasury/payroll", "cpus": "1-2"}]
    return {
        "ready": True,
        "pods": [
            {
                **named,
                "uid": "payroll-7",
                "containers": [{"name": "auditor", "cpus": "1-2"}],
                "unplaced": "auditor waits",
                "degraded": None,
                "conditions": [{"type": "T", "message": "payroll is refused"}],
            }
        ],
        "refused": [{**named, "reason": "R", "message": "treasury/payroll", "hint": "end payroll"}],
        "numa": [{"node": 0, "held": held, "memory": [{"type": "memory", "held": held}]}],
        "problems": ["/etc/pods/payroll.yaml: hush"],
        "drift": ["container auditor: 1 instead of 1-2"],
    }


def test_a_status_keeps_its_form_and_its_numbers_and_counts_problems_only() -> None:
    hidden = redaction().status(status())
    assert [secret for secret in SECRETS if secret in json.dumps(hidden)] == []
    [pod] = hidden["pods"]
    assert pod["containers"][0]["cpus"] == hidden["numa"][0]["held"][0]["cpus"] == "1-2"
    assert (pod["degraded"], hidden["problems"], hidden["ready"]) == (None, [REDACTED], True)
    assert hidden["numa"][0]["memory"][0]["held"][0]["pod"] == f"{pod['namespace']}/{pod['name']}"
    assert hidden["refused"][0]["message"] == f"{pod['namespace']}/{pod['name']}"
    assert hidden["drift"] == [f"container {pod['containers'][0]['name']}: 1 instead of 1-2"]


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        ({"server": "https://hush"}, {"server": REDACTED}),
        ({"a": {"url": "x", "port": 1}}, {"a": {"url": REDACTED, "port": 1}}),
        ({"name": "", "host": None, "directory": "/var"}, {"name": "", "host": None, "directory": "/var"}),
        ({"address": 7}, {"address": 7}),
    ],
)
def test_a_configuration_does_not_tell_where_servers_are(config: dict[str, Any], hidden: dict[str, Any]) -> None:
    assert redaction().config(config) == hidden


def test_records_that_are_not_of_pods_stay_as_they_are() -> None:
    machine = {"kind": "topology", "id": "m", "input": {"cpus": []}, "want": {}}
    assert redaction().record(machine) is machine


def test_messages_of_refused_admissions_in_a_record_are_sentences() -> None:
    pod = {"metadata": {"name": "payroll", "uid": "payroll-7"}, "spec": {"initContainers": [{"name": "auditor"}]}}
    record = {
        "kind": "admission",
        "input": {"ops": [{"op": "admit", "pod": pod}, {"op": "remove", "uid": "payroll-7"}, {"op": "reconcile"}]},
        "want": {"ops": [{"admitted": False, "message": "pod payroll: auditor"}, {}, {}]},
    }
    hidden = redaction().record(record)
    assert [secret for secret in SECRETS if secret in json.dumps(hidden)] == []
    admit, remove, reconcile = hidden["input"]["ops"]
    assert remove["uid"] == admit["pod"]["metadata"]["uid"]
    assert reconcile == {"op": "reconcile"}


def test_devices_in_a_record_stay_those_of_their_containers() -> None:
    pod = {"metadata": {"name": "payroll", "uid": "payroll-7"}, "spec": {"containers": [{"name": "auditor"}]}}
    held = {"example.com/gpu": [[1]]}
    devices = {"containers": {"auditor": held}, "allocatable": {"example.com/gpu": [[0], [1]]}}
    op = {"op": "admit", "pod": pod, "second": True, "devices": devices}
    hidden = redaction().record({"kind": "admission", "input": {"ops": [op]}, "want": {"ops": [{"admitted": True}]}})
    assert [secret for secret in SECRETS if secret in json.dumps(hidden)] == []
    (admit,) = hidden["input"]["ops"]
    (container,) = admit["pod"]["spec"]["containers"]
    assert admit["devices"] == {**devices, "containers": {container["name"]: held}}
