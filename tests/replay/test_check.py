"""The comparison itself: it finds every wrong answer, and only these. A check that cannot fail is a defect."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.runner import answer
from tests.replay.recorded import RECORDS, answered
from tests.shared import KUBELET, QUEUES, records

Path = tuple[Any, ...]
INFORMATION = {"stage"}
BY_PREFIX = {"message", "error", "new_error"}
MANY_NODES = {"error": "unsupported on machines with more than 8 NUMA Nodes"}


def mutations(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every place of an answer with another value for it that means something else."""
    match value:
        case dict():
            for key, inner in value.items():
                if key not in INFORMATION:
                    yield from mutations(inner, (*path, key))
        case list():
            if value:
                yield path, value[:-1]
                yield path, [*value, value[-1]]
            for index, inner in enumerate(value):
                yield from mutations(inner, (*path, index))
        case bool():
            yield path, not value
        case int() | float():
            yield (
                path,
                value + (1 if "fairShare" not in path else 1 + abs(value)),
            )  # shares are floats: 1e-9 does not count
            yield path, str(value)
        case str():
            yield path, "x" + value
            if value and (path[-1] not in BY_PREFIX):
                yield path, value + "9"
                yield path, value[:-1]
        case None:
            yield path, "x"


def changed(output: Any, path: Path, value: Any) -> Any:
    copied = copy.deepcopy(output)
    place = copied
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return copied


def judged(record: dict[str, Any], output: Any) -> str | None:
    return check(record, {"kind": record["kind"], "id": record["id"], "output": output}, Tally())


def whole(name: str) -> list[tuple[dict[str, Any], Any]]:
    """Our records with everything that we answer as what is wanted, and our answers."""
    found = []
    for record, line in answered(RECORDS / name):
        output = line["output"]
        if record["kind"] != "topology" and "alternative_errors" not in record and record.get("parity_until") is None:
            found.append(({**record, "want": output}, output))
    return found


OURS = [*whole("admission.jsonl"), *whole("startup.jsonl")]


def test_a_right_answer_is_right() -> None:
    assert [judged(record, output) for record, output in OURS] == [None] * len(OURS)


@given(st.data())
def test_every_change_of_a_right_answer_is_found(data: st.DataObject) -> None:
    record, output = data.draw(st.sampled_from(OURS))
    path, value = data.draw(st.sampled_from(list(mutations(output))))
    assert judged(record, changed(output, path, value)) is not None, (record["id"], path, value)


@given(st.data())
def test_every_key_that_is_missing_is_found(data: st.DataObject) -> None:
    record, output = data.draw(st.sampled_from(OURS))
    places = [path for path, value in leaves(output) if path[-1] not in INFORMATION and not empty(value)]
    path = data.draw(st.sampled_from(places))
    copied = copy.deepcopy(output)
    place = copied
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    assert judged(record, copied) is not None, (record["id"], path)


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every key of every map in an answer."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key), inner
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))


def empty(value: Any) -> bool:
    """Null, absent and empty are the same for what grants hold."""
    if isinstance(value, dict):
        return all(map(empty, value.values()))
    return value is None or value == []


STATE = {
    "shared_cpus": "0,3",
    "cpu_entries": {"a": {"c": "1"}},
    "cpu_pod_entries": {"a": "1-2"},
    "memory_entries": {"a": {"c": [["memory", 1, [0]]]}},
    "memory_pod_entries": {"a": [["memory", 1, [0]], ["hugepages-2Mi", 2, [0, 1]]]},
    "machine_state": {
        "0": {"assignments": 1, "cells": [0], "memory": {"memory": {"allocatable": 4, "reserved": 1, "free": 3}}}
    },
}


@pytest.mark.parametrize(
    ("path", "extra"),
    [
        pytest.param(("cpu_entries", "b"), {"c": "3"}, id="a pod more"),
        pytest.param(("cpu_entries", "a", "d"), "3", id="a container more"),
        pytest.param(("cpu_pod_entries", "b"), "3", id="a bubble more"),
        pytest.param(("memory_entries", "b"), {"c": [["memory", 1, [0]]]}, id="a pod's memory more"),
        pytest.param(("memory_entries", "a", "d"), [["memory", 1, [0]]], id="a container's memory more"),
        pytest.param(("memory_pod_entries", "b"), [["memory", 1, [0]]], id="a pod's own memory more"),
        pytest.param(("machine_state", "1"), {"assignments": 0, "cells": [1], "memory": {}}, id="a NUMA node more"),
        pytest.param(("machine_state", "0", "memory", "hugepages-1Gi"), {"free": 1}, id="a resource more"),
    ],
)
def test_what_is_not_wanted_is_found_in_maps_whose_keys_are_data(path: Path, extra: Any) -> None:
    record = scenario({"ops": [{"state": STATE}], "init": {}})
    assert judged(record, {"init": {}, "ops": [{"state": STATE}]}) is None
    assert judged(record, {"init": {}, "ops": [{"state": changed(STATE, path, extra)}]}) is not None


def scenario(want: dict[str, Any] | None, ops: int = 1, **more: Any) -> dict[str, Any]:
    pods = [{"op": "admit", "pod": {"metadata": {"uid": uid}}} for uid in "abcd"[:ops]]
    return {
        "kind": "admission",
        "id": "x",
        "input": {"config": {"cpu_policy": "static"}, "ops": pods},
        "want": want,
    } | more


def test_blocks_and_hints_are_sets_and_null_is_empty() -> None:
    record = scenario({"init": {}, "ops": [{"state": STATE}]})
    state = changed(STATE, ("memory_pod_entries", "a"), list(reversed(STATE["memory_pod_entries"]["a"])))  # type: ignore[index]
    assert judged(record, {"init": {}, "ops": [{"state": {**state, "more": 1}}]}) is None
    pod = {"containers": [{"name": "c", "assigned_cpus": None, "memory": None}], "pod_memory": None}
    record = scenario({"init": {}, "ops": [{"pod": pod, "state": {}}]})
    bare = {"containers": [{"name": "c", "memory": []}]}
    assert judged(record, {"init": {}, "ops": [{"pod": bare, "state": {"shared_cpus": "0"}}]}) is None


def test_messages_may_say_more_but_not_less() -> None:
    record = scenario({"init": {}, "ops": [{"admitted": False, "reason": "R", "message": "too few"}]})
    for message, right in (("too few CPUs", True), ("too few", True), ("too fe", False), ("far too few", False)):
        answer_ = {"admitted": False, "reason": "R", "message": message}
        assert (judged(record, {"init": {}, "ops": [answer_]}) is None) is right


@pytest.mark.parametrize(
    ("outcomes", "found"),
    [
        pytest.param([{"admitted": True, "state": {"shared_cpus": "0"}}], "no outcome", id="an op without an outcome"),
        pytest.param([{"admitted": True}, {"admitted": False}], "no state", id="an admission without a state"),
        pytest.param(
            [
                {"admitted": True, "state": {"cpu_entries": {"a": {"c": "1"}}}},
                {"admitted": True, "state": {"cpu_entries": {"a": {"c": "1"}, "b": {"c": "1"}}}},
            ],
            "shares",
            id="two owners",
        ),
        pytest.param(
            [{"admitted": True, "state": {"shared_cpus": "0-1", "cpu_entries": {"a": {"c": "1"}}}}, {}],
            "shares",
            id="exclusive and shared",
        ),
        pytest.param(
            [
                {"admitted": True, "state": {"cpu_entries": {"a": {"c": "1"}}}},
                {"admitted": True, "state": {"cpu_entries": {"a": {"c": "2"}}}},
            ],
            "held 1, now 2",
            id="moved",
        ),
        pytest.param(
            [{"admitted": True, "state": {"memory_entries": {"z": {"c": [["memory", 1, [0]]]}}}}, {}],
            "gone",
            id="held by nobody",
        ),
    ],
)
def test_where_nothing_is_demanded_an_answer_must_still_be_safe(outcomes: list[dict[str, Any]], found: str) -> None:
    said = judged(scenario(None, ops=2), {"init": {}, "ops": outcomes})
    assert said is not None
    if found != "no outcome":
        assert found in said
    until = scenario({"init": {}, "ops": [{}, {}]}, ops=2, parity_until=0)
    assert judged(until, {"init": {}, "ops": outcomes}) is not None


def test_a_pick_where_nothing_is_demanded_has_the_right_size_and_takes_what_is_free() -> None:
    record = {"kind": "take_cpus", "id": "x", "input": {"n": 2, "available": "1-3"}, "want": None}
    for output, right in (
        ({"cpus": "1-2"}, True),
        ({"error": "none"}, True),
        ({"cpus": "1"}, False),
        ({"cpus": "3-4"}, False),
        ({}, False),
    ):
        assert (judged(record, output) is None) is right, output


@pytest.mark.parametrize(
    ("want", "output"),
    [
        ({"error": "no"}, {"error": "yes"}),
        ({"error": "no"}, {"cpus": "1"}),
        ({"error": "no"}, {"error": "no", "cpus": "1"}),
        ({"cpus": "1"}, {"error": "no"}),
        ({"cpus": "1"}, {"cpus": ""}),
    ],
)
def test_an_error_is_not_an_answer_and_an_answer_no_error(want: dict[str, Any], output: dict[str, Any]) -> None:
    record = {"kind": "take_cpus", "id": "x", "input": {"n": 1, "available": "1"}, "want": want}
    assert judged(record, output) is not None


def test_any_of_several_errors_is_right_and_no_other() -> None:
    record = {"kind": "startup", "id": "x", "input": {}, "want": {"error": "a"}, "alternative_errors": ["a", "b"]}
    for output, right in (({"error": "b!"}, True), ({"error": "c"}, False), ({"error": ""}, False), ({}, False)):
        assert (judged(record, output) is None) is right, output


def test_a_bad_record_and_a_record_without_want_count_as_different() -> None:
    tally = Tally()
    assert check({"kind": "startup"}, {"error": "bad record"}, tally) == "bad record"
    assert check({"kind": "startup"}, {"output": {}}, tally) is not None
    assert check(None, {"error": "not JSON"}, tally) == "not JSON"
    assert (tally.ok, tally.differ, tally.known) == (0, 3, 0)


SHARED_KINDS = (
    *("topology", "take_cpus", "topology_hints", "admission", "startup", "checkpoint", "effective_requests", "pod_qos"),
    *("fair_share", "reclaimable", "queue_order", "resize_admission", "capacity_policy"),
)
NOT_COMPARED = {
    "resize_admission": {"message", "oldSpec", "newSpec", "effectiveOld"},
    "capacity_policy": {"message"},
}


@pytest.mark.shared
@pytest.mark.parametrize("name", SHARED_KINDS)
@given(data=st.data())
def test_a_changed_answer_to_a_recorded_question_is_found(name: str, data: st.DataObject) -> None:
    record, output, wanted = data.draw(st.sampled_from(recorded(name)))
    path, value = data.draw(st.sampled_from(wanted))
    assert judged(record, changed(output, path, value)) is not None, (record["id"], path, value)


@functools.cache
def recorded(name: str) -> list[tuple[dict[str, Any], Any, list[tuple[Path, Any]]]]:
    """Some recorded questions of a kind that demand something, with our answers and the changes of these that matter."""
    context, found = Context(), []
    file = f"{'take_cpus' if name == 'topology' else name}.jsonl.gz"
    for record in records((KUBELET if (KUBELET / file).exists() else QUEUES) / file):
        output = answer(record, context)["output"]
        if record["kind"] != name or "alternative_errors" in record or "parity_ends" in record:
            continue
        wanted = [
            (path, value)
            for path, value in mutations(output)
            if reaches(record["want"], path) and not {*path} & NOT_COMPARED.get(name, set())
        ]
        if wanted and "unsupported on machines" not in str(record["want"]):
            found.append((record, output, wanted))
        if len(found) == 40:
            break
    return found


def reaches(want: Any, path: Path) -> bool:
    """Whether this place of an answer is compared."""
    for step in path:
        try:
            want = want[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


@pytest.mark.parametrize(
    ("kind", "want", "output", "known"),
    [
        pytest.param("startup", MANY_NODES, {"allocatable_cpus": "1-3"}, True, id="a start"),
        pytest.param("startup", MANY_NODES, {"error": "something later"}, True, id="refused for something later"),
        pytest.param("startup", MANY_NODES, {}, False, id="no answer"),
        pytest.param("startup", {"error": "anything else"}, {"allocatable_cpus": "1-3"}, False, id="another error"),
        pytest.param("take_cpus", MANY_NODES, {"cpus": "1-3"}, False, id="another kind"),
        pytest.param(
            "topology_hints", {"new_error": MANY_NODES["error"]}, {"best": {}, "admit": True}, True, id="a merge"
        ),
        pytest.param(
            "topology_hints", {"new_error": MANY_NODES["error"]}, {"new_error": "x"}, False, id="another refusal"
        ),
    ],
)
def test_a_known_difference_is_counted_where_it_explains_the_answer(
    kind: str, want: dict[str, Any], output: dict[str, Any], known: bool
) -> None:
    tally = Tally()
    record = {"kind": kind, "id": "x", "input": {}, "want": want}
    difference = check(record, {"kind": kind, "id": "x", "output": output}, tally)
    assert (difference is None, tally.known, tally.differ) == (known, int(known), int(not known))
