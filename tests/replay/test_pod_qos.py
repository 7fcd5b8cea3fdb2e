"""Records of kind pod_qos."""

from __future__ import annotations

from typing import Any

import pytest

from agent.replay.context import Context
from agent.replay.pod_qos import replay
from tests.shared import KUBELET, records

BOTH = {"cpu": "1", "memory": "1Gi"}


def record(gate: bool | None) -> dict[str, Any]:
    containers = [{"name": "a", "resources": {"requests": BOTH, "limits": BOTH}}]
    spec = {
        "initContainers": [{"name": "i"}],
        "containers": containers,
        "resources": {"requests": BOTH, "limits": BOTH},
    }
    pod = {"metadata": {"name": "p"}, "spec": spec, "status": {"qosClass": "BestEffort"}}
    return {"pod": pod} if gate is None else {"pod": pod, "feature_gates": {"PodLevelResources": gate}}


@pytest.mark.parametrize(("gate", "qos"), [(True, "Guaranteed"), (False, "Burstable"), (None, "Guaranteed")])
def test_a_record_gives_the_class_of_the_spec_and_of_the_status_and_each_containers(
    gate: bool | None, qos: str
) -> None:
    assert replay(record(gate), Context()) == {
        "qos": qos,
        "get_pod_qos": "BestEffort",
        "container_equivalent_guaranteed": {"i": False, "a": True},
    }


@pytest.mark.shared
def test_every_recorded_answer_is_ours_too() -> None:
    wrong = [
        each["id"]
        for each in records(KUBELET / "pod_qos.jsonl.gz")
        if each["kind"] == "pod_qos" and replay(each["input"], Context()) != each["want"]
    ]
    assert wrong == []
