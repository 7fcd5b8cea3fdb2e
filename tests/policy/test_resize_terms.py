"""Desired, allocated and actual sizes of a pod: how an API server would show them, and what may be in force between two."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.model.pod import Pod, PodStatus, ResourceRequirements, StatusList
from agent.model.state import PodRecord, Resize, ResizeState
from agent.policy.resize_order import retry_order
from agent.policy.resize_terms import as_status, conditions, effective_container_requests, headline, largest
from agent.policy.resize_validation import resize_violations
from tests.nodes import named
from tests.pods import app, guaranteed, init, sidecar, sized, spelt
from tests.policy.resizing import sizes


def pod(cpus: int, own: str = "") -> Pod:
    """A pod of three containers, the app with so many CPUs. own: the pod's own requests and limits."""
    containers = (init("cpu=1", "cpu=1"), sidecar("cpu=1", "cpu=2"), app(f"cpu={cpus}", f"cpu={cpus + 10}"))
    return named("p", *containers, resources=sized(own, own) if own else None)


def terms(desired: int, allocated: int, actual: int, own: tuple[str, str, str] = ("", "", "")) -> PodRecord:
    resize = Resize(ResizeState.DEFERRED, desired=pod(desired, own[0]), actual=pod(actual, own[2]))
    return PodRecord(pod(allocated, own[1]), resize=resize)


def both(resources: ResourceRequirements | None) -> str:
    return "" if resources is None else f"{spelt(resources.requests)}; {spelt(resources.limits)}"


def test_the_spec_is_desired_and_the_status_has_allocated_and_actual_sizes() -> None:
    shown = as_status(terms(8, 4, 2))
    assert shown.containers == pod(8).containers
    assert [
        (each.name, spelt(each.allocated_resources), both(each.resources), each.listed)
        for each in shown.status.container_statuses
    ] == [
        ("app", "cpu=4", "cpu=2; cpu=12", StatusList.APP),
        ("init", "cpu=1", "cpu=1; cpu=1", StatusList.INIT),
        ("sidecar", "cpu=1", "cpu=1; cpu=2", StatusList.INIT),
    ]
    assert (shown.resources, shown.status.allocated_resources, shown.status.resources) == (None, None, None)


def test_a_pods_own_sizes_are_shown_in_the_same_way() -> None:
    shown = as_status(terms(8, 4, 2, ("cpu=9", "cpu=6", "cpu=5")))
    assert both(shown.resources) == "cpu=9; cpu=9"
    assert spelt(shown.status.allocated_resources) == "cpu=6"
    assert shown.status.resources is not None
    assert (spelt(shown.status.resources.requests), spelt(shown.status.resources.limits)) == ("cpu=5", "cpu=5")


def test_sizes_that_are_not_known_are_those_that_are_allocated() -> None:
    settled = as_status(PodRecord(pod(4, "cpu=6")))
    assert settled.containers == pod(4).containers
    assert both(settled.status.container_statuses[0].resources) == "cpu=4; cpu=14"
    assert settled.status.resources is not None
    assert spelt(settled.status.resources.requests) == "cpu=6"
    actual = replace(
        pod(2), containers=pod(2).containers[:1]
    )  # of which two containers are not known, nor the pod's own
    shown = as_status(PodRecord(pod(4, "cpu=6"), resize=Resize(ResizeState.IN_PROGRESS, actual=actual)))
    assert both(shown.status.container_statuses[0].resources) == "cpu=4; cpu=14"
    assert shown.status.resources is not None
    assert spelt(shown.status.resources.requests) == "cpu=6"


@pytest.mark.parametrize(
    ("state", "cpus"),
    [
        pytest.param(ResizeState.DEFERRED, 8, id="the most of the three"),
        pytest.param(ResizeState.INFEASIBLE, 4, id="a wish that can never be does not count"),
    ],
)
def test_what_each_container_counts_for(state: ResizeState, cpus: int) -> None:
    record = terms(8, 4, 2)
    shown = as_status(replace(record, resize=replace(record.resize, state=state)))
    counted = {name: spelt(requests) for name, requests in effective_container_requests(shown).items()}
    assert counted == {"init": "cpu=1", "sidecar": "cpu=1", "app": f"cpu={cpus}"}
    assert (
        effective_container_requests(replace(pod(3), status=PodStatus()))["app"]
        == pod(3).containers[2].resources.requests
    )


# --- between two sizes --------------------------------------------------------------------------------------------------


def test_between_two_sizes_the_larger_of_each_amount_may_be_in_force() -> None:
    one = named(
        "p", app("cpu=4 memory=1Gi", "cpu=5 memory=2Gi"), app("cpu=1", name="side"), resources=sized("cpu=6", "cpu=7")
    )
    two = named(
        "p", app("cpu=3 memory=2Gi", "cpu=6"), app("cpu=2", "cpu=2", name="side"), resources=sized("cpu=8", "cpu=6")
    )
    for first, then in ((one, two), (two, one)):
        most = largest(first, then)
        assert [both(each.resources) for each in most.containers] == ["cpu=4 memory=2Gi; cpu=6", "cpu=2; "]
        assert both(most.resources) == "cpu=8; cpu=7"
    assert largest(None, two) is two
    assert both(largest(replace(one, containers=(), resources=None), two).resources) == "cpu=8; cpu=6"
    assert largest(replace(one, containers=()), two).containers == two.containers
    assert largest(one, replace(two, resources=None)).resources is None


@pytest.mark.parametrize(
    ("actual", "error", "state"),
    [
        pytest.param(None, "", ResizeState.NONE, id="all in force"),
        pytest.param(pod(2), "", ResizeState.IN_PROGRESS, id="on its way"),
        pytest.param(pod(2), "no", ResizeState.ERROR, id="it cannot be put in force"),
    ],
)
def test_the_state_of_a_pod_of_which_no_resize_waits(actual: Pod | None, error: str, state: ResizeState) -> None:
    assert headline(Resize(actual=actual, error=error)) is state


def test_a_wish_that_nobody_has_answered_is_no_condition() -> None:
    assert conditions(Resize(ResizeState.PENDING, desired=pod(3))) == ()
    assert conditions(Resize(ResizeState.DEFERRED)) == ()


# --- order and validation -----------------------------------------------------------------------------------------------


def test_a_pod_without_a_priority_has_priority_0() -> None:
    def waiting(name: str, priority: int | None) -> PodRecord:
        allocated = replace(named(name, app("cpu=1", "cpu=9")), priority=priority)
        return PodRecord(allocated, resize=Resize(ResizeState.DEFERRED, desired=sizes(allocated, "cpu=2", "cpu=9")))

    records = [waiting("none", None), waiting("one", 1), waiting("minus", -1)]
    assert [each.pod.name for each in retry_order(records, pod_level_resources=True)] == ["one", "none", "minus"]


def test_a_pod_is_guaranteed_by_its_own_resources_where_these_count() -> None:
    def waiting(name: str, allocated: Pod, desired: Pod) -> PodRecord:
        return PodRecord(allocated, resize=Resize(ResizeState.DEFERRED, desired=desired))

    own = [named("own", app(), resources=sized(f"cpu={n} memory=1Gi", f"cpu={n} memory=1Gi")) for n in (1, 2)]
    other = [named("other", app(f"cpu={n}", "cpu=9")) for n in (1, 2)]
    records = [waiting("other", *other), waiting("own", *own)]
    assert [each.pod.name for each in retry_order(records, pod_level_resources=True)] == ["own", "other"]
    assert [each.pod.name for each in retry_order(records, pod_level_resources=False)] == ["other", "own"]


WHOLE = named("p", app(), resources=sized("cpu=2 memory=1Gi", "cpu=2 memory=1Gi"))


@pytest.mark.parametrize(
    ("allocated", "desired", "pod_level", "expected"),
    [
        pytest.param(named("p", guaranteed("1")), named("p", guaranteed("2")), True, [], id="more"),
        pytest.param(
            named("p", init("cpu=1", "cpu=1"), app("cpu=1", "cpu=2")),
            named("p", init("cpu=2", "cpu=1"), app("cpu=1", "cpu=2")), True,
            [
                "spec.initContainers[0].resources.requests[cpu]: must be less than or equal to cpu limit of 1",
                "spec.initContainers[0].resources: resources for non-sidecar init containers are immutable",
            ],
            id="an init container",
        ),
        pytest.param(
            named("p", app("cpu=1", "memory=1Gi")), named("p", app("memory=1Gi", "memory=1Gi")), True,
            ["spec.containers[0].resources.requests: resource requests cannot be removed"], id="a request",
        ),
        pytest.param(
            WHOLE, replace(WHOLE, resources=sized("cpu=2 memory=1Gi", "memory=1Gi")), True,
            [
                "spec: Pod QOS Class may not change as a result of resizing",
                "spec.resources.limits: resource limits cannot be removed",
            ],
            id="a limit of the pod",
        ),
        pytest.param(
            WHOLE, replace(WHOLE, resources=sized("cpu=2 memory=1Gi", "memory=1Gi")), False, [], id="which does not count"
        ),
        pytest.param(
            named("p"), named("p", app("cpu=1", "cpu=2")), True,
            ["spec: Pod QOS Class may not change as a result of resizing"], id="a container that was not there",
        ),
    ],
)  # fmt: skip
def test_what_an_api_server_refuses(allocated: Pod, desired: Pod, *, pod_level: bool, expected: list[str]) -> None:
    found = resize_violations(allocated, desired, pod_level_resources=pod_level)
    assert all(each.value == "" for each in found if "removed" in each.rule or "immutable" in each.rule)
    assert [str(each).replace(f' Invalid value: "{each.value}":', "") for each in found] == expected


def test_containers_must_fit_their_pods_own_resources_where_these_count() -> None:
    larger = replace(WHOLE, containers=(app("cpu=3", "cpu=3"),))
    allocated = replace(WHOLE, containers=(app("cpu=1", "cpu=1"),))
    assert resize_violations(allocated, larger, pod_level_resources=True)
    assert resize_violations(allocated, larger, pod_level_resources=False) == ()
