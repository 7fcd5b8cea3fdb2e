"""One look at the node after another: who comes, who stays, who ends, who is tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import PodPhase
from agent.policy.judgement import judge
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Wanted
from agent.policy.plan import start_container
from agent.policy.restore import fresh, refit
from tests.nodes import memory_of, named, node
from tests.pods import app, guaranteed, init, sized
from tests.policy.cpu_machines import regular
from tests.policy.looking import ROOM, A, B, C, Node, nameless

INIT = "cpu=1 memory=3Gi"


def test_pods_come_in_the_order_of_their_source() -> None:
    here = Node()
    assert here.look(A, B, C) == "admitted a, admitted b, refused c"
    assert here.cpus == "a/app=1-2 b/app=3-6 shared=0,7"
    assert here.state.generation == 1


def test_the_same_look_again_changes_nothing_and_says_nothing() -> None:
    here = Node()
    here.look(A, B, C)
    before = here.state
    assert here.look(A, B, C) == ""
    assert here.state is before
    assert here.refused["default/c"].reason == "UnexpectedAdmissionError"


def test_the_last_pods_cpus_return_without_any_other_event() -> None:
    """BL-31: no other pod has to come before the grant is released."""
    here = Node(node(regular(4)))
    here.look(A)
    assert here.look() == "released a"
    assert here.cpus == "shared=0-3"
    assert (here.state.pods, here.state.manifest_uids) == ({}, {})


def test_a_pod_keeps_its_grant_until_its_containers_have_stopped() -> None:
    here = Node()
    here.look(A)
    assert here.look(alive=frozenset({("a", "app")})) == "terminating a"
    assert here.look(alive=frozenset({("a", "app")})) == ""
    assert (here.state.pods["a"].phase, here.cpus) == (PodPhase.TERMINATING, "a/app=1-2 shared=0,3-7")
    assert here.look() == "released a"


def test_a_silent_source_releases_nothing_and_a_source_that_lists_nothing_does() -> None:
    here = Node()
    here.look(A)
    assert here.look(silent_sources=frozenset({"manifests"})) == ""
    assert here.cpus == "a/app=1-2 shared=0,3-7"
    assert here.look() == "released a"


def test_what_was_refused_is_tried_again_once_something_is_free() -> None:
    here = Node()
    here.look(A, B, C)
    assert here.look(B, C) == "released a, admitted c"
    assert here.cpus == "b/app=3-6 c/app=1-2,7 shared=0"
    assert here.refused == {}


def test_what_was_refused_is_tried_again_when_it_asks_for_something_else_or_the_rules_change() -> None:
    here = Node()
    here.look(A, B, C)
    assert here.look(A, B, replace(C, containers=(guaranteed("1"),))) == "admitted c"
    other = Node()
    other.look(A, B, C)
    other.managers = node(regular(16))
    other.state = replace(other.state, grants=refit(other.managers, other.state.grants))
    assert other.look(A, B, C, retry=True) == "admitted c"


def test_a_refusal_is_said_again_only_when_the_pod_or_the_reason_differs() -> None:
    """Its numbers differ with every other pod that comes or goes: they are shown, and are no news."""
    here = Node()
    here.look(A, B, C)
    before = here.refused["default/c"].message
    assert here.look(A, B, C, retry=True) == ""
    smaller = named("s", guaranteed("1"))
    assert here.look(A, B, smaller, C, retry=True) == "admitted s"
    assert here.refused["default/c"].message != before
    assert here.look(A, B, smaller, replace(C, containers=(guaranteed("4"),))) == "refused c"


def test_a_container_that_starts_anew_has_what_it_had() -> None:
    """BL-30: the grant belongs to pod and container name, whatever instance starts or stops."""
    here = Node()
    here.look(A)
    started = start_container(here.state, "a", "app")
    assert started.pods["a"].phase is PodPhase.RUNNING
    again = start_container(started, "a", "app")
    assert again is started
    here.state = again
    assert here.look(A, alive=frozenset()) == ""
    assert here.cpus == "a/app=1-2 shared=0,3-7"


def test_a_start_ends_the_memory_of_init_containers_once() -> None:
    here = Node(node(regular(8), memory_policy="Static"))
    here.look(named("a", init(INIT, INIT), guaranteed("1", "2Gi")))
    assert memory_of(here.state.grants, "a") == "init=1@0 app=2@0"
    here.state = start_container(here.state, "a", "app")
    assert memory_of(here.state.grants, "a") == "app=2@0"
    assert start_container(here.state, "a", "app") is here.state


def test_a_restart_at_any_moment_finds_the_same() -> None:
    here = Node()
    here.look(A, B, C)
    again = Node()
    again.state = replace(here.state, grants=refit(again.managers, here.state.grants))
    assert again.state == here.state
    assert again.look(A, B, C, retry=True) == "refused c"  # said once by the new process
    assert again.cpus == here.cpus


# --- names and uids ---------------------------------------------------------------------------------------------------------


def test_a_manifest_without_a_uid_keeps_the_one_it_was_given() -> None:
    here = Node()
    assert here.look(nameless("web"), fresh_uids=["u1"]) == "admitted web"
    assert here.look(nameless("web"), fresh_uids=["u2"]) == ""
    assert list(here.state.pods) == ["u1"]


def test_another_pod_under_a_name_waits_until_the_one_before_has_ended() -> None:
    here = Node()
    here.look(A)
    other = replace(named("a", guaranteed("4")), uid="other")
    assert here.look(other, alive=frozenset({("a", "app")})) == "terminating a, waiting a"
    assert here.look(other) == "released a, admitted a"
    assert here.cpus == "other/app=1-4 shared=0,5-7"


def test_an_edit_of_anything_but_sizes_ends_the_pod_and_admits_a_new_one() -> None:
    here = Node()
    here.look(Wanted(nameless("web"), fingerprint="one"), fresh_uids=["u1"])
    assert here.look(Wanted(nameless("web"), fingerprint="two"), fresh_uids=["u2"]) == "released web, admitted web"
    assert list(here.state.pods) == ["u2"]


def test_two_pods_of_one_uid_are_told_apart_by_name() -> None:
    here = Node()
    twin = replace(named("b", guaranteed("1")), uid="a")
    assert here.look(A, twin) == "admitted a, refused b"
    assert here.refused["default/b"].reason == "DuplicateUID"


# --- the order of the checks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(named("p", app("cpu=3", "cpu=2")), "InvalidPod", id="a request above its limit"),
        pytest.param(
            named("p", guaranteed("4"), resources=sized("cpu=2 memory=1Gi", "cpu=2 memory=1Gi")),
            "InvalidPod",
            id="containers above their pod",
        ),
        pytest.param(named("p", guaranteed("9")), "UnexpectedAdmissionError", id="the managers come before node fit"),
        pytest.param(named("p", app("cpu=9")), "OutOfcpu", id="node fit comes last"),
    ],
)
def test_the_first_check_that_fails_gives_the_reason(pod: Pod, reason: str) -> None:
    room = NodeCapacity({}, {**ROOM.allocatable, "cpu": Quantity.of(7)})
    here = Node(room=room)
    verdict = judge(here.managers, here.room, here.state, pod)
    assert verdict.reason == reason
    assert verdict.rule
    assert verdict.grants is here.state.grants


@given(st.lists(st.lists(st.sampled_from([A, B, C]), unique_by=lambda pod: pod.uid, max_size=3), max_size=8), st.data())
def test_after_any_looks_only_wanted_pods_hold_something(looks: list[list[Pod]], data: st.DataObject) -> None:
    here = Node()
    for pods in looks:
        alive = frozenset((uid, "app") for uid in here.state.pods if data.draw(st.booleans()))
        here.look(*pods, alive=alive)
        held = set(here.state.grants.cpu.entries)
        assert held == set(here.state.pods)
        assert held <= {pod.uid for pod in pods} | {uid for uid, _ in alive}
        before = here.state
        assert here.look(*pods, alive=alive) == ""
        assert here.state is before
    here.look()
    assert here.state.grants == fresh(here.managers)
