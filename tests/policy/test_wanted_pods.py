"""Whom the sources want: under which UID, and who speaks for a UID or a name that two of them claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import pytest

from agent.model.pod import Pod
from agent.model.state import Epoch, State
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Observation, Plan, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from agent.policy.wanted_pods import ending, with_uids
from tests.nodes import named, node
from tests.pods import amounts, app, guaranteed
from tests.policy.cpu_machines import regular
from tests.policy.looking import A, B, Node, nameless

MANAGERS = node(regular(8))
ROOM = NodeCapacity(amounts("cpu=8 memory=64Gi pods=10"), amounts("cpu=7 memory=64Gi pods=10"))
START = State(Epoch(1, "here"), grants=fresh(MANAGERS))


def look(state: State, wanted: Sequence[Wanted]) -> Plan:
    return decide(MANAGERS, ROOM, state, Observation(wanted, fresh_uids=["x", "y", "z"]), {}, retry=True)


def claim(name: str, uid: str, fingerprint: str, cpu: str = "") -> Wanted:
    pod = named(name, guaranteed(cpu) if cpu else app())
    return Wanted(replace(pod, uid=uid), "manifests", fingerprint)


ONE_UID = (claim("web", "same", "1", "2"), claim("db", "same", "2", "3"))
ONE_NAME = (claim("web", "", "1", "2"), claim("web", "", "2", "3"), claim("web", "", "3"))
NAME_AND_UID = (claim("web", "a", "1", "2"), claim("web", "b", "1", "2"), claim("web", "a", "2"))


@pytest.mark.parametrize(
    ("here", "claims"),
    [
        pytest.param(here, claims, id=f"{text}, {here} is here")
        for text, claims in (("one uid", ONE_UID), ("one name", ONE_NAME), ("both", NAME_AND_UID))
        for here in range(len(claims))
    ],
)
def test_whoever_is_here_stays_whatever_the_order_of_the_others(here: int, claims: Sequence[Wanted]) -> None:
    first = look(START, [claims[here]])
    (record,) = first.state.pods.values()
    for order in permutations(claims):
        after = look(first.state, order)
        assert after.state.grants == first.state.grants
        assert {uid: each.pod for uid, each in after.state.pods.items()} == {record.pod.uid: record.pod}
        assert not ending(first.state, order)
        assert look(after.state, order).state is after.state


def test_the_other_one_of_a_uid_is_refused_by_name_and_comes_when_the_first_has_gone() -> None:
    web, db = ONE_UID
    state = look(START, [web]).state
    refused = look(state, [db, web]).refused
    assert list(refused) == ["default/db"]
    assert "has the uid of pod default/web" in refused["default/db"].message
    after = look(state, [db])
    assert names(after) == ["default/db"]


def test_a_manifest_without_a_uid_keeps_the_one_it_was_given() -> None:
    here = Node()
    assert here.look(nameless("web"), fresh_uids=["u1"]) == "admitted web"
    assert here.look(nameless("web"), fresh_uids=["u2"]) == ""
    assert list(here.state.pods) == ["u1"]


def test_pods_that_end_are_those_that_nobody_wants_with_those_of_which_nothing_is_known() -> None:
    """A source that cannot be read wants its pods as before; what names a pod without a record wants it here."""
    here = Node()
    here.look(A, Wanted(B, "apiserver"))
    assert ending(here.state, []) == {"a", "b"}
    assert ending(here.state, [], frozenset({"apiserver"})) == {"a"}
    assert ending(here.state, [Wanted(A)]) == {"b"}
    unknown = replace(here.state, pods={"b": here.state.pods["b"]})
    assert ending(unknown, [Wanted(B, "apiserver")]) == {"a"}
    assert ending(unknown, [Wanted(A), Wanted(B, "apiserver")]) == set()


def test_where_no_fresh_uid_is_left_a_manifest_has_none() -> None:
    wanted = [Wanted(nameless(name)) for name in ("one", "two", "three")]
    assert [each.pod.uid for each in with_uids(START, wanted, ["x"])] == ["x", "", ""]


def names(plan: Plan) -> list[str]:
    pods: list[Pod] = [record.pod for record in plan.state.pods.values()]
    return [pod.namespaced_name for pod in pods]
