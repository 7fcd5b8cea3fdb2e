"""Resizes that wait: which of them are tried at a look, in which order, and what they free for others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agent.model.pod import Pod
from agent.model.state import ResizeState
from agent.policy.observation import Observation, Wanted
from agent.policy.plan import decide
from tests.nodes import named, node
from tests.pods import app, guaranteed, sized
from tests.policy.cpu_machines import regular
from tests.policy.resizing import Node, capacity, cpu, exclusive_node, sizes


def shared_node(cpus: int) -> Node:
    return Node(node(regular(4)), capacity(f"cpu={cpus} memory=8Gi"))


def burstable(name: str, cpus: int) -> Pod:
    return named(name, app(f"cpu={cpus}", "cpu=64"))


def grown(pod: Pod, cpus: int) -> Pod:
    return sizes(pod, f"cpu={cpus}", "cpu=64")


def happened(here: Node, *, retry: bool = False, **seen: Any) -> list[str]:
    """A look: "resize-started a pod_resized" for each decision. seen: further fields of the observation."""
    wanted = [Wanted(pod) for pod in here.wanted.values()]
    observation = Observation(wanted, now_seconds=here.now + 1, **seen)
    plan = decide(here.managers, here.node, here.state, observation, here.refused, retry=retry)
    here.state, here.refused = plan.state, plan.refused
    return [" ".join(filter(None, (each.event, each.pod.name, each.reason))) for each in plan.decisions]


def test_a_deferred_resize_is_tried_where_something_has_changed_or_may_have() -> None:
    here = shared_node(6)
    one, two = burstable("one", 2), burstable("two", 3)
    here.want(one, two)
    here.want(grown(one, 4))
    assert here.record("one").resize.state is ResizeState.DEFERRED
    here.node = capacity("cpu=7 memory=8Gi")
    assert happened(here) == [], "the state shows no change"
    assert happened(here, retry=True) == ["resize-started one periodic_retry"]


def test_one_that_goes_on_waiting_has_let_nobody_else_in() -> None:
    here = shared_node(6)
    one, two, full = burstable("one", 1), replace(burstable("two", 1), priority=1), burstable("full", 4)
    here.want(one, two, full)
    here.want(grown(one, 2), grown(two, 4))
    here.node = capacity("cpu=7 memory=8Gi")
    assert happened(here, retry=True) == ["resize-started one periodic_retry"]


def test_a_deferred_resize_is_tried_at_any_change_of_the_state() -> None:
    here = shared_node(6)
    one, two = burstable("one", 2), burstable("two", 3)
    here.want(one, two)
    here.want(grown(one, 4))
    here.node = capacity("cpu=7 memory=8Gi")
    here.wanted["two"] = grown(two, 5)  # a wish is a change, and nothing that has become free
    assert happened(here) == [
        "resize-requested two",
        "resize-started one periodic_retry",
        "resize-deferred two OutOfcpu",
    ]


def test_an_infeasible_resize_is_tried_again_only_where_the_rules_or_the_machine_may_have_changed() -> None:
    here = shared_node(6)
    one, two, three = replace(burstable("one", 2), priority=1), burstable("two", 3), burstable("three", 1)
    here.want(one, two, three)
    here.want(grown(one, 7), grown(three, 2))
    states = {name: here.record(name).resize.state for name in ("one", "three")}
    assert states == {"one": ResizeState.INFEASIBLE, "three": ResizeState.DEFERRED}
    here.node = capacity("cpu=12 memory=8Gi")
    del here.wanted["two"]
    assert happened(here) == ["released two", "resize-started three pod_terminated"]
    assert happened(here, retry=True) == ["resize-started one"]


def test_while_paused_only_pods_that_hold_something_wait() -> None:
    here = exclusive_node(regular(8))
    pinned, other = named("pinned", guaranteed("2")), burstable("shared", 1)
    here.want(pinned, other)
    here.wanted |= {"pinned": sizes(pinned, cpu(3)), "shared": grown(other, 2)}
    requested = ["resize-requested pinned", "resize-requested shared"]
    assert happened(here, paused=True) == [*requested, "resize-started shared"]
    assert here.record("pinned").resize.state is ResizeState.PENDING
    assert happened(here) == ["resize-started pinned"]


def test_a_pod_that_is_terminating_is_not_resized_any_more_and_holds_up_no_other() -> None:
    here = shared_node(7)
    ends, stays, full = burstable("ends", 1), burstable("stays", 1), burstable("full", 5)
    here.want(ends, stays, full)
    here.want(grown(ends, 2))
    here.want(grown(stays, 2))
    here.node = capacity("cpu=9 memory=8Gi")
    del here.wanted["ends"]
    alive = frozenset({("ends", "app")})
    assert happened(here, retry=True, alive=alive) == ["terminating ends", "resize-started stays periodic_retry"]


def test_who_waits_for_what_a_resize_gives_back_has_it_at_the_same_look() -> None:
    here = shared_node(6)
    one, two = burstable("one", 4), burstable("two", 3)
    here.want(one, two)
    assert list(here.refused) == ["default/two"]
    here.wanted["one"] = grown(one, 3)
    assert happened(here) == ["resize-requested one", "resize-started one", "admitted two"]


def test_the_quality_of_service_that_a_pod_has_by_its_own_resources_counts_in_the_order() -> None:
    here = Node(node(regular(4), cpu_policy="none"), capacity("cpu=6 memory=8Gi"))
    one, sure = burstable("one", 1), named("sure", app(), resources=sized(cpu(1), cpu(1)))
    full = burstable("full", 4)
    here.want(one, sure, full)
    here.want(grown(one, 2))
    here.want(replace(sure, resources=sized(cpu(2), cpu(2))))
    del here.wanted["full"]
    here.node = capacity("cpu=3 memory=8Gi")
    assert happened(here) == ["released full", "resize-started sure pod_terminated"]
    assert here.record("one").resize.state is ResizeState.DEFERRED
