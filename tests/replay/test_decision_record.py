"""What the daemon records of its looks, as it is and under pseudonyms, replayed in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.decision_record import can_follow, decision_record, topology_record
from agent.formats.redaction import Redaction
from agent.model.devices import NodeDevices
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import Epoch, State
from agent.policy.device_placement import DEVICES_AWAITED
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Event, Observation, Refused, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answer
from tests.nodes import PODS_ON, named, node
from tests.pods import app, guaranteed, sized
from tests.policy.cpu_machines import regular

ROOM = NodeCapacity({}, {name: Quantity.of(amount) for name, amount in (("cpu", 7), ("memory", 2**50), ("pods", 4))})
NODE = node(regular(8, sockets=2, numa=2), memory_policy="Static", feature_gates=PODS_ON)
BUBBLE = named("bubble", guaranteed("1"), app(name="shared"), resources=sized("cpu=3 memory=2Gi", "cpu=3 memory=2Gi"))
PODS = {
    pod.name: pod
    for pod in (
        named("small", guaranteed("1", name="secretive")),
        named("middle", guaranteed("3")),
        named("large", guaranteed("6")),
        named("burst", app("cpu=100m")),
        BUBBLE,
    )
}


def looks(managers: Managers, wanted: Sequence[Sequence[Wanted]], **seen: Any) -> Iterator[dict[str, Any]]:
    """The records of one look after another, each following the one before it where it can, as the daemon writes them."""
    machine = topology_record(managers.machine)
    yield machine
    state, start = State(Epoch(0, "0" * 16), grants=fresh(managers)), ""
    refused: Mapping[str, Refused] = {}
    for number, pods in enumerate(wanted):
        plan = decide(managers, ROOM, state, Observation(pods, **seen), refused)
        follows = can_follow(plan.decisions)
        record = decision_record(
            f"look-{number}", machine["id"], managers.config, ROOM, start or state, plan.state, plan.decisions
        )
        state, refused = plan.state, plan.refused
        start = start if record is None else f"look-{number}"
        if record is not None:
            yield record
        if not follows:
            start = ""


def differences(records: Sequence[dict[str, Any]]) -> list[str]:
    """What a replay of these, once written and read, answers otherwise."""
    context, tally = Context(), Tally()
    found = (check(record, answer(record, context), tally) for record in map(json.loads, map(json.dumps, records)))
    return [difference for difference in found if difference]


visits = st.lists(st.lists(st.sampled_from(sorted(PODS)), max_size=4, unique=True), min_size=1, max_size=6)
sources = st.sampled_from(["manifests", "kubelet"])


@given(visits, sources)
def test_whatever_comes_and_goes_replays_as_it_was_decided(wanted: list[list[str]], source: str) -> None:
    records = list(looks(NODE, [[Wanted(PODS[name], source) for name in names] for names in wanted]))
    assert differences(records) == []


@given(visits, sources)
def test_under_pseudonyms_it_replays_the_same_and_no_name_is_left(wanted: list[list[str]], source: str) -> None:
    records = list(looks(NODE, [[Wanted(PODS[name], source) for name in names] for names in wanted]))
    redaction = Redaction(b"key")
    hidden = [dict(redaction.record(record)) for record in records]
    assert differences(hidden) == []
    text = json.dumps(hidden)
    assert not [name for name in (*PODS, "secretive") if f'"{name}"' in text]
    assert hidden[0] == records[0]  # a machine has no names


def test_a_changed_outcome_is_a_difference() -> None:
    records = list(looks(NODE, [[Wanted(PODS["middle"])]]))
    records[1]["want"]["ops"][0]["pod"]["containers"][0]["assigned_cpus"] = "1-2"
    assert "assigned_cpus" in differences(records)[0]


def test_a_record_that_follows_another_one_needs_it() -> None:
    machine, first, second = looks(NODE, [[Wanted(PODS["small"])], [Wanted(PODS["small"]), Wanted(PODS["middle"])]])
    assert second["input"]["follows"] == first["id"]
    assert differences([machine, first, second]) == []
    assert "which it follows" in differences([machine, second])[0]


def test_a_pod_that_a_kubelet_admitted_and_that_gets_its_place_later_is_replayed_as_placed() -> None:
    full = [Wanted(PODS["large"], "kubelet"), Wanted(PODS["middle"], "kubelet")]
    records = list(looks(NODE, [full, full[1:]]))
    ops = records[-1]["input"]["ops"]
    assert [op["op"] for op in ops] == ["remove", "admit"]
    assert ops[1]["placed"] is True
    assert differences(records) == []


def test_devices_that_decided_are_in_the_record() -> None:
    asks = app("cpu=2 memory=1Gi example.com/device=1", "cpu=2 memory=1Gi example.com/device=1")
    near = NodeDevices({"gpu": {"app": {"example.com/device": (0b10,)}}}, {"example.com/device": (0b01, 0b10)})
    managers = node(regular(8, sockets=2, numa=2), topology_policy="single-numa-node")
    records = list(looks(managers, [[Wanted(named("gpu", asks), "kubelet")]], devices=near))
    assert records[1]["input"]["ops"][0]["devices"]
    assert records[1]["want"]["ops"][0]["pod"]["containers"][0]["assigned_cpus"] == "4-5"
    assert differences(records) == []


@pytest.mark.parametrize(
    ("decisions", "follows"),
    [
        ([], True),
        ([Decision(Event.ADMITTED, BUBBLE), Decision(Event.RELEASED, BUBBLE)], True),
        ([Decision(Event.WAITING, BUBBLE)], True),
        ([Decision(Event.WAITING, BUBBLE, DEVICES_AWAITED)], False),
        ([Decision(Event.ADMITTED, BUBBLE), Decision(Event.RESIZE_STARTED, BUBBLE)], False),
        ([Decision(Event.ADOPTED, BUBBLE)], False),
    ],
)
def test_only_looks_that_a_replay_can_repeat_are_followed(decisions: list[Decision], follows: bool) -> None:
    assert can_follow(decisions) is follows


@pytest.mark.parametrize(
    "decision",
    [
        Decision(Event.TERMINATING, BUBBLE),
        Decision(Event.REFUSED, BUBBLE, "Paused"),
        Decision(Event.REFUSED, BUBBLE, "DuplicateUID"),
        Decision(Event.RESIZE_STARTED, BUBBLE),
    ],
)
def test_what_no_replay_can_decide_leaves_no_record(decision: Decision) -> None:
    state = State(Epoch(0, "0" * 16), grants=fresh(NODE))
    assert decision_record("x", "machine", NODE.config, ROOM, state, state, [decision]) is None


def test_labels_and_statuses_of_a_pod_are_not_kept() -> None:
    told = Pod(
        "u", "p", labels={"team": "hush"}, annotations={"a": "hush"}, node_name="hush", containers=(guaranteed("1"),)
    )
    assert "hush" not in json.dumps(list(looks(NODE, [[Wanted(told)]])))
