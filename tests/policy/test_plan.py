"""One look at the node after another: who comes, who stays, who ends, who is tried again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import Affinity, FirstGrant, PodPhase
from agent.policy.judgement import judge
from agent.policy.node_fit import NodeCapacity
from agent.policy.plan import start_container
from agent.policy.restore import fresh, refit
from tests.nodes import memory_of, named, node
from tests.pods import app, guaranteed, init, sized
from tests.policy.cpu_machines import regular
from tests.policy.looking import ROOM, A, B, C, Node

INIT = "cpu=1 memory=3Gi"


def test_pods_come_in_the_order_of_their_source() -> None:
    here = Node()
    assert here.look(A, B, C) == "admitted a, admitted b, refused c"
    assert here.cpus == "a/app=1-2 b/app=3-6 shared=0,7"
    assert here.state.generation == 1


def test_a_record_says_where_the_pod_was_aligned_and_what_it_got_first() -> None:
    here = Node(node(regular(8, numa=2), topology_policy="best-effort"))
    here.look(named("a", guaranteed("3")))
    record = here.state.pods["a"]
    assert record.affinities["app"] == Affinity(0b1, preferred=True)
    assert record.first == FirstGrant(cpus=here.state.grants.cpu.entries["a"])


def test_the_same_look_again_changes_nothing_and_says_nothing() -> None:
    here = Node()
    here.look(A, B, C)
    before = here.state
    assert here.look(A, B, C) == ""
    assert here.state is before
    assert here.refused["default/c"].reason == "UnexpectedAdmissionError"


def test_a_start_ends_the_memory_of_init_containers_once() -> None:
    here = Node(node(regular(8), memory_policy="Static"))
    here.look(named("a", init(INIT, INIT), guaranteed("1", "2Gi")))
    assert memory_of(here.state.grants, "a") == "init=1@0 app=2@0"
    here.state = start_container(here.state, "a", "app")
    assert memory_of(here.state.grants, "a") == "app=2@0"
    assert start_container(here.state, "a", "app") is here.state


def test_a_start_takes_nothing_from_who_starts_and_brings_no_terminating_pod_back() -> None:
    here = Node(node(regular(8), memory_policy="Static"))
    here.look(named("a", init(INIT, INIT), init(INIT, INIT, name="own"), guaranteed("1", "2Gi")))
    before = here.state
    assert memory_of(before.grants, "a") == "init=0@0 own=1@0 app=2@0"
    here.state = start_container(before, "a", "own")
    assert memory_of(here.state.grants, "a") == "own=1@0 app=2@0"
    assert here.state.pods["a"].phase is PodPhase.RUNNING
    assert here.state.generation == before.generation + 1
    here.look(alive=frozenset({("a", "own")}))
    ends = here.state
    assert ends.pods["a"].phase is PodPhase.TERMINATING
    assert start_container(ends, "a", "app").pods["a"].phase is PodPhase.TERMINATING


def test_a_restart_at_any_moment_finds_the_same() -> None:
    here = Node()
    here.look(A, B, C)
    again = Node()
    again.state = replace(here.state, grants=refit(again.managers, here.state.grants))
    assert again.state == here.state
    assert again.look(A, B, C, retry=True) == "refused c"  # said once by the new process
    assert again.cpus == here.cpus


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
