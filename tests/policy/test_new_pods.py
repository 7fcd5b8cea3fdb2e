"""Pods that are wanted and not here: who is tried, under which UID, and what is said of those that are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.pod import ContainerStatus, Pod, PodStatus
from agent.model.quantity import Quantity
from agent.policy.judgement import judge
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Observation, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh, refit
from tests.nodes import named, node
from tests.pods import app, guaranteed
from tests.policy.cpu_machines import regular
from tests.policy.looking import ROOM, A, B, C, Node, nameless

SMALL = NodeCapacity({}, {**ROOM.allocatable, "memory": Quantity.of(8 << 30), "pods": Quantity.of(3)})
CPUS = named("x", guaranteed("6"))  # beside it the waiting pod has no exclusive CPUs
MEMORY = named("y", app("memory=8Gi"))  # ... no memory
MANY = tuple(named(name, app()) for name in "pqr")  # ... is one too many
OTHERS = {"UnexpectedAdmissionError": (CPUS,), "OutOfmemory": (MEMORY,), "OutOfpods": MANY}  # by the reason they make


def small_node() -> Node:
    return Node(room=SMALL)


def said(happened: str, name: str) -> list[str]:
    """What happened to one pod: ["refused c"]."""
    return [each for each in happened.split(", ") if each.endswith(f" {name}")]


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


def test_another_pod_under_a_name_waits_until_the_one_before_has_ended() -> None:
    here = Node()
    here.look(A)
    other = replace(named("a", guaranteed("4")), uid="other")
    assert here.look(other, alive=frozenset({("a", "app")})) == "terminating a, waiting a"
    assert here.look(other) == "released a, admitted a"
    assert here.cpus == "other/app=1-4 shared=0,5-7"


def test_another_pod_of_a_refused_ones_name_is_told_for_itself_at_once() -> None:
    here = Node()
    here.look(A, B, C)
    assert here.look(A, B, replace(C, uid="other")) == "refused c"
    assert here.refused["default/c"].pod.uid == "other"


def test_a_pod_that_waits_is_told_for_whom_and_tried_once_that_one_is_gone_however_it_went() -> None:
    here = Node()
    here.look(A)
    other = replace(named("a", guaranteed("4")), uid="other")
    here.look(other, alive=frozenset({("a", "app")}))
    refused = here.refused["default/a"]
    assert (refused.reason, refused.message) == ("Waiting", "waits until the pod before it has ended (uid a)")
    here.state = replace(here.state, pods={}, manifest_uids={}, grants=fresh(here.managers))  # by no look
    assert here.look(other) == "admitted a"


def test_two_pods_of_one_uid_are_told_apart_by_name() -> None:
    here = Node()
    twin = replace(named("b", guaranteed("1")), uid="a")
    assert here.look(A, twin) == "admitted a, refused b"
    assert here.refused["default/b"].reason == "DuplicateUID"
    assert here.look(A, twin) == "", "said once"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(Wanted(C, terminal=True), id="has ended for good"),
        pytest.param(Wanted(replace(C, uid="other")), id="waits for another one of its name"),
        pytest.param(Wanted(replace(B, uid="a")), id="has the uid of another"),
        pytest.param(Wanted(A), id="is here"),
        pytest.param(Wanted(replace(A, uid="heir")), id="waits for the pod before it"),
    ],
)
def test_who_is_listed_after_a_pod_that_is_not_tried_is_tried(before: Wanted) -> None:
    here = Node()
    first = (A, named("x", guaranteed("3")), C)
    assert here.look(*first) == "admitted a, admitted x, refused c"
    later = named("later", guaranteed("2"))
    assert "admitted later" in here.look(*first, before, later, alive=frozenset({("a", "app"), ("x", "app")}))


def test_what_was_refused_is_not_tried_again_while_nothing_is_known_to_have_changed() -> None:
    here = Node()
    here.look(A, B, C)
    before = here.refused["default/c"]
    here.managers = node(regular(16))
    here.state = replace(here.state, grants=refit(here.managers, here.state.grants))
    assert here.look(A, B, C) == ""
    assert here.refused["default/c"] is before
    seen = Observation([Wanted(A), Wanted(B), Wanted(C)])
    assert decide(here.managers, here.room, here.state, seen, here.refused).refused["default/c"] is before


def test_reasons_that_take_turns_are_said_once_each_and_shown_each_time() -> None:
    here = small_node()
    heard = []
    for reason in [*OTHERS] * 4:
        heard.append(len(said(here.look(*OTHERS[reason], C), "c")))
        assert here.refused["default/c"].reason == reason
    assert heard == [1, 1, 1, *[0] * 9]


def test_a_pod_that_is_refused_as_before_is_no_change_for_those_who_watch() -> None:
    here = small_node()
    here.look(CPUS, C)
    before = here.refused
    assert here.look(CPUS, C, retry=True) == ""
    assert here.refused == before


def test_a_reason_is_said_again_of_a_pod_that_was_admitted_or_gone_in_between() -> None:
    here = small_node()
    assert said(here.look(CPUS, C), "c") == ["refused c"]
    assert said(here.look(C), "c") == ["admitted c"]
    assert said(here.look(), "c") == ["released c"]
    here.look(CPUS)
    assert said(here.look(CPUS, C), "c") == ["refused c"]
    here.look(CPUS)
    assert said(here.look(CPUS, C), "c") == ["refused c"]


@pytest.mark.parametrize(
    ("change", "news"),
    [
        pytest.param({"containers": (guaranteed("4"),)}, True, id="other sizes"),
        pytest.param({"uid": "other"}, True, id="another pod of that name"),
        pytest.param({"priority": 7}, True, id="another priority"),
        pytest.param({"labels": {"app": "web"}}, False, id="labels"),
        pytest.param({"annotations": {"note": "hello"}}, False, id="annotations"),
        pytest.param({"status": PodStatus(container_statuses=(ContainerStatus("app"),))}, False, id="its status"),
    ],
)
def test_a_refusal_is_news_again_when_the_pod_is_another_one(change: dict[str, object], *, news: bool) -> None:
    here = small_node()
    here.look(CPUS, C)
    here.look(MEMORY, C)
    changed = replace(C, **change)  # type: ignore[arg-type]
    assert said(here.look(CPUS, changed, retry=True), "c") == (["refused c"] if news else [])
    assert said(here.look(MEMORY, changed, retry=True), "c") == (["refused c"] if news else [])


def test_a_manifest_that_waits_keeps_its_uid_so_that_it_is_no_news() -> None:
    here = Node()
    assert here.look(A, B, nameless("c", "3"), fresh_uids=["u1"]) == "admitted a, admitted b, refused c"
    assert here.look(A, B, nameless("c", "3"), fresh_uids=["u2"], retry=True) == ""
    assert here.refused["default/c"].pod.uid == "u1"
    assert here.look(B, nameless("c", "3"), fresh_uids=["u3"]) == "released a, admitted c"
    assert "u1" in here.state.pods


def test_a_manifest_that_waits_and_asks_for_something_else_gets_another_uid() -> None:
    here = Node()
    here.look(A, B, nameless("c", "3"), fresh_uids=["u1"])
    assert here.look(A, B, nameless("c", "4"), fresh_uids=["u2"]) == "refused c"
    assert here.refused["default/c"].pod.uid == "u2"


def test_two_files_of_one_name_that_wait_do_not_share_a_uid() -> None:
    here = Node()
    twins = [nameless("c", "3"), nameless("c", "3")]
    here.look(A, B, *twins, fresh_uids=["u1", "u2"])
    assert here.look(B, *twins, fresh_uids=["u3", "u4"]) == "released a, admitted c, waiting c"
    assert here.refused["default/c"].pod.uid == "u3"


def test_what_waited_for_its_predecessor_does_not_take_over_its_uid() -> None:
    here = Node()
    here.look(Wanted(nameless("c"), fingerprint="one"), fresh_uids=["u1"])
    edited = Wanted(nameless("c"), fingerprint="two")
    assert here.look(edited, alive=frozenset({("u1", "app")}), fresh_uids=["u2"]) == "terminating c, waiting c"
    assert here.look(edited, fresh_uids=["u3"]) == "released c, admitted c"
    assert list(here.state.pods) == ["u3"]


def test_of_two_pods_of_one_name_the_first_is_tried_and_told() -> None:
    """Otherwise each would be news beside the other, look after look."""
    here = Node()
    other = replace(C, uid="other")
    assert here.look(A, B, C, other) == "admitted a, admitted b, refused c"
    assert here.look(A, B, C, other, retry=True) == ""
    assert here.refused["default/c"].pod is C


def test_two_pods_that_wait_for_one_predecessor_are_told_once() -> None:
    here = Node()
    here.look(A)
    alive = frozenset({("a", "app")})
    heirs = [replace(A, uid="heir"), replace(A, uid="other heir")]
    assert here.look(*heirs, alive=alive) == "terminating a, waiting a"
    assert here.look(*heirs, alive=alive) == ""


def test_a_pod_under_a_taken_uid_does_not_hide_another_refusal_of_its_name() -> None:
    here = Node()
    twin = replace(C, uid="a")
    assert here.look(A, B, C, twin) == "admitted a, admitted b, refused c"
    assert here.look(A, B, C, twin, retry=True) == ""
    assert here.refused["default/c"].reason == "UnexpectedAdmissionError"


@given(
    st.lists(
        st.tuples(st.sampled_from([(), *OTHERS.values()]), st.sampled_from(["", "3", "7"]), st.booleans()),
        max_size=12,
    )
)
def test_whoever_comes_and_goes_each_reason_of_a_pod_is_told_once_while_it_waits(
    looks: Sequence[tuple[tuple[Pod, ...], str, bool]],
) -> None:
    """The pod as it is wanted at each look: not at all, or with so many CPUs; its manifest gives no UID."""
    here = small_node()
    told: dict[str, set[str]] = {}  # CPUs asked for -> reasons that were said of this pod
    for number, (others, cpus, retry) in enumerate(looks):
        wanted = [*others, *([nameless("c", cpus)] if cpus else [])]
        happened = said(here.look(*wanted, fresh_uids=[f"u{number}"], retry=retry), "c")
        told = {asked: reasons for asked, reasons in told.items() if asked == cpus}
        now = here.refused.get("default/c")
        if now is None:
            told.clear()
            assert not any(each.startswith("refused") for each in happened)
            continue
        news = now.reason not in told.setdefault(cpus, set())
        assert ("refused c" in happened) is news
        told[cpus].add(now.reason)
        assert now.reason == judge(here.managers, SMALL, here.state, now.pod).reason
        assert now.earlier_reasons <= told[cpus] <= OTHERS.keys()
