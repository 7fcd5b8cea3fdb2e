"""Records of kind effective_requests."""

from __future__ import annotations

import pytest

from agent.formats.pods import PodError
from agent.replay.context import Context
from agent.replay.effective_requests import replay
from tests.shared import KUBELET, records


def test_a_record_is_answered_once_per_option() -> None:
    resources = {"requests": {"cpu": "250m", "memory": "1000"}, "limits": {"cpu": "1.0005"}}
    spec = {"containers": [{"name": "a", "resources": resources}], "overhead": {"cpu": "100m"}}
    options = [{}, {"exclude_overhead": True, "non_missing_container_requests": {"ephemeral-storage": "1Gi"}}]
    answer = replay({"pod": {"metadata": {"name": "p"}, "spec": spec}, "options": options}, Context())
    assert not any(answer[key] for key in answer if key != "results")
    plain, bare = answer["results"]
    assert plain["pod_requests"] == {"cpu": {"q": "350m", "milli": 350}, "memory": {"q": "1k", "value": 1000}}
    assert plain["pod_limits"] == {"cpu": {"q": "1100500u", "milli": 1101}}
    assert plain["aggregate_container_limits"] == {"cpu": {"q": "1000500u", "milli": 1001}}
    assert set(bare["pod_requests"]) == {"cpu", "memory", "ephemeral-storage"}
    assert bare["pod_requests"]["cpu"]["milli"] == 250


def test_a_bad_pod_is_an_error_that_names_the_field() -> None:
    with pytest.raises(PodError, match=r"spec.containers\[0\].name: required"):
        replay({"pod": {"metadata": {"name": "p"}, "spec": {"containers": [{}]}}}, Context())


@pytest.mark.shared
def test_every_recorded_answer_is_ours_too_the_spelling_of_amounts_included() -> None:
    wrong = [
        each["id"]
        for each in records(KUBELET / "effective_requests.jsonl.gz")
        if each["kind"] == "effective_requests" and replay(each["input"], Context()) != each["want"]
    ]
    assert wrong == []
