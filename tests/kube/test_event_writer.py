"""Events against an API server that takes them, refuses them, or is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agent.errors import AgentError
from agent.kube.event_writer import MAX_WAITING, EventWriter
from agent.kube.http_access import Access, Server
from agent.policy.pod_events import PodEvent
from tests.kube.servers import Answer, Asked, HTTPPart, served, wait_until
from tests.nodes import named


def told(number: int) -> PodEvent:
    return PodEvent(named(f"p{number}"), "Unplaced", f"no room {number}", True)


@contextmanager
def writing(statuses: list[int]) -> Iterator[tuple[EventWriter, HTTPPart, list[AgentError | None]]]:
    """A writer and a server that answers with these statuses, then 201."""
    faults: list[AgentError | None] = []

    def answer(asked: Asked, to: Answer) -> None:
        status = statuses.pop(0) if statuses else 201
        to.json({"message": f"said {status}"}, status)

    with served(answer) as part:
        writer = EventWriter(Server(Access(part.url)), "n1", faults.append, interval_seconds=0.01)
        writer.worker.start()
        try:
            yield writer, part, faults
        finally:
            writer.worker.stop()


def messages(part: HTTPPart) -> list[Any]:
    return [asked.body["message"] for asked in part.asked]


def test_an_event_says_which_pod_and_why() -> None:
    with writing([]) as (writer, part, faults):
        writer.tell(told(1))
        part.until(lambda: faults == [None])
        (asked,) = part.asked
        assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/default/events")
        body = asked.body
        assert body["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p1",
            "namespace": "default",
            "uid": "p1",
        }
        assert (body["type"], body["reason"], body["message"]) == ("Warning", "Unplaced", "no room 1")
        assert body["source"] == {"component": "pinfold", "host": "n1"}
        assert body["metadata"]["name"].startswith("p1.")


def test_what_is_refused_is_not_sent_again_and_what_did_not_arrive_is() -> None:
    with writing([403, 500, 429]) as (writer, part, faults):
        writer.tell(told(1))
        writer.tell(told(2))
        part.until(lambda: bool(faults) and faults[-1] is None)
        assert messages(part) == ["no room 1", "no room 2", "no room 2", "no room 2"]
        assert [str(each).split(": ")[1] for each in faults if each is not None] == ["HTTP 403", "HTTP 500", "HTTP 429"]


def test_the_oldest_go_where_too_many_wait() -> None:
    hold = threading.Event()

    def answer(asked: Asked, to: Answer) -> None:
        hold.wait(20)
        to.json({}, 201)

    with served(answer) as part:
        writer = EventWriter(Server(Access(part.url)), "n1", interval_seconds=0.0)
        for number in range(MAX_WAITING + 50):
            writer.tell(told(number))
        writer.worker.start()
        hold.set()
        wait_until(lambda: len(part.asked) == MAX_WAITING)
        writer.worker.stop()
        assert messages(part)[0] == "no room 50"
