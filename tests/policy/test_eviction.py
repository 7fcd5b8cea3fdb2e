"""Who may be evicted for want of room, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.model.pod import Pod
from agent.model.state import Mark, PodPhase, PodRecord, State
from agent.policy.eviction import kept, next_eviction, waiting_since
from agent.policy.observation import Observation, Wanted
from tests.nodes import named
from tests.states import EPOCH

FULL = Mark("TopologyAffinityError", "no room")


def pod(name: str = "a", priority: int | None = None, *, klass: str = "", **annotations: str) -> Pod:
    notes = {f"kubernetes.io/config.{key}": text for key, text in annotations.items()}
    return replace(named(name), priority=priority, priority_class_name=klass, annotations=notes)


@pytest.mark.parametrize(
    ("who", "controller", "mark", "why"),
    [
        pytest.param(pod(), "ReplicaSet", FULL, "", id="somebody makes it anew"),
        pytest.param(pod(priority=1_999_999_999), "Job", FULL, "", id="as important as users can make it"),
        pytest.param(pod(source="api"), "StatefulSet", FULL, "", id="as a kubelet marks what the API server gave it"),
        pytest.param(pod(), "", FULL, "nobody would make it anew", id="no controller"),
        pytest.param(pod(), "DaemonSet", FULL, "it would come back here", id="a daemon"),
        pytest.param(
            pod(mirror="0" * 32), "Node", FULL, "it is a static pod", id="the API server's copy of a static pod"
        ),
        pytest.param(pod(source="file"), "", FULL, "it is a static pod", id="a static pod as its kubelet lists it"),
        pytest.param(pod(priority=2_000_000_000), "ReplicaSet", FULL, "it is critical", id="cluster-critical"),
        pytest.param(pod(priority=2_000_001_000), "ReplicaSet", FULL, "it is critical", id="node-critical"),
        pytest.param(pod(klass="system-node-critical"), "Job", FULL, "it is critical", id="critical by its class"),
        pytest.param(pod(), "Job", Mark("InvalidPod", ""), "it is invalid on every node", id="invalid"),
        pytest.param(pod(), "Job", Mark("Paused", ""), "the agent was paused", id="paused"),
        pytest.param(pod(), "Job", Mark("DevicesAwaited", ""), "it waits for its devices", id="awaits its devices"),
    ],
)
def test_who_is_never_evicted(who: Pod, controller: str, mark: Mark, why: str) -> None:
    assert kept(who, controller, mark) == why


def node(*pods: Pod, source: str = "kubelet", **seen: Any) -> tuple[State, Observation]:
    """These pods are here, unplaced, and listed with a ReplicaSet."""
    records = {each.uid: PodRecord(each, source=source, unplaced=FULL) for each in pods}
    wanted = [Wanted(each, source, controller="ReplicaSet") for each in pods]
    return State(EPOCH, pods=records), replace(Observation(wanted), **seen)


def chosen(state: State, seen: Observation, **waited: float) -> str:
    """Who is evicted at 100 s, being unplaced since these seconds, if 10 s are enough."""
    found = next_eviction(state, seen, waited, {}, 100.0, 10.0)
    return found.name if found is not None else ""


def test_a_pod_is_evicted_after_its_time_and_not_before() -> None:
    here = node(pod())
    assert [chosen(*here, a=since) for since in (89.0, 90.0, 91.0)] == ["a", "a", ""]
    assert chosen(*here) == ""


def test_the_least_important_goes_first_and_of_these_the_last_in_line() -> None:
    here = node(pod("a", 5), pod("b"), pod("c", 0), pod("d", 7))
    assert chosen(*here, a=1, b=1, c=1, d=1) == "c"
    assert chosen(*here, a=1, b=1, d=1) == "b"
    assert chosen(*here, a=1, d=1) == "a"
    assert chosen(*node(pod("a"), pod("b", 1)), a=1, b=1) == "a"


def test_a_pod_that_could_not_be_evicted_lets_others_go_first() -> None:
    state, seen = node(pod("a"), pod("b"))
    since = {"a": 1.0, "b": 1.0}
    found = next_eviction(state, seen, since, {"b": 101.0}, 100.0, 10.0)
    assert found is not None
    assert found.name == "a"
    assert next_eviction(state, seen, since, {"b": 100.0, "a": 200.0}, 100.0, 10.0) == pod("b")


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        pytest.param({"unplaced": None}, {}, id="it has its place"),
        pytest.param({"phase": PodPhase.TERMINATING}, {}, id="it goes already"),
        pytest.param({}, {"wanted": ()}, id="its source does not list it any more"),
        pytest.param({}, {"wanted": (Wanted(pod(), "kubelet", terminal=True, controller="Job"),)}, id="it has ended"),
        pytest.param({}, {"wanted": (Wanted(pod(), "manifests", controller="Job"),)}, id="no API server has it"),
        pytest.param({}, {"wanted": (Wanted(pod(), "kubelet", controller="DaemonSet"),)}, id="it would come back"),
        pytest.param({}, {"wanted": (Wanted(pod(), "kubelet"),)}, id="nobody would make it anew"),
    ],
)
def test_nobody_else_is_evicted(change: dict[str, Any], seen: dict[str, Any]) -> None:
    state, observed = node(pod(), **seen)
    record = replace(state.pods["a"], **change)
    assert chosen(replace(state, pods={"a": record}), observed, a=1) == ""


def test_those_after_one_that_has_its_place_can_be_evicted() -> None:
    state, seen = node(pod("a"), pod("b"))
    placed = replace(state.pods["a"], unplaced=None)
    assert chosen(replace(state, pods={**state.pods, "a": placed}), seen, a=1, b=1) == "b"


def test_time_counts_from_the_first_look_at_which_all_was_well() -> None:
    state, seen = node(pod("a"), pod("b"))
    first = waiting_since({}, state, seen, ready=True, now=10.0)
    assert first == {"a": 10.0, "b": 10.0}
    gone = replace(state, pods={"a": state.pods["a"]})
    assert waiting_since(first, gone, seen, ready=True, now=20.0) == {"a": 10.0}


@pytest.mark.parametrize(
    ("seen", "ready"),
    [
        pytest.param({}, False, id="not ready"),
        pytest.param({"paused": True}, True, id="paused"),
        pytest.param({"silent_sources": frozenset({"apiserver"})}, True, id="a source is silent"),
    ],
)
def test_while_anything_is_wrong_nobody_waits_for_eviction(seen: dict[str, Any], *, ready: bool) -> None:
    state, observed = node(pod(), **seen)
    assert waiting_since({"a": 10.0}, state, observed, ready=ready, now=20.0) == {}
