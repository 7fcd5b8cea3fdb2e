"""What a pod asks for: aggregation, pod-level resources, overhead, and the status during a resize.

The cases pin what Kubernetes 1.36 does, surprises included; the recorded vectors are run in tests/replay.
"""

from __future__ import annotations

import pytest
from hypothesis import given

from agent.model.pod import ContainerStatus, Pod, PodCondition, PodStatus, PodStatusResources, StatusList
from agent.model.resources import add
from agent.policy.pod_resources import (
    SizingOptions,
    aggregate_container_limits,
    aggregate_container_requests,
    pod_level_limits_set,
    pod_level_requests_set,
    pod_level_resources_set,
    pod_limits,
    pod_requests,
    resize_deferred,
    resize_infeasible,
)
from tests.pods import amounts, app, init, pod, pods, sidecar, sized, spelt

SPEC = SizingOptions()
STATUS = SizingOptions(use_status_resources=True)
POD_STATUS = SizingOptions(use_status_resources=True, in_place_pod_level_resources=True)
INFEASIBLE = PodCondition("PodResizePending", "True", "Infeasible")
DEFERRED = PodCondition("PodResizePending", "True", "Deferred")


def reported(name: str, allocated: str | None, requests: str, limits: str = "") -> ContainerStatus:
    return ContainerStatus(name, None if allocated is None else amounts(allocated), sized(requests, limits))


def test_overhead_is_added_to_requests_always_and_to_limits_that_are_not_zero() -> None:
    web = pod(app("cpu=1", "cpu=0 memory=1Gi"), overhead="cpu=250m memory=128Mi")
    assert spelt(pod_requests(web, SPEC)) == "cpu=1250m memory=128Mi"
    assert spelt(pod_limits(web, SPEC)) == "cpu=0 memory=1152Mi"
    bare = SizingOptions(exclude_overhead=True)
    assert spelt(pod_requests(web, bare)) == "cpu=1"
    assert spelt(pod_limits(web, bare)) == "cpu=0 memory=1Gi"


def test_pod_level_resources_override_only_what_they_list() -> None:
    web = pod(app("cpu=1 memory=1Gi", "memory=2Gi"), resources=sized("cpu=4", "cpu=8"))
    assert spelt(pod_requests(web, SPEC)) == "cpu=4 memory=1Gi"
    assert spelt(pod_limits(web, SPEC)) == "cpu=8 memory=2Gi"
    skipping = SizingOptions(skip_pod_level_resources=True)
    assert spelt(pod_requests(web, skipping)) == "cpu=1 memory=1Gi"
    assert spelt(pod_limits(web, skipping)) == "memory=2Gi"


def test_resources_that_a_pod_level_list_cannot_hold_are_passed_over() -> None:
    web = pod(app("ephemeral-storage=1Gi"), resources=sized("cpu=1 ephemeral-storage=9Gi"))
    assert spelt(pod_requests(web, SPEC)) == "cpu=1 ephemeral-storage=1Gi"


def test_containers_can_be_left_out_of_the_requests_but_not_of_the_limits() -> None:
    web = pod(app("cpu=1 memory=1Gi", "cpu=1"), resources=sized("cpu=4"))
    alone = SizingOptions(skip_container_level_resources=True)
    assert spelt(pod_requests(web, alone)) == "cpu=4"
    assert spelt(pod_limits(web, alone)) == "cpu=1"


def test_missing_requests_of_a_container_can_be_filled_in() -> None:
    filled = SizingOptions(non_missing_container_requests=amounts("cpu=100m memory=200Mi"))
    web = pod(app("cpu=0"), app("memory=1Gi", name="b"))
    assert spelt(aggregate_container_requests(web, filled)) == "cpu=100m memory=1224Mi"
    assert aggregate_container_limits(web, filled) == {}


@pytest.mark.parametrize(
    ("status", "requests", "limits"),
    [
        pytest.param(None, "cpu=2 memory=1Gi", "cpu=2", id="no status: the spec"),
        pytest.param(reported("app", "cpu=3", "cpu=1"), "cpu=3 memory=1Gi", "cpu=2", id="the largest of the three"),
        pytest.param(reported("app", "cpu=1", "cpu=4", "cpu=5"), "cpu=4 memory=1Gi", "cpu=5", id="the runtime's too"),
        pytest.param(reported("other", "cpu=9", "cpu=9"), "cpu=2 memory=1Gi", "cpu=2", id="another container's"),
        pytest.param(
            ContainerStatus("app", amounts("cpu=9")),
            "cpu=2 memory=1Gi",
            "cpu=2",
            id="a status without resources says nothing",
        ),
        pytest.param(
            ContainerStatus("app", None, sized("cpu=9"), listed=StatusList.EPHEMERAL),
            "cpu=2 memory=1Gi",
            "cpu=2",
            id="an ephemeral container's",
        ),
    ],
)
def test_during_a_resize_the_largest_size_counts(status: ContainerStatus | None, requests: str, limits: str) -> None:
    statuses = () if status is None else (status,)
    web = pod(app("cpu=2 memory=1Gi", "cpu=2"), status=PodStatus(container_statuses=statuses, conditions=(DEFERRED,)))
    assert spelt(pod_requests(web, STATUS)) == requests
    assert spelt(pod_limits(web, STATUS)) == limits
    assert spelt(pod_requests(web, SPEC)) == "cpu=2 memory=1Gi"


def test_an_infeasible_resize_leaves_the_spec_out_of_it() -> None:
    status = PodStatus(container_statuses=(reported("app", "cpu=1", "cpu=2", "cpu=3"),), conditions=(INFEASIBLE,))
    web = pod(app("cpu=8 memory=1Gi", "cpu=8"), status=status)
    assert spelt(pod_requests(web, STATUS)) == "cpu=2", "memory is only in the spec, so it is gone"
    assert spelt(pod_limits(web, STATUS)) == "cpu=3"


def test_sidecars_have_sizes_in_the_status_and_init_containers_do_not() -> None:
    status = PodStatus(container_statuses=(reported("init", "cpu=9", "cpu=9"), reported("sidecar", "cpu=3", "cpu=1")))
    web = pod(init("cpu=1"), sidecar("cpu=1"), app("cpu=1"), status=status)
    assert spelt(pod_requests(web, STATUS)) == "cpu=4"


@pytest.mark.parametrize(
    ("conditions", "infeasible", "deferred"),
    [
        pytest.param((), False, False, id="no condition"),
        pytest.param((INFEASIBLE,), True, False, id="infeasible"),
        pytest.param((DEFERRED,), False, True, id="deferred"),
        pytest.param(
            (PodCondition("PodResizePending", "False", "Infeasible"),), True, False, id="whatever its status field says"
        ),
        pytest.param((DEFERRED, INFEASIBLE), False, True, id="only the first counts"),
        pytest.param(
            (PodCondition("PodResizeInProgress", "True", "Infeasible"),), False, False, id="another condition"
        ),
    ],
)
def test_the_reason_of_the_first_pending_condition_decides(
    conditions: tuple[PodCondition, ...], infeasible: bool, deferred: bool
) -> None:
    web = pod(status=PodStatus(conditions=conditions))
    assert (resize_infeasible(web), resize_deferred(web)) == (infeasible, deferred)


def test_a_pod_level_resize_counts_where_its_gate_is_on() -> None:
    status = PodStatus(
        resources=PodStatusResources(amounts("cpu=2"), amounts("cpu=9")), allocated_resources=amounts("cpu=3")
    )
    web = pod(app("cpu=1"), resources=sized("cpu=1 memory=1Gi", "cpu=4"), status=status)
    assert spelt(pod_requests(web, POD_STATUS)) == "cpu=3 memory=1Gi"
    assert spelt(pod_limits(web, POD_STATUS)) == "cpu=9"
    assert spelt(pod_requests(web, STATUS)) == "cpu=1 memory=1Gi"


def test_an_infeasible_pod_level_resize_turns_what_the_status_lacks_to_zero() -> None:
    status = PodStatus(resources=PodStatusResources(amounts("cpu=2"), {}), conditions=(INFEASIBLE,))
    web = pod(app("memory=1Gi"), resources=sized("cpu=8 memory=8Gi", "cpu=8"), status=status)
    assert spelt(pod_requests(web, POD_STATUS)) == "cpu=2 memory=0"
    assert spelt(pod_limits(web, POD_STATUS)) == "cpu=0"


def test_limits_that_the_status_does_not_report_are_those_of_the_spec() -> None:
    status = PodStatus(resources=PodStatusResources(amounts("cpu=2"), None), conditions=(INFEASIBLE,))
    web = pod(app(), resources=sized("cpu=8", "cpu=8"), status=status)
    assert spelt(pod_limits(web, POD_STATUS)) == "cpu=8"


def test_a_pod_level_allocation_without_actual_resources_does_not_count() -> None:
    web = pod(app(), resources=sized("cpu=1"), status=PodStatus(allocated_resources=amounts("cpu=5")))
    assert spelt(pod_requests(web, POD_STATUS)) == "cpu=1"


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ("cpu=1", "", (True, True, False)),
        ("", "hugepages-2Mi=2Mi", (True, False, True)),
        ("cpu=0", "memory=0", (True, True, True)),
        ("ephemeral-storage=1", "example.com/device=1", (False, False, False)),
        ("", "", (False, False, False)),
    ],
)
def test_pod_level_resources_are_set_by_any_resource_they_can_hold(
    requests: str, limits: str, expected: tuple[bool, bool, bool]
) -> None:
    web = pod(resources=sized(requests, limits))
    assert (pod_level_resources_set(web), pod_level_requests_set(web), pod_level_limits_set(web)) == expected
    assert not pod_level_resources_set(pod())


@given(pods)
def test_a_size_in_the_status_never_makes_a_feasible_pod_smaller(any_pod: Pod) -> None:
    if resize_infeasible(any_pod):
        return
    spec, status = pod_requests(any_pod, SPEC), pod_requests(any_pod, POD_STATUS)
    assert all(status[name] >= amount for name, amount in spec.items())


@given(pods)
def test_overhead_is_the_only_difference_that_it_makes_to_requests(any_pod: Pod) -> None:
    without = pod_requests(any_pod, SizingOptions(exclude_overhead=True))
    assert pod_requests(any_pod, SPEC) == add(without, any_pod.overhead)
