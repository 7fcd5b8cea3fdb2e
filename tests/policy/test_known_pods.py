"""Pods that are here, look after look: who keeps what it has, and when it is given back."""

from __future__ import annotations

from dataclasses import replace

from agent.model.state import PodPhase
from agent.policy.observation import Event, Observation, Wanted
from agent.policy.plan import decide, start_container
from tests.nodes import node
from tests.policy.cpu_machines import regular
from tests.policy.looking import A, B, Node, nameless


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
    seen = Observation(alive=frozenset({("a", "app")}))
    (terminating,) = decide(here.managers, here.room, here.state, seen, {}).decisions
    assert terminating.message == "waits for its containers to stop"
    assert here.look(alive=seen.alive) == "terminating a"
    assert here.look(alive=frozenset({("a", "app")})) == ""
    assert (here.state.pods["a"].phase, here.cpus) == (PodPhase.TERMINATING, "a/app=1-2 shared=0,3-7")
    assert here.look() == "released a"


def test_a_silent_source_releases_nothing_and_a_source_that_lists_nothing_does() -> None:
    here = Node()
    here.look(A)
    assert here.look(silent_sources=frozenset({"manifests"})) == ""
    assert here.cpus == "a/app=1-2 shared=0,3-7"
    assert here.look() == "released a"


def test_what_a_silent_source_was_last_heard_to_say_changes_nothing() -> None:
    here = Node()
    here.look(Wanted(A, fingerprint="one"))
    before = here.state
    silent = frozenset({"manifests"})
    assert here.look(Wanted(A, fingerprint="two"), silent_sources=silent, cgroups_seen=True) == ""
    assert here.state is before


def test_a_pod_of_which_nobody_speaks_keeps_no_other_here() -> None:
    here = Node()
    here.look(Wanted(A, "apiserver"), B)
    assert here.look(silent_sources=frozenset({"apiserver"})) == "released b"
    assert here.cpus == "a/app=1-2 shared=0,3-7"


def test_a_pod_that_is_alive_and_of_which_nobody_speaks_goes_on() -> None:
    here = Node()
    here.look(Wanted(A, "apiserver"))
    before = here.state
    alive = frozenset({("b", "app"), ("a", "app")})
    assert here.look(sources=frozenset({"manifests"}), cgroups_seen=True, alive=alive) == ""
    assert here.state is before


def test_what_nobody_knows_and_nobody_is_is_given_back_and_said() -> None:
    here = Node()
    here.look(A, B)
    here.state = replace(here.state, pods={"b": here.state.pods["b"]})
    plan = decide(here.managers, here.room, here.state, Observation([Wanted(B)], cgroups_seen=True), {})
    (released,) = plan.decisions
    assert (released.event, released.pod.uid, released.pod.name) == (Event.RELEASED, "a", "a")
    assert released.message == "its pod is not known here, and nothing of it runs"
    assert here.adopt(plan) == "released a"
    assert here.cpus == "b/app=3-6 shared=0-2,7"


def test_a_pod_that_another_source_speaks_for_is_that_sources_from_then_on() -> None:
    here = Node()
    here.look(Wanted(A, "apiserver"))
    assert here.look(A, silent_sources=frozenset({"apiserver"})) == ""
    assert here.state.pods["a"].source == "manifests"
    assert here.look() == "released a"


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


def test_an_edit_of_anything_but_sizes_ends_the_pod_and_admits_a_new_one() -> None:
    here = Node()
    here.look(Wanted(nameless("web"), fingerprint="one"), fresh_uids=["u1"])
    assert here.look(Wanted(nameless("web"), fingerprint="two"), fresh_uids=["u2"]) == "released web, admitted web"
    assert list(here.state.pods) == ["u2"]
