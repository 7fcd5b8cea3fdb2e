"""Evictions against an API server that takes them, refuses them, is slow, or is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import pytest

from agent.kube.evictor import Evicted, Evictor, Outcome
from agent.kube.http_access import Access, Server
from tests.kube.servers import Answer, Asked, HTTPPart, served, wait_until
from tests.nodes import named

POD = replace(named("web-1"), uid="u-1", namespace="shop")


@contextmanager
def evicting(
    status: int, headers: Mapping[str, str] | None = None, slow: threading.Event | None = None
) -> Iterator[tuple[Evictor, HTTPPart, list[Evicted]]]:
    """An evictor, and a server that gives this answer, at once or once `slow` is set."""
    answers: list[Evicted] = []

    def answer(asked: Asked, to: Answer) -> None:
        if slow is not None:
            slow.wait(20)
        to.json({"kind": "Status", "message": f"said {status}"}, status, **(headers or {}))

    with served(answer) as part:
        evictor = Evictor(Server(Access(part.url, timeout_seconds=0.3)), answers.append)
        evictor.worker.start()
        try:
            yield evictor, part, answers
        finally:
            if slow is not None:
                slow.set()
            evictor.worker.stop()


def test_an_eviction_names_the_pod_and_its_uid() -> None:
    with evicting(201) as (evictor, part, answers):
        evictor.evict(POD)
        part.until(lambda: bool(answers))
        assert answers == [Evicted(POD, Outcome.EVICTED)]
        (asked,) = part.asked
        assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/shop/pods/web-1/eviction")
        assert asked.body == {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web-1", "namespace": "shop"},
            "deleteOptions": {"preconditions": {"uid": "u-1"}},
        }


@pytest.mark.parametrize(
    ("status", "headers", "outcome", "retry_after"),
    [
        pytest.param(404, {}, Outcome.GONE, None, id="there is no such pod"),
        pytest.param(409, {}, Outcome.REFUSED, None, id="another pod has the name"),
        pytest.param(429, {"Retry_After": "10"}, Outcome.REFUSED, 10.0, id="a disruption budget"),
        pytest.param(429, {}, Outcome.REFUSED, None, id="a budget without a time"),
        pytest.param(403, {}, Outcome.FAILED, None, id="no rights"),
        pytest.param(500, {}, Outcome.FAILED, None, id="two budgets"),
        pytest.param(503, {"Retry_After": "5"}, Outcome.FAILED, 5.0, id="overloaded"),
    ],
)
def test_answers_that_say_no(status: int, headers: dict[str, str], outcome: Outcome, retry_after: float | None) -> None:
    with evicting(status, headers) as (evictor, part, answers):
        evictor.evict(POD)
        part.until(lambda: bool(answers))
        (answer,) = answers
        assert (answer.outcome, answer.retry_after) == (outcome, retry_after)
        assert f"said {status}" in answer.message
        assert ("rbac-eviction.yaml" in answer.hint) is (status == 403)


def test_a_server_that_is_slow_is_given_up_and_asked_the_same_again() -> None:
    slow = threading.Event()
    with evicting(201, slow=slow) as (evictor, part, answers):
        evictor.evict(POD)
        part.until(lambda: bool(answers))
        assert answers[0].outcome is Outcome.FAILED
        assert "no answer within 0.3 s" in answers[0].message
        slow.set()
        evictor.evict(POD)
        part.until(lambda: len(answers) == 2)
        assert answers[1].outcome is Outcome.EVICTED
        assert part.asked[0].body == part.asked[1].body


def test_a_server_that_is_away_is_a_failure() -> None:
    with evicting(201) as (_, part, _answers):
        away = part.url
    answers: list[Evicted] = []
    evictor = Evictor(Server(Access(away)), answers.append)
    evictor.worker.start()
    evictor.evict(POD)
    wait_until(lambda: bool(answers))
    evictor.worker.stop()
    assert answers[0].outcome is Outcome.FAILED
