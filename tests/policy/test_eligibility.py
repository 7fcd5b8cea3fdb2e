"""Which pods and containers get something of their own."""

from __future__ import annotations

import pytest

from agent.model.pod import Pod, PodStatus, QOSClass, ResourceRequirements
from agent.policy.eligibility import claims
from agent.policy.feature_gates import FeatureGates
from agent.policy.pod_resources import pod_level_resources_set
from tests.nodes import GIB
from tests.pods import app, guaranteed, init, pod, sidecar, sized

OFF = FeatureGates()
ON = FeatureGates.of({"PodLevelResourceManagers": True})
BUDGET = sized("cpu=4 memory=4Gi", "cpu=4 memory=4Gi")
HALF = "cpu=1500m memory=1Gi"


@pytest.mark.parametrize(
    ("what", "gates", "cpus", "memory"),
    [
        pytest.param(pod(guaranteed("2")), OFF, {"app": 2}, {"app": GIB}, id="Guaranteed and whole"),
        pytest.param(pod(app(HALF, HALF)), OFF, {}, {"app": GIB}, id="a fraction has memory only"),
        pytest.param(pod(app("cpu=2 memory=1Gi", "cpu=3 memory=1Gi")), OFF, {}, {}, id="Burstable has nothing"),
        pytest.param(pod(app()), OFF, {}, {}, id="BestEffort has nothing"),
        pytest.param(
            pod(init("cpu=1 memory=1Gi", "cpu=1 memory=1Gi"), sidecar(HALF, HALF), guaranteed("2")),
            OFF,
            {"init": 1, "app": 2},
            {"init": GIB, "sidecar": GIB, "app": GIB},
            id="every kind of container",
        ),
        pytest.param(pod(guaranteed("2"), resources=BUDGET), OFF, {}, {}, id="a budget with the managers gate off"),
        pytest.param(
            pod(guaranteed("2"), app("cpu=1", "cpu=1", "b"), resources=BUDGET),
            ON,
            {"app": 2},
            {"app": GIB},
            id="a budget: only who sets both and equal",
        ),
        pytest.param(
            pod(guaranteed("2"), resources=sized("cpu=4", "cpu=4")), ON, {}, {}, id="half a budget is not Guaranteed"
        ),
    ],
)
def test_who_claims_what(what: Pod, gates: FeatureGates, cpus: dict[str, int], memory: dict[str, int]) -> None:
    asked = claims(what, gates)
    assert (asked.qos is QOSClass.GUARANTEED) or not (cpus or memory)
    assert asked.cpus == cpus
    assert {name: request["memory"] for name, request in asked.memory.items()} == memory


def test_a_status_with_a_class_wins_over_the_spec() -> None:
    asked = claims(pod(guaranteed("2"), status=PodStatus(qos_class="Burstable")), OFF)
    assert (asked.qos, asked.cpus) == (QOSClass.BURSTABLE, {})


def test_a_budget_is_the_bubbles_size_and_a_fraction_of_it_gives_no_cpus() -> None:
    asked = claims(pod(guaranteed("2"), resources=BUDGET), ON)
    assert (asked.pod_level, asked.pod_cpus, asked.pod_memory) == (True, 4, {"memory": 4 * GIB})
    assert asked.qos is QOSClass.GUARANTEED
    half = claims(pod(guaranteed("2"), resources=sized("cpu=3500m memory=4Gi", "cpu=3500m memory=4Gi")), ON)
    assert (half.pod_cpus, half.pod_memory) == (0, {"memory": 4 * GIB})


def test_a_budget_of_nothing_that_is_managed_is_no_budget() -> None:
    devices = sized("example.com/device=1", "example.com/device=1")
    asked = claims(pod(guaranteed("2"), resources=devices, status=PodStatus(qos_class="Guaranteed")), ON)
    assert (asked.pod_level, asked.pod_cpus, asked.pod_memory) == (False, 0, None)
    assert asked.cpus == {"app": 2}


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (None, False),
        (ResourceRequirements(), False),
        (sized("cpu=1"), True),
        (sized("", "memory=1Gi"), True),
        (sized("hugepages-2Mi=2Mi"), True),
        (sized("example.com/device=1"), False),
    ],
)
def test_resources_of_the_pod_itself(resources: ResourceRequirements | None, expected: bool) -> None:
    assert pod_level_resources_set(pod(app(), resources=resources)) is expected
