"""Questions to an accountant: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import AgentError
from agent.model.pod import Pod
from agent.model.queue import ResourceQuantities
from agent.queues.options import QueueOptions
from agent.queues.what_if import (
    DEFAULT_ROUNDS,
    MAX_BYTES,
    QuestionError,
    decode_reclaim_question,
    decode_resize_question,
    decode_simulation_question,
    parse_question,
    resized,
)
from tests.pods import app, pod, sized, spelt

WEB = pod(app("cpu=1 memory=1Gi", name="app"), app("cpu=2", name="log"))
OPTIONS = QueueOptions()


def find(name: str) -> Pod | None:
    return WEB if name == "default/web" else None


def test_sizes_are_set_container_by_container_and_for_the_pod() -> None:
    new = resized(WEB, {"app.cpu": "3", "log.memory": "2Gi"})
    assert [spelt(each.resources.requests) for each in new.containers] == ["cpu=3 memory=1Gi", "cpu=2 memory=2Gi"]
    whole = resized(pod(app("cpu=1"), resources=sized("cpu=2", "cpu=9")), {".cpu": "4"})
    assert whole.resources is not None
    assert (spelt(whole.resources.requests), spelt(whole.resources.limits)) == ("cpu=4", "cpu=9")


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"app.gpu": "1"}, "'app.gpu' is not CONTAINER.cpu or CONTAINER.memory"),
        ({"app": "1"}, "'app' is not CONTAINER.cpu"),
        ({".cpu": "1"}, "pod default/web has no pod-level resources"),
        ({"db.cpu": "1"}, "pod default/web has no container db"),
        ({"app.cpu": "one"}, "one"),
    ],
)
def test_a_size_that_cannot_be_set_is_refused(sizes: dict[str, str], why: str) -> None:
    with pytest.raises(AgentError, match=why):
        resized(WEB, sizes)


def test_a_resize_is_asked_of_a_known_pod_or_with_both_pods() -> None:
    old, new = decode_resize_question({"pod": "default/web", "set": {"app.cpu": "2"}}, find)
    assert (old, spelt(new.containers[0].resources.requests)) == (WEB, "cpu=2 memory=1Gi")
    given = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}
    old, new = decode_resize_question({"oldPod": given, "newPod": given}, find)
    assert (old, old.name) == (new, "p")


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"pod": "default/other"}, "no such pod is known"),
        ({"oldPod": {}, "newPod": 5}, "oldPod"),
        ({"oldPod": {"metadata": {"name": "p"}, "spec": {"containers": []}}, "newPod": 5}, "newPod: must be a pod"),
        ({"oldPod": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": 5}]}}}, "oldPod"),
        ([], "must be an object, not a list"),
    ],
)
def test_a_resize_question_that_means_nothing_names_its_field(document: Any, why: str) -> None:
    with pytest.raises(QuestionError, match=why):
        decode_resize_question(document, find)


def test_a_reclaim_is_asked_for_a_known_job_or_for_one_made_up() -> None:
    known = decode_reclaim_question({"job": "ns/j", "forbidTakeBack": True}, OPTIONS)
    assert (known.job, known.made, known.options.forbid_take_back) == ("ns/j", None, True)
    question = {"queue": "q", "resources": {"cpu": 1000, "gpu": 0.5}, "queuePriorityInQuotaReclaim": True}
    made = decode_reclaim_question(question, OPTIONS)
    assert made.made is not None
    assert (made.made.queue, made.made.preemptible) == ("q", True)
    assert made.options.queue_priority_in_quota_reclaim
    assert made.made.pending == ResourceQuantities(1000.0, 0.0, 0.5)
    fixed = decode_reclaim_question({"queue": "q", "preemptible": False}, OPTIONS)
    assert fixed.made is not None
    assert not fixed.made.preemptible
    assert fixed.options == OPTIONS


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({}, "queue: required, or job"),
        ({"queue": "q", "resources": {"cpu": "4"}}, "resources.cpu"),
        ({"queue": "q", "resources": {"cpu": True}}, "resources.cpu"),
        ({"queue": "q", "resources": {"cpu": -1}}, "resources.cpu"),
        ({"queue": "q", "resources": {"cpu": float("inf")}}, "resources.cpu"),
        ({"queue": "q", "preemptible": "no"}, "preemptible"),
        ({"job": 5}, "job"),
    ],
)
def test_a_reclaim_question_that_means_nothing_names_its_field(document: Any, why: str) -> None:
    with pytest.raises(QuestionError, match=why):
        decode_reclaim_question(document, OPTIONS)


def test_a_simulation_has_a_bounded_number_of_rounds() -> None:
    assert decode_simulation_question({}, OPTIONS) == (DEFAULT_ROUNDS, OPTIONS)
    assert decode_simulation_question({"rounds": 1000}, OPTIONS)[0] == 1000
    for rounds in (0, 1001, -1, "5"):
        with pytest.raises(QuestionError, match="rounds"):
            decode_simulation_question({"rounds": rounds}, OPTIONS)


def test_a_question_is_json_within_bounds() -> None:
    assert parse_question(b'{"rounds": 1}') == {"rounds": 1}
    with pytest.raises(QuestionError, match="not JSON"):
        parse_question(b"{")
    with pytest.raises(QuestionError, match="not JSON"):
        parse_question(b"[" * 100_000)
    with pytest.raises(QuestionError, match="at most"):
        parse_question(b" " * (MAX_BYTES + 1))
