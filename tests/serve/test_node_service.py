from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from agent.client import Connection, connect, watch
from agent.proto import node_v1_pb2 as v1
from agent.serve import node_feed
from agent.serve.board import NodeBoard, NodeView
from agent.serve.loop import ServingLoop
from agent.serve.node_service import SERVICE, NodeService
from agent.serve.sockets import SocketAccess
from tests.agents import pod_text
from tests.pods import amounts
from tests.serve.views import CAPACITY, empty_view, exclusive, shared, with_pods

PATIENCE_SECONDS = 30.0


@dataclass
class Served:
    """A service on a socket, the board it reads, and a client of it."""

    board: NodeBoard
    view: NodeView
    socket: Path
    client: Connection

    def show(self, view: NodeView) -> None:
        self.view = view
        self.board.publish(view)

    def events(self, resume: v1.Position | None = None, beat: int = 0) -> Iterator[v1.WatchEvent]:
        request = v1.WatchRequest(resume=resume, beat_seconds=beat)
        return iter(self.client.stub.Watch(request, timeout=PATIENCE_SECONDS))


@pytest.fixture
def served(loop: ServingLoop, tmp_path: Path) -> Iterator[Served]:
    board, view = NodeBoard(), empty_view()
    board.publish(view)
    path = tmp_path / "node.sock"
    service = NodeService(loop, SocketAccess(path), board, "node-1")
    service.start()
    with connect(path) as client:
        yield Served(board, view, path, client)
    service.stop()


def names(state: v1.State) -> list[str]:
    return [pod.name for pod in state.pods]


def test_status_tells_pods_pools_numa_nodes_and_refusals(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("db", 4), shared("web"), exclusive("huge", 40)))
    state = served.client.stub.Status(v1.StatusRequest()).state
    db, web = state.pods
    assert (db.name, db.qos, db.containers[0].isolation, db.containers[0].cpus) == (
        "db",
        "Guaranteed",
        v1.Container.CONTAINER,
        "1-4",
    )
    assert db.containers[0].memory == [v1.MemoryBlock(type="memory", size=2**30, numa=[0])]
    assert db.containers[0].hint == v1.Hint(numa=[0], preferred=True)
    assert (web.containers[0].isolation, web.containers[0].cpus) == (v1.Container.HOST, "")
    assert (state.node.shared_cpus, state.node.reserved_cpus, state.node.online_cpus) == ("0,5-15", "0", "0-15")
    first = state.node.numa[0]
    assert (first.shared_cpus, first.held_cpus[0].pod, first.held_cpus[0].cpus) == ("5-7", "default/db", "1-4")
    assert (first.memory[0].held[0].pod, first.memory[0].held[0].size) == ("default/db", 2**30)
    refused = state.node.refused[0]
    assert (refused.name, refused.reason, refused.asked["cpu"]) == ("huge", "TopologyAffinityError", 40)
    assert (state.position.generation, state.node.name, state.node.ready) == (2, "node-1", True)


def test_watch_begins_whole_and_goes_on_with_what_changed(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("a", 2), shared("b")))
    events = served.events()
    first = next(events)
    assert (first.kind, names(first.state)) == (v1.WatchEvent.WHOLE, ["a", "b"])

    served.show(with_pods(served.view, exclusive("a", 2), shared("b"), exclusive("c", 1)))
    added = next(events)
    assert (added.kind, names(added.state)) == (v1.WatchEvent.CHANGE, ["c"])
    assert (list(added.removed_uids), list(added.order)) == ([], ["a", "b", "c"])
    assert added.state.node.shared_cpus == "0,4-15"

    served.show(with_pods(served.view, shared("b"), exclusive("c", 1)))
    removed = next(events)
    assert (names(removed.state), list(removed.removed_uids)) == ([], ["a"])

    served.show(replace(served.view, ready=False, problems=("the disk is full",)))
    unready = next(events)
    assert (unready.state.node.ready, list(unready.state.node.problems)) == (False, ["the disk is full"])
    assert (names(unready.state), list(unready.order)) == ([], [])


def test_watch_resumes_with_nothing_but_later_changes(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("a", 1)))
    seen = next(served.events()).state.position
    served.show(with_pods(served.view, exclusive("a", 1), exclusive("b", 1)))
    served.client.stub.Status(v1.StatusRequest())  # views that nobody reads are one change with the next
    served.show(with_pods(served.view, exclusive("b", 1)))
    events = served.events(seen)
    assert [names(next(events).state), list(next(events).removed_uids)] == [["b"], ["a"]]


def test_views_that_nobody_has_read_are_one_change(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("a", 1)))
    seen = served.client.stub.Status(v1.StatusRequest()).state.position  # a stream could still be reading
    served.show(with_pods(served.view, exclusive("a", 1), exclusive("b", 1), shared("c")))
    served.show(with_pods(served.view, exclusive("b", 1), shared("c")))
    event = next(served.events(seen))
    assert (names(event.state), list(event.removed_uids)) == (["b", "c"], ["a"])


def test_watch_resumed_at_the_newest_position_tells_the_node_at_once(served: Served) -> None:
    seen = next(served.events()).state.position
    event = next(served.events(seen))
    assert (event.kind, event.state.node.name, names(event.state)) == (v1.WatchEvent.CHANGE, "node-1", [])


@pytest.mark.parametrize(
    "unknown", [v1.Position(epoch="000000000001-ffffffffffffffff", generation=1), v1.Position(generation=7)]
)
def test_watch_from_a_position_of_another_line_begins_whole(served: Served, unknown: v1.Position) -> None:
    assert next(served.events(unknown)).kind == v1.WatchEvent.WHOLE


def test_a_slow_reader_is_told_what_it_lost_and_holds_up_nobody(served: Served) -> None:
    problems = tuple(f"{number} " + "x" * 4000 for number in range(25))  # 100 kB a change: more than a connection holds
    slow, quick = served.events(), served.events()
    assert next(slow).kind == next(quick).kind == v1.WatchEvent.WHOLE
    changes = 2 * node_feed.KEPT_CHANGES
    for number in range(changes):
        served.show(replace(served.view, problems=(str(number), *problems)))
        assert next(quick).state.node.problems[0] == str(number)
    kinds = []
    lost = 0
    for event in slow:
        kinds.append(event.kind)
        lost += event.lost_changes
        if event.state.node.problems[0] == str(changes - 1):
            break
    assert kinds.count(v1.WatchEvent.WHOLE) == 1
    assert lost
    assert lost + kinds.count(v1.WatchEvent.CHANGE) == changes


def test_a_beat_shows_that_the_agent_lives(served: Served) -> None:
    events = served.events(beat=1)
    whole, beat = next(events), next(events)
    assert (beat.kind, beat.state.position) == (v1.WatchEvent.BEAT, whole.state.position)


def test_explain_judges_known_pods_and_manifests(served: Served) -> None:
    served.show(with_pods(served.view, exclusive("a", 7), exclusive("b", 8), exclusive("late", 3)))
    stub = served.client.stub
    known = stub.Explain(v1.ExplainRequest(pod="default/late")).explanations[0]
    assert (known.admitted, known.reason) == (False, "TopologyAffinityError")
    assert list(known.pods_in_the_way) == ["default/a", "default/b"]
    assert {report.resource: report.asked for report in known.resources} == {"cpu": 3, "memory": 2**30}
    assert dict(known.resources[0].numa[1].held) == {"default/b": 8}
    assert "would fit without any one of: default/a, default/b" in known.text
    assert json.loads(known.json)["pod"] == "default/late"
    small = pod_text("small", "1")
    asked = stub.Explain(v1.ExplainRequest(manifest=small.encode())).explanations[0]
    assert (asked.pod, asked.admitted) == ("default/small", False)
    assert served.client.stub.Status(v1.StatusRequest()).state.position.generation == 2, "nothing is changed"


def test_pods_explained_together_count_beside_each_other(served: Served) -> None:
    room = {**CAPACITY.allocatable, **amounts("pods=2")}
    served.show(replace(with_pods(served.view, shared("here")), capacity=replace(CAPACITY, allocatable=room)))
    manifest = "\n---\n".join((pod_text("first"), pod_text("second")))
    found = served.client.stub.Explain(v1.ExplainRequest(manifest=manifest.encode())).explanations
    assert [(each.admitted, each.reason) for each in found] == [(True, ""), (False, "OutOfpods")]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (v1.ExplainRequest(pod="default/nobody"), grpc.StatusCode.NOT_FOUND),
        (v1.ExplainRequest(), grpc.StatusCode.NOT_FOUND),
        (v1.ExplainRequest(manifest=b"\xff{["), grpc.StatusCode.INVALID_ARGUMENT),
        (v1.ExplainRequest(manifest=b"a: " + b"[" * 3000), grpc.StatusCode.INVALID_ARGUMENT),
        (v1.ExplainRequest(manifest=b"x" * 40_000_000), grpc.StatusCode.RESOURCE_EXHAUSTED),
    ],
)
def test_explain_says_what_is_wrong_with_a_request(
    served: Served, request_: v1.ExplainRequest, code: grpc.StatusCode
) -> None:
    with pytest.raises(grpc.RpcError) as refusal:
        served.client.stub.Explain(request_)
    assert refusal.value.code() is code


def test_health_follows_readiness_and_reflection_names_the_services(served: Served) -> None:
    with grpc.insecure_channel(f"unix:{served.socket}") as channel:
        health = health_pb2_grpc.HealthStub(channel)
        serving = health_pb2.HealthCheckResponse
        watched = health.Watch(health_pb2.HealthCheckRequest(service=SERVICE), timeout=PATIENCE_SECONDS)
        assert next(watched).status == serving.SERVING
        served.show(replace(served.view, ready=False))
        assert next(watched).status == serving.NOT_SERVING
        reflect = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        listed = next(iter(reflect.ServerReflectionInfo(asked))).list_services_response.service
        assert {service.name for service in listed} == {
            SERVICE,
            "grpc.health.v1.Health",
            "grpc.reflection.v1alpha.ServerReflection",
        }


def test_the_client_goes_on_where_it_was_when_the_agent_comes_back(loop: ServingLoop, tmp_path: Path) -> None:
    board = NodeBoard()
    view = with_pods(empty_view(), exclusive("a", 1))
    board.publish(view)
    access = SocketAccess(tmp_path / "node.sock")
    service = NodeService(loop, access, board, "node-1")
    service.start()
    with connect(access.path) as client:
        states = watch(client)
        assert list(next(states).pods) == ["a"]
        service.stop()
        view = with_pods(view, exclusive("b", 1))
        board = NodeBoard()
        board.publish(view)
        service = NodeService(loop, access, board, "node-1")
        service.start()
        now = next(states)
        assert (list(now.pods), now.position.generation) == (["b"], 3)
        service.stop()


def test_the_client_gives_up_after_its_patience(tmp_path: Path) -> None:
    with connect(tmp_path / "nobody.sock") as client, pytest.raises(grpc.RpcError) as refusal:
        next(watch(client, patience_seconds=0.0))
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("method", ["Status", "Explain"])
def test_no_bytes_stop_the_service(served: Served, method: str) -> None:
    with grpc.insecure_channel(f"unix:{served.socket}") as channel:
        call = channel.unary_unary(f"/{SERVICE}/{method}", None, None)

        @given(st.binary(max_size=300))
        def attack(data: bytes) -> None:
            answered = call.future(data, timeout=PATIENCE_SECONDS)
            assert answered.code() in {
                grpc.StatusCode.OK,
                grpc.StatusCode.INTERNAL,
                grpc.StatusCode.NOT_FOUND,
                grpc.StatusCode.INVALID_ARGUMENT,
            }

        attack()
    assert served.client.stub.Status(v1.StatusRequest()).state.node.name == "node-1"


def test_many_watchers_see_the_same_changes(served: Served) -> None:
    seen: list[list[str]] = []

    def follow() -> None:
        events = served.events()
        last = next(events).state.node.problems
        while list(last) != ["19"]:
            last = next(events).state.node.problems
        seen.append(list(last))

    threads = [threading.Thread(target=follow) for _ in range(16)]
    for thread in threads:
        thread.start()
    for number in range(20):
        served.show(replace(served.view, problems=(str(number),)))
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert seen == [["19"]] * 16
