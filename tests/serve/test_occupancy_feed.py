"""GetOccupancy and WatchOccupancy: a reader that applies what it gets always has the report of the generation it was told."""

from __future__ import annotations

import json
from typing import Any

from agent.proto import node_v1_pb2 as v1
from agent.serve.occupancy_feed import KEPT_REPORTS
from tests.serve.test_node_service import PATIENCE_SECONDS, Served, served
from tests.serve.views import exclusive, shared, with_pods

__all__ = ["served"]


class Reader:
    """Rebuilds the node's pods from events, as a scheduler does."""

    def __init__(self) -> None:
        self.pods: dict[str, Any] = {}
        self.position = v1.Position()
        self.kinds: list[int] = []

    def take(self, event: v1.OccupancyEvent) -> None:
        self.kinds.append(event.kind)
        if event.kind == v1.OccupancyEvent.BEAT:
            return
        report = json.loads(event.report_json)
        if event.kind == v1.OccupancyEvent.WHOLE:
            self.pods = {}
        else:
            assert event.base == self.position
        self.pods = {uid: pod for uid, pod in {**self.pods, **report["pods"]}.items() if uid not in report["gone"]}
        self.position = event.position
        assert (report["epoch"], report["generation"]) == (event.position.epoch, event.position.generation)


def now(served: Served) -> tuple[v1.Position, dict[str, Any]]:
    answer = served.client.stub.GetOccupancy(v1.GetOccupancyRequest())
    return answer.position, json.loads(answer.report_json)


def test_get_occupancy_is_the_state_in_force(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("db", 4), shared("web")))
    position, report = now(served)
    assert (report["node"], report["generation"]) == ("node-1", position.generation)
    held = {pod["name"]: pod["held"] for pod in report["pods"].values()}
    assert held["db"]["node-0"]["cpus"] == "1-4"
    assert held["web"] == {}


def test_a_reader_of_whole_and_changes_has_what_a_full_report_says(served: Served) -> None:
    reader = Reader()
    events = iter(served.client.stub.WatchOccupancy(v1.WatchOccupancyRequest(), timeout=PATIENCE_SECONDS))
    reader.take(next(events))
    for pods in ((exclusive("a", 2),), (exclusive("b", 2), shared("c"))):
        served.show(with_pods(served.view, *pods))
        reader.take(next(events))
        assert reader.pods == now(served)[1]["pods"]
    assert reader.kinds == [v1.OccupancyEvent.WHOLE, v1.OccupancyEvent.CHANGE, v1.OccupancyEvent.CHANGE]


def test_a_reader_resumes_with_the_difference_and_begins_anew_from_an_unknown_place(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("a", 2)))
    reader = Reader()
    first = served.client.stub.WatchOccupancy(v1.WatchOccupancyRequest(), timeout=PATIENCE_SECONDS)
    reader.take(next(iter(first)))
    first.cancel()  # type: ignore[no-untyped-call] # missing in the stubs
    served.show(with_pods(served.view, exclusive("b", 2)))
    request = v1.WatchOccupancyRequest(resume=reader.position)
    reader.take(next(iter(served.client.stub.WatchOccupancy(request, timeout=PATIENCE_SECONDS))))
    assert reader.kinds == [v1.OccupancyEvent.WHOLE, v1.OccupancyEvent.CHANGE]
    assert reader.pods == now(served)[1]["pods"]
    for index in range(KEPT_REPORTS + 1):
        served.show(with_pods(served.view, shared(f"s{index}")))
        now(served)
    reader.take(next(iter(served.client.stub.WatchOccupancy(request, timeout=PATIENCE_SECONDS))))
    assert reader.kinds[-1] == v1.OccupancyEvent.WHOLE
    assert reader.pods == now(served)[1]["pods"]


def test_a_beat_comes_where_nothing_changes(served: Served) -> None:
    request = v1.WatchOccupancyRequest(beat_seconds=1)
    events = iter(served.client.stub.WatchOccupancy(request, timeout=PATIENCE_SECONDS))
    assert [next(events).kind for _ in range(2)] == [v1.OccupancyEvent.WHOLE, v1.OccupancyEvent.BEAT]
