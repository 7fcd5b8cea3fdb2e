"""QoS classes: of pods, with and without pod-level resources, and of single containers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from agent.model.pod import Container, Pod, PodStatus, QOSClass, ResourceRequirements
from agent.policy.qos import container_equivalent_guaranteed, pod_qos, qos_class
from tests.pods import app, guaranteed, init, pod, pods, sidecar, sized

BOTH = "cpu=1 memory=1Gi"


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([app()], "BestEffort", id="nothing asked"),
        pytest.param([app("cpu=0", "memory=0")], "BestEffort", id="zero is nothing"),
        pytest.param(
            [app("ephemeral-storage=1Gi", "example.com/device=1")], "BestEffort", id="only cpu and memory count"
        ),
        pytest.param([app(BOTH, BOTH)], "Guaranteed", id="requests equal limits"),
        pytest.param([app("cpu=1000m memory=1Gi", "cpu=1.0 memory=1024Mi")], "Guaranteed", id="the number counts"),
        pytest.param([app("", BOTH)], "Burstable", id="limits alone, before defaulting"),
        pytest.param([app("cpu=1", "cpu=1")], "Burstable", id="memory is missing"),
        pytest.param([app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi")], "Burstable", id="a request below its limit"),
        pytest.param([app(BOTH, BOTH), app(name="b")], "Burstable", id="one container without limits"),
        pytest.param([init(), app(BOTH, BOTH)], "Burstable", id="init containers count"),
        pytest.param([sidecar("cpu=1", "cpu=1"), app(BOTH, BOTH)], "Burstable", id="sidecars count"),
        pytest.param(
            [app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi"), app("cpu=2 memory=1Gi", "cpu=1 memory=1Gi", "b")],
            "Guaranteed",
            id="sums are compared, so unequal containers cancel out",
        ),
        pytest.param(
            [app("memory=1Gi", BOTH), app("cpu=2 memory=1Gi", BOTH, "b")], "Guaranteed", id="an absent request too"
        ),
    ],
)
def test_the_class_of_a_pod_follows_from_all_its_containers(containers: list[Container], expected: str) -> None:
    for gate in (True, False):
        assert qos_class(pod(*containers), pod_level_resources=gate) == expected


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(sized(BOTH, BOTH), "Guaranteed", id="requests equal limits"),
        pytest.param(sized(BOTH), "Burstable", id="requests alone"),
        pytest.param(sized("", BOTH), "Burstable", id="limits alone"),
        pytest.param(sized("cpu=1", "cpu=1"), "Burstable", id="memory is missing"),
        pytest.param(sized("hugepages-2Mi=2Mi", "hugepages-2Mi=2Mi"), "BestEffort", id="hugepages alone"),
        pytest.param(sized(), "BestEffort", id="an empty object"),
    ],
)
def test_pod_level_resources_alone_decide_where_the_gate_is_on(resources: ResourceRequirements, expected: str) -> None:
    both = pod(guaranteed("1"), resources=resources)
    assert qos_class(both, pod_level_resources=True) == expected
    assert qos_class(both, pod_level_resources=False) == "Guaranteed"


def test_ephemeral_containers_do_not_count() -> None:
    assert (
        qos_class(replace(pod(guaranteed("1")), ephemeral_containers=("debug",)), pod_level_resources=True)
        == "Guaranteed"
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [("Burstable", "Burstable"), ("BestEffort", "BestEffort"), ("", "Guaranteed"), ("Gold", "Guaranteed")],
)
def test_what_the_status_says_wins_if_it_is_a_class(said: str, expected: str) -> None:
    running = pod(guaranteed("1"), status=PodStatus(qos_class=said))
    assert pod_qos(running, pod_level_resources=True) == expected


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(app(BOTH, BOTH), True, id="both equal"),
        pytest.param(app("cpu=1.5 memory=1Gi", "cpu=1500m memory=1Gi"), True, id="a fraction of a CPU too"),
        pytest.param(app("", BOTH), False, id="requests missing"),
        pytest.param(app("cpu=1", "cpu=1"), False, id="memory missing"),
        pytest.param(app("cpu=0 memory=1Gi", "cpu=0 memory=1Gi"), False, id="zero CPUs"),
        pytest.param(app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi"), False, id="below the limit"),
    ],
)
def test_a_container_may_be_guaranteed_by_itself(container: Container, expected: bool) -> None:
    assert container_equivalent_guaranteed(container) is expected


@given(pods)
def test_a_pod_of_guaranteed_containers_is_guaranteed(any_pod: Pod) -> None:
    plain = replace(any_pod, resources=None)
    if plain.containers and all(map(container_equivalent_guaranteed, plain.containers)):
        assert qos_class(plain, pod_level_resources=True) is QOSClass.GUARANTEED
