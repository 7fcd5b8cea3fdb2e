"""Defaults of pods that no API server has seen."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from agent.formats.pod_defaults import apply_defaults
from agent.model.pod import Container, Pod, ResourceRequirements
from agent.policy.qos import qos_class
from tests.pods import app, init, pod, pods, sidecar, sized, spelt


def test_a_limit_without_a_request_is_the_request_too() -> None:
    web = apply_defaults(pod(init("", "cpu=1"), app("cpu=1", "cpu=2 memory=1Gi")), pod_level_resources=True)
    first, second = web.containers
    assert spelt(first.resources.requests) == "cpu=1"
    assert spelt(second.resources.requests) == "cpu=1 memory=1Gi"
    assert spelt(second.resources.limits) == "cpu=2 memory=1Gi"


def test_a_pod_with_limits_only_is_guaranteed_then() -> None:
    web = pod(app("", "cpu=2 memory=1Gi"))
    assert qos_class(web, pod_level_resources=True) == "Burstable"
    assert qos_class(apply_defaults(web, pod_level_resources=True), pod_level_resources=True) == "Guaranteed"


def test_amounts_finer_than_a_thousandth_are_rounded_up() -> None:
    web = pod(app("cpu=1.0001 memory=0.1Ki"), resources=sized("cpu=1u"), overhead="cpu=1n")
    web = apply_defaults(web, pod_level_resources=True)
    assert spelt(web.containers[0].resources.requests) == "cpu=1001m memory=102400m"
    assert web.resources is not None
    assert spelt(web.resources.requests) == "cpu=1m"
    assert spelt(web.overhead) == "cpu=1m"


@pytest.mark.parametrize(
    ("containers", "resources", "requests", "limits"),
    [
        pytest.param([app()], sized("", "cpu=2 memory=1Gi"), "cpu=2 memory=1Gi", "cpu=2 memory=1Gi", id="as the limit"),
        pytest.param([app("cpu=1")], sized("", "cpu=2"), "cpu=1", "cpu=2", id="as the containers ask, where they do"),
        pytest.param(
            [app("", "cpu=1")], sized("", "cpu=2"), "cpu=1", "cpu=2", id="or would ask after their own defaults"
        ),
        pytest.param(
            [sidecar("cpu=1"), init("cpu=3"), app("cpu=1")],
            sized("", "cpu=8"),
            "cpu=4",
            "cpu=8",
            id="at their busiest moment",
        ),
        pytest.param(
            [app("memory=1Gi")],
            sized("", "cpu=2"),
            "cpu=2 memory=1Gi",
            "cpu=2",
            id="resources without a pod-level limit too",
        ),
        pytest.param([app("cpu=1")], sized("cpu=2", "cpu=2"), "cpu=2", "cpu=2", id="a given request stays"),
        pytest.param(
            [app("cpu=1 memory=1Gi")], sized("cpu=2"), "cpu=2", "", id="without any limit nothing is filled in"
        ),
        pytest.param([app("cpu=1", "cpu=1")], sized(), "", "", id="an empty object stays empty"),
        pytest.param([app("ephemeral-storage=1Gi")], sized("", "cpu=1"), "cpu=1", "cpu=1", id="only what it can hold"),
        pytest.param(
            [app("cpu=1", "hugepages-2Mi=4Mi"), app("", "hugepages-2Mi=2Mi", "b")],
            sized("cpu=2"),
            "cpu=2 hugepages-2Mi=6Mi",
            "hugepages-2Mi=6Mi",
            id="hugepages as the containers' limits",
        ),
        pytest.param(
            [app("cpu=1", "hugepages-2Mi=4Mi")],
            sized("cpu=2 hugepages-2Mi=8Mi"),
            "cpu=2 hugepages-2Mi=8Mi",
            "",
            id="but not where the pod requests hugepages",
        ),
    ],
)
def test_pod_level_requests_are(
    containers: list[Container], resources: ResourceRequirements, requests: str, limits: str
) -> None:
    web = pod(*containers, resources=resources)
    defaulted = apply_defaults(web, pod_level_resources=True).resources
    assert defaulted is not None
    assert (spelt(defaulted.requests), spelt(defaulted.limits)) == (requests, limits)
    assert apply_defaults(web, pod_level_resources=False).resources == resources


def test_the_usual_scheduler_and_restart_policy_are_filled_in() -> None:
    web = apply_defaults(pod(app()), pod_level_resources=True)
    assert (web.scheduler_name, web.restart_policy) == ("default-scheduler", "Always")
    own = replace(pod(app()), scheduler_name="kai", restart_policy="Never")
    assert apply_defaults(own, pod_level_resources=True) == own


@given(pods)
def test_twice_is_the_same_as_once(any_pod: Pod) -> None:
    once = apply_defaults(any_pod, pod_level_resources=True)
    assert apply_defaults(once, pod_level_resources=True) == once
