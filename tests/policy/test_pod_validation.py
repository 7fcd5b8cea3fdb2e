"""What an API server refuses about resources, with its words and with the field."""

from __future__ import annotations

import pytest

from agent.model.pod import Container, Pod, ResourceRequirements
from agent.policy.pod_validation import InvalidPodError, Violation, require_valid, validate_pod
from tests.pods import app, init, pod, sidecar, sized

Expected = tuple[str, str, str]  # field, value, rule


def found(each: Pod, gate: bool = True) -> list[Expected]:
    return [(at.path, at.value, at.rule) for at in validate_pod(each, pod_level_resources=gate)]


@pytest.mark.parametrize(
    "container",
    [
        pytest.param(app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi"), id="a request below its limit"),
        pytest.param(app("cpu=1"), id="a request without a limit"),
        pytest.param(app("cpu=100m", "cpu=0.1"), id="equal numbers, spelt differently"),
        pytest.param(app("memory=1Gi hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi"), id="whole pages"),
        pytest.param(app("example.com/device=2", "example.com/device=2"), id="devices"),
        pytest.param(app("ephemeral-storage=1Gi"), id="storage"),
        pytest.param(app(), id="nothing"),
    ],
)
def test_a_container_may_ask_for(container: Container) -> None:
    assert found(pod(container)) == []


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(
            app("cpu=2", "cpu=1"),
            ("requests[cpu]", "2", "must be less than or equal to cpu limit of 1"),
            id="above its limit",
        ),
        pytest.param(
            app("memory=-1"), ("requests[memory]", "-1", "must be greater than or equal to 0"), id="a negative amount"
        ),
        pytest.param(
            app("cpus=1", "cpus=1"),
            ("limits[cpus]", "cpus", "must be a standard resource for containers"),
            id="a name that means nothing",
        ),
        pytest.param(
            app("", "requests.example.com/dev=1"),
            (
                "limits[requests.example.com/dev]",
                "requests.example.com/dev",
                "doesn't follow extended resource name standard",
            ),
            id="the name of a quota",
        ),
        pytest.param(
            app("example.com/dev=1500m", "example.com/dev=1500m"),
            ("limits[example.com/dev]", "1500m", "must be an integer"),
            id="one and a half devices",
        ),
        pytest.param(
            app("cpu=1 hugepages-2Mi=2Mi"),
            ("limits[hugepages-2Mi]", "", "Limit must be set for non overcommitable resources"),
            id="hugepages without a limit",
        ),
        pytest.param(
            app("cpu=1 hugepages-2Mi=2Mi", "hugepages-2Mi=4Mi"),
            ("requests[hugepages-2Mi]", "2Mi", "must be equal to hugepages-2Mi limit of 4Mi"),
            id="hugepages below their limit",
        ),
        pytest.param(
            app("cpu=1", "hugepages-2Mi=3Mi"),
            ("limits[hugepages-2Mi]", "3Mi", "3Mi is not positive integer multiple of hugepages-2Mi"),
            id="a page and a half",
        ),
        pytest.param(
            app("cpu=1", "hugepages-big=2Mi"),
            ("limits[hugepages-big]", "2Mi", "2Mi is not positive integer multiple of hugepages-big"),
            id="pages of no size",
        ),
        pytest.param(
            app("cpu=1", "hugepages-0=2Mi"),
            ("limits[hugepages-0]", "2Mi", "2Mi is not positive integer multiple of hugepages-0"),
            id="pages of size zero",
        ),
    ],
)
def test_a_container_may_not_ask_for(container: Container, expected: Expected) -> None:
    field, value, rule = expected
    assert found(pod(container))[0] == (f"spec.containers[0].resources.{field}", value, rule)


def test_hugepages_alone_are_refused() -> None:
    container = app("hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi")
    assert found(pod(container)) == [("spec.containers[0].resources", "", "HugePages require cpu or memory")]


@pytest.mark.parametrize(
    ("containers", "resources"),
    [
        pytest.param(
            [app("cpu=1"), app("cpu=1", name="b")], sized("cpu=2", "cpu=2"), id="containers that fill the budget"
        ),
        pytest.param([app("memory=9Gi")], sized("cpu=2", "cpu=2"), id="a resource that the budget does not name"),
        pytest.param(
            [init("", "cpu=9"), app()], sized("cpu=2", "cpu=2"), id="an init container's limit above the pod's"
        ),
    ],
)
def test_a_budget_may_be_used_by(containers: list[Container], resources: ResourceRequirements) -> None:
    assert found(pod(*containers, resources=resources)) == []


@pytest.mark.parametrize(
    ("containers", "resources", "expected"),
    [
        pytest.param(
            [sidecar("cpu=1"), init("cpu=2"), app("cpu=1")],
            sized("cpu=2"),
            ("spec.resources.requests[cpu]", "2", "must be greater than or equal to aggregate container requests of 3"),
            id="containers above the budget at their busiest moment",
        ),
        pytest.param(
            [init(), app("cpu=1"), app("cpu=1", "cpu=3", "b")],
            sized("cpu=2", "cpu=2"),
            ("spec.containers[1].resources.limits[cpu]", "3", "must be less than or equal to pod limits of 2"),
            id="a limit above the pod's",
        ),
        pytest.param(
            [app("cpu=1", "hugepages-2Mi=4Mi"), app("cpu=1", "hugepages-2Mi=4Mi", "b")],
            sized("cpu=2", "hugepages-2Mi=4Mi"),
            (
                "spec.resources.limits[hugepages-2Mi]",
                "4Mi",
                "must be greater than or equal to aggregate container limits of 8Mi",
            ),
            id="hugepages limits above the pod's together",
        ),
        pytest.param(
            [app()],
            sized("cpu=1 ephemeral-storage=1Gi"),
            ("spec.resources.requests[ephemeral-storage]", "ephemeral-storage", "must be a standard resource for pods"),
            id="what a pod-level list cannot hold",
        ),
        pytest.param(
            [app()],
            sized("cpu=2", "cpu=1"),
            ("spec.resources.requests[cpu]", "2", "must be less than or equal to cpu limit of 1"),
            id="a request above its limit",
        ),
    ],
)
def test_a_budget_may_not_have(
    containers: list[Container], resources: ResourceRequirements, expected: Expected
) -> None:
    assert found(pod(*containers, resources=resources)) == [expected]
    assert found(pod(*containers, resources=resources), gate=False) == []


def test_a_pod_needs_a_container_that_is_not_an_init_container() -> None:
    assert found(pod(init())) == [("spec.containers", "", "Required value")]


def test_overhead_is_checked_too() -> None:
    assert found(pod(app(), overhead="cpu=-1")) == [("spec.overhead[cpu]", "-1", "must be greater than or equal to 0")]


def test_a_violation_reads_as_the_api_server_writes_it() -> None:
    assert str(Violation("spec.overhead[cpu]", "-1", "must be greater than or equal to 0")) == (
        'spec.overhead[cpu]: Invalid value: "-1": must be greater than or equal to 0'
    )
    assert str(Violation("spec.containers", "", "Required value")) == "spec.containers: Required value"


def test_a_refusal_names_the_pod_and_everything_that_is_wrong() -> None:
    require_valid(pod(app()), pod_level_resources=True)
    with pytest.raises(InvalidPodError) as refused:
        require_valid(pod(init("cpu=2", "cpu=1"), app("memory=-1")), pod_level_resources=True)
    assert len(refused.value.violations) == 2
    assert str(refused.value).startswith("pod default/web is invalid: spec.initContainers[0].resources.requests[cpu]: ")
    assert "spec.containers[0].resources.requests[memory]" in str(refused.value)
    assert refused.value.exit_status == 2
