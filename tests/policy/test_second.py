"""Being second beside a kubelet: nobody is refused, nobody is moved, and what lacks is said and tried again."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from agent.model.pod import Pod
from agent.model.state import PodPhase, ResizeState, State
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Decision, Event, Observation, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from tests.nodes import cpus_of, memory_of, named, node
from tests.pods import amounts, app, guaranteed, init
from tests.policy.cpu_machines import regular
from tests.states import EPOCH

CAPACITY = NodeCapacity(amounts("cpu=8 memory=64Gi pods=110"), amounts("cpu=7 memory=64Gi pods=110"))


@dataclass
class Node:
    """Eight CPUs, CPU 0 reserved, and what a kubelet lists on it."""

    managers: Managers = field(default_factory=lambda: node(regular(8)))
    state: State = field(default_factory=lambda: State(EPOCH))
    refused: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = replace(self.state, grants=fresh(self.managers))

    def look(
        self, *wanted: Wanted, silent: str = "", alive: str = "", paused: bool = False, retry: bool = False
    ) -> list[tuple[Event, str]]:
        seen = Observation(
            wanted, frozenset(silent.split()), frozenset((uid, "") for uid in alive.split()), (), 1.0, None, paused
        )
        plan = decide(self.managers, CAPACITY, self.state, seen, {}, retry=retry)
        self.state = plan.state
        self.last: tuple[Decision, ...] = plan.decisions
        return [(each.event, each.pod.name) for each in plan.decisions]

    @property
    def cpus(self) -> str:
        return cpus_of(self.state.grants)


def listed(name: str, cpus: str = "", *, terminal: bool = False, running: str = "", deleted: str = "") -> Wanted:
    pod: Pod = named(name, guaranteed(cpus) if cpus else app())
    return Wanted(replace(pod, deletion_timestamp=deleted), "kubelet", terminal=terminal, running=running)


def test_a_pod_that_does_not_fit_runs_in_the_shared_pool_with_its_reason() -> None:
    here = Node()
    assert here.look(listed("a", "5"), listed("b", "4")) == [(Event.ADMITTED, "a"), (Event.UNPLACED, "b")]
    mark = here.state.pods["b"].unplaced
    assert mark is not None
    assert mark.reason == "UnexpectedAdmissionError"
    assert "requested=4, available=2" in mark.message
    unplaced = here.last[1]
    assert unplaced.reason == mark.reason
    assert mark.message == f"{unplaced.message} ({unplaced.hint})"
    assert here.cpus == "a/app=1-5 shared=0,6-7"


def test_it_gets_its_cpus_when_something_frees_and_not_before() -> None:
    here = Node()
    here.look(listed("a", "5"), listed("b", "4"))
    before = here.state
    assert here.look(listed("a", "5"), listed("b", "4")) == []
    assert here.state is before
    assert here.look(listed("b", "4")) == [(Event.RELEASED, "a"), (Event.PLACED, "b")]
    assert here.state.pods["b"].unplaced is None
    assert here.state.pods["b"].first.cpus.keys() == {"app"}
    assert here.cpus == "b/app=1-4 shared=0,5-7"


def test_an_unplaced_pod_goes_before_one_that_has_just_come() -> None:
    here = Node()
    here.look(listed("a", "5"), listed("b", "4"))
    happened = here.look(listed("c", "4"), listed("b", "4"))
    assert happened == [(Event.RELEASED, "a"), (Event.PLACED, "b"), (Event.UNPLACED, "c")]


def test_an_unplaced_pod_that_is_terminating_is_not_placed_any_more() -> None:
    here = Node()
    here.look(listed("a", "5"), listed("b", "4"))
    assert here.look(listed("b", "4", deleted="2026-01-01T00:00:00Z")) == [
        (Event.RELEASED, "a"),
        (Event.TERMINATING, "b"),
    ]
    assert here.cpus == "shared=0-7"


def test_a_pod_that_shrinks_while_it_waits_is_tried_with_its_new_size() -> None:
    here = Node()
    here.look(listed("a", "5"), listed("b", "4"))
    assert here.look(listed("a", "5"), listed("b", "2")) == [(Event.PLACED, "b")]
    assert here.cpus == "a/app=1-5 b/app=6-7 shared=0"


def test_the_kubelet_alone_judges_whether_a_pod_fits_the_node() -> None:
    here = Node()
    large = Wanted(named("large", app("cpu=20")), "kubelet")
    assert here.look(large) == [(Event.ADMITTED, "large")]
    assert here.look(large, Wanted(named("ours", app("cpu=20")), "manifests"))[0] == (Event.REFUSED, "ours")


def test_a_terminating_pod_keeps_its_cpus_until_the_source_has_let_it_go_and_its_tasks_are_gone() -> None:
    here = Node()
    here.look(listed("a", "2", running="app"))
    assert here.state.pods["a"].phase is PodPhase.RUNNING
    assert here.look(listed("a", "2", deleted="2026-01-01T00:00:00Z")) == [(Event.TERMINATING, "a")]
    assert here.last[0].message == "keeps what it holds until its containers have stopped"
    assert here.look(alive="a") == []
    assert here.cpus == "a/app=1-2 shared=0,3-7"
    assert here.look() == [(Event.RELEASED, "a")]


def test_a_pod_that_is_terminating_when_it_is_seen_first_holds_what_it_was_given_until_it_has_ended() -> None:
    here = Node()
    assert here.look(listed("a", "2", running="app", deleted="2026-01-01T00:00:00Z")) == [(Event.ADMITTED, "a")]
    assert here.state.pods["a"].phase is PodPhase.TERMINATING
    assert here.cpus == "a/app=1-2 shared=0,3-7"


def test_a_pod_that_a_listing_left_out_and_that_still_runs_goes_on_when_it_is_listed_again() -> None:
    here = Node()
    here.look(listed("a", "2", running="app"))
    assert here.look(alive="a") == [(Event.TERMINATING, "a")]
    assert here.look(listed("a", "2", running="app")) == []
    assert here.state.pods["a"].phase is PodPhase.RUNNING
    assert here.cpus == "a/app=1-2 shared=0,3-7"


@pytest.mark.parametrize("alive", ["", "a"])
def test_a_terminal_pod_gives_back_once_its_containers_have_stopped(alive: str) -> None:
    here = Node()
    here.look(listed("a", "2"))
    expected = (Event.TERMINATING if alive else Event.RELEASED, "a")
    assert here.look(listed("a", "2", terminal=True), alive=alive) == [expected]
    assert here.look(listed("a", "2", terminal=True)) == ([(Event.RELEASED, "a")] if alive else [])
    assert here.cpus == "shared=0-7"


def test_a_terminal_pod_is_never_admitted() -> None:
    here = Node()
    assert here.look(listed("done", "2", terminal=True)) == []
    assert not here.state.pods


def test_silence_releases_nothing() -> None:
    here = Node()
    here.look(listed("a", "2"))
    assert here.look(silent="kubelet") == []
    assert here.cpus == "a/app=1-2 shared=0,3-7"


def test_the_source_that_lists_a_pod_speaks_for_it() -> None:
    """Imported records carry `apiserver`; where only the kubelet is asked, it takes them over."""
    here = Node()
    here.look(replace(listed("a", "2"), source="apiserver"))
    here.look(listed("a", "2"), silent="")
    assert here.state.pods["a"].source == "kubelet"


def test_an_accepted_resize_that_does_not_fit_leaves_the_pins_and_degrades_the_pod() -> None:
    here = Node(node(regular(8)))
    here.look(listed("a", "2"), listed("b", "4"))
    here.look(listed("a", "5"), listed("b", "4"))
    record = here.state.pods["a"]
    assert record.resize.state in (ResizeState.DEFERRED, ResizeState.INFEASIBLE)
    assert record.degraded is not None
    assert record.degraded.reason == "ResizeDoesNotFit"
    assert here.cpus == "a/app=1-2 b/app=3-6 shared=0,7"
    here.look(listed("a", "2"), listed("b", "4"))
    assert here.state.pods["a"].degraded is None


def test_while_paused_nobody_gets_anything_exclusive() -> None:
    here = Node()
    ours = Wanted(named("ours", guaranteed("1")), "manifests")
    happened = here.look(listed("a", "2"), ours, listed("shared"), paused=True)
    assert happened == [(Event.UNPLACED, "a"), (Event.REFUSED, "ours"), (Event.ADMITTED, "shared")]
    assert {each.reason for each in here.last if each.reason} == {"Paused"}
    assert here.cpus == "shared=0-7"
    assert here.look(listed("a", "2"), listed("shared"), paused=True, retry=True) == []
    assert here.look(listed("a", "2"), listed("shared"), retry=True) == [(Event.PLACED, "a")]


def test_memory_of_init_containers_is_free_once_a_later_container_runs() -> None:
    here = Node(node(regular(8), memory_policy="Static"))
    sizes = "cpu=1 memory=4Gi"
    pod = named("a", init(sizes, sizes), guaranteed("1"))
    here.look(Wanted(pod, "kubelet"))
    held = here.state.grants.memory.machine[0].memory["memory"].reserved
    here.look(Wanted(pod, "kubelet", running="init"))
    assert here.state.grants.memory.machine[0].memory["memory"].reserved == held
    here.look(Wanted(pod, "kubelet", running="app"))
    assert set(here.state.grants.memory.entries["a"]) == {"app"}
    assert here.look(Wanted(pod, "kubelet", running="app")) == []


def test_memory_of_an_ended_init_container_goes_to_a_pod_that_waits_for_it_at_the_same_look() -> None:
    here = Node(node(regular(8), memory_policy="Static", memory_gib=8))
    sizes = "cpu=1 memory=5Gi"
    first = Wanted(named("a", init(sizes, sizes), guaranteed("1", "2Gi")), "kubelet")
    second = Wanted(named("b", guaranteed("1", "4Gi")), "kubelet")
    assert here.look(first, second) == [(Event.ADMITTED, "a"), (Event.UNPLACED, "b")]
    assert here.look(replace(first, running="init"), second) == []
    assert here.look(replace(first, running="app"), second) == [(Event.PLACED, "b")]
    assert memory_of(here.state.grants, "b") == "app=4@0"
