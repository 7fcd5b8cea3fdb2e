"""Mistakes in pod files, found without a machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.pod_defaults import apply_defaults
from agent.model.pod import Container, Pod, ResourceRequirements
from agent.policy.feature_gates import FeatureGates
from agent.policy.lint_finding import Finding, Severity
from agent.policy.pod_lint import lint_pod
from agent.policy.topology_options import TopologyScope
from tests.pods import app, guaranteed, init, pod, pods, sidecar, sized

MANAGERS = FeatureGates(pod_level_resource_managers=True)
POD = TopologyScope.POD
CONTAINER = TopologyScope.CONTAINER


def found(each: Pod, gates: FeatureGates = MANAGERS, scope: TopologyScope | None = POD) -> list[tuple[str, str]]:
    return [(at.rule, at.path) for at in lint(each, gates, scope)]


def lint(each: Pod, gates: FeatureGates = MANAGERS, scope: TopologyScope | None = POD) -> tuple[Finding, ...]:
    return lint_pod(apply_defaults(each, pod_level_resources=gates.pod_level_resources), gates, scope)


def budget(cpus: str, memory: str = "8Gi", more: str = "") -> ResourceRequirements:
    both = f"cpu={cpus} memory={memory} {more}"
    return sized(both, both)


@pytest.mark.parametrize(
    "good",
    [
        pytest.param(pod(app()), id="nothing asked"),
        pytest.param(pod(app("cpu=100m memory=64Mi", "memory=128Mi")), id="shared CPUs, plainly"),
        pytest.param(pod(guaranteed("2")), id="exclusive CPUs"),
        pytest.param(pod(init("", "cpu=1 memory=1Gi"), guaranteed("2")), id="limits alone are requests too"),
        pytest.param(pod(guaranteed("2"), app(name="side"), resources=budget("3")), id="a bubble with a shared pool"),
        pytest.param(pod(guaranteed("2"), guaranteed("1", name="b"), resources=budget("3")), id="a bubble of slices"),
        pytest.param(pod(app(), resources=budget("2")), id="a bubble that all share"),
        pytest.param(pod(app("cpu=1"), resources=sized("cpu=2 memory=1Gi", "cpu=4")), id="a Burstable budget"),
    ],
)
def test_nothing_is_said_about_a_good_pod(good: Pod) -> None:
    assert found(good) == []


@pytest.mark.parametrize(
    ("container", "rule", "field"),
    [
        pytest.param(app("cpu=2", "cpu=1"), "invalid", "requests[cpu]", id="what an API server refuses"),
        pytest.param(app("cpu=2000 memory=1Gi"), "too-many-cpus", "requests[cpu]", id="CPUs for millicores"),
        pytest.param(app("cpu=1", "memory=512m"), "too-few-bytes", "limits[memory]", id="thousandths of bytes"),
        pytest.param(app("memory=512"), "too-few-bytes", "requests[memory]", id="bytes for mebibytes"),
        pytest.param(guaranteed("1500m"), "fractional-cpu", "requests[cpu]", id="one and a half CPUs"),
        pytest.param(app("cpu=2 memory=1Gi", "cpu=2"), "not-guaranteed", "limits[memory]", id="no memory limit"),
        pytest.param(
            app("cpu=2 memory=1Gi", "cpu=2 memory=2Gi"),
            "not-guaranteed",
            "requests[memory]",
            id="memory below its limit",
        ),
        pytest.param(app("cpu=2", "cpu=2"), "not-guaranteed", "limits[memory]", id="no memory at all"),
    ],
)
def test_a_container_is_noticed_for(container: Container, rule: str, field: str) -> None:
    assert found(pod(container)) == [(rule, f"spec.containers[0].resources.{field}")]


def test_one_container_that_makes_the_pod_burstable_is_named_with_what_is_lost() -> None:
    web = pod(sidecar("cpu=100m memory=64Mi", "cpu=200m memory=64Mi", "logs"), guaranteed("4", name="db"))
    (finding,) = lint(web)
    assert finding.path == "spec.initContainers[0].resources.requests[cpu]"
    assert finding.message == (
        "restartable init container logs requests 100m cpu of its limit of 200m, "
        "so the pod is not Guaranteed and container db gets none of 4 exclusive CPUs"
    )
    assert finding.advice == "make them equal: 200m"
    assert str(finding) == f"warning: {finding.path}: {finding.message} [not-guaranteed]"


def test_every_container_without_limits_is_named() -> None:
    assert found(pod(init(), guaranteed("4"), app("cpu=1", name="b"))) == [
        ("not-guaranteed", "spec.initContainers[0].resources.limits[cpu]"),
        ("not-guaranteed", "spec.initContainers[0].resources.limits[memory]"),
        ("not-guaranteed", "spec.containers[1].resources.limits[cpu]"),
        ("not-guaranteed", "spec.containers[1].resources.limits[memory]"),
    ]


def test_a_pod_that_wants_no_exclusive_cpus_may_be_burstable() -> None:
    assert found(pod(app("cpu=500m memory=1Gi", "cpu=500m memory=1Gi"), app(name="b"))) == []


def test_less_than_one_cpu_is_worth_a_note_only() -> None:
    assert [finding.severity for finding in lint(pod(guaranteed("500m")))] == [Severity.NOTE]
    assert [finding.severity for finding in lint(pod(guaranteed("2500m")))] == [Severity.WARNING]


def test_a_pod_that_is_guaranteed_by_chance_is_noticed() -> None:
    web = pod(app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi"), app("cpu=2 memory=1Gi", "cpu=1 memory=1Gi", "b"))
    assert ("unequal-but-guaranteed", "spec.containers[0].resources") in found(web)


@pytest.mark.parametrize(
    ("containers", "resources", "expected"),
    [
        pytest.param(
            [guaranteed("2"), app(name="side")],
            budget("2"),
            [("empty-shared-pool", "requests[cpu]")],
            id="exclusive CPUs that equal the budget, beside a container that shares",
        ),
        pytest.param(
            [guaranteed("1", "8Gi"), app(name="side")],
            budget("2"),
            [("empty-shared-pool", "requests[memory]")],
            id="the same of memory",
        ),
        pytest.param(
            [app("cpu=1 memory=1Gi hugepages-2Mi=4Mi", "cpu=1 memory=1Gi hugepages-2Mi=4Mi"), app(name="side")],
            budget("2", more="hugepages-2Mi=4Mi"),
            [("empty-shared-pool", "requests[hugepages-2Mi]")],
            id="the same of hugepages",
        ),
        pytest.param(
            [sidecar("cpu=2 memory=1Gi", "cpu=2 memory=1Gi"), init("cpu=0"), guaranteed("1")],
            budget("2"),
            [("invalid", "requests[cpu]"), ("empty-shared-pool", "requests[cpu]")],
            id="an init container behind a sidecar that has everything",
        ),
        pytest.param(
            [guaranteed("1")], budget("3500m"), [("fractional-budget", "requests[cpu]")], id="three and a half CPUs"
        ),
        pytest.param([guaranteed("1")], budget("3"), [("idle-cpus", "requests[cpu]")], id="CPUs that nobody gets"),
        pytest.param(
            [guaranteed("1")],
            sized("cpu=2 memory=1Gi", "cpu=4 memory=1Gi"),
            [("not-guaranteed", "requests[cpu]")],
            id="a budget that is not Guaranteed",
        ),
        pytest.param(
            [guaranteed("1")],
            sized("cpu=2 memory=1Gi", "cpu=2"),
            [("not-guaranteed", "limits[memory]")],
            id="half a limit",
        ),
        pytest.param(
            [app("cpu=1", "cpu=1")], sized("cpu=2", "cpu=2"), [("not-guaranteed", "limits[memory]")], id="CPUs alone"
        ),
    ],
)
def test_a_budget_is_noticed_for(
    containers: list[Container], resources: ResourceRequirements, expected: list[tuple[str, str]]
) -> None:
    assert found(pod(*containers, resources=resources)) == [
        (rule, f"spec.resources.{field}") for rule, field in expected
    ]


def test_hugepages_alone_make_no_budget() -> None:
    web = pod(app(), resources=sized("hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"))
    assert found(web) == [("invalid", "spec.resources"), ("hugepages-alone", "spec.resources")]


def test_an_empty_budget_is_noticed_where_it_costs_something() -> None:
    assert found(pod(guaranteed("1"), resources=sized())) == [("empty-pod-level", "spec.resources")]
    assert found(pod(app(), resources=sized())) == []


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(
            app("cpu=1", "cpu=1", "b"),
            ("memory-not-equal", "spec.containers[1].resources.requests[memory]"),
            id="memory missing",
        ),
        pytest.param(
            guaranteed("1500m", "1Gi", "b"),
            ("fractional-cpu", "spec.containers[1].resources.requests[cpu]"),
            id="a fraction",
        ),
    ],
)
def test_a_container_of_a_bubble_that_gets_less_than_it_seems_is_noticed(
    container: Container, expected: tuple[str, str]
) -> None:
    assert found(pod(app(name="a"), container, resources=budget("4"))) == [expected]


def test_a_sidecar_without_its_own_is_noticed() -> None:
    web = pod(sidecar("cpu=100m"), guaranteed("1"), resources=budget("2"))
    (finding,) = lint(web)
    assert (finding.rule, finding.severity) == ("sidecar-shares", Severity.NOTE)


def test_in_scope_container_no_bubble_is_judged() -> None:
    web = pod(guaranteed("2"), app(name="side"), resources=budget("2"))
    assert found(web, scope=CONTAINER) == []
    (finding,) = lint(web, scope=None)
    assert finding.message.startswith(
        "with topology manager scope pod, pod rejected, sum of exclusive container cpu requests"
    )
    assert finding.severity is Severity.ERROR


def test_gates_that_are_off_are_named() -> None:
    web = pod(guaranteed("1"), app(name="b"), resources=budget("4"))
    assert found(web, FeatureGates()) == [("managers-gate-off", "spec.resources")]
    off = FeatureGates(pod_level_resources=False)
    assert ("pod-level-gate-off", "spec.resources") in found(web, off)


def test_the_worst_comes_first() -> None:
    web = pod(sidecar("cpu=100m"), guaranteed("2"), app("memory=-1", name="c"), resources=budget("2"))
    severities = [finding.severity for finding in lint(web)]
    assert severities == sorted(severities, key=list(Severity).index)
    assert severities[0] is Severity.ERROR
    assert severities[-1] is Severity.NOTE


@given(
    pods,
    st.sampled_from([MANAGERS, FeatureGates(), FeatureGates(pod_level_resources=False)]),
    st.sampled_from([None, POD]),
)
def test_any_pod_is_judged_and_every_finding_says_what_to_do(
    any_pod: Pod, gates: FeatureGates, scope: TopologyScope | None
) -> None:
    for finding in lint(any_pod, gates, scope):
        assert finding.path
        assert finding.message
        assert finding.advice
