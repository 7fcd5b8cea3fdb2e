"""Clients that start more than they wait for: what they may hold of the agent is bounded, and everybody gets an answer."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import BinaryIO

import grpc
import pytest

from agent.formats.podresources import Answers, encode_get
from agent.model.podresources import PodView
from agent.serve import node_service
from agent.serve.board import NodeBoard
from agent.serve.loop import ServingLoop
from agent.serve.node_service import NodeService
from agent.serve.podresources import BOUNDS, RATE_LIMITED, Endpoint, PodResourcesServer
from agent.serve.sockets import SocketAccess
from tests.serve.clients import SECONDS, channel, client, names, raw_call
from tests.serve.raw_http2 import DATA, END_STREAM, SETTINGS, RawClient, frame
from tests.serve.views import empty_view, shared, with_pods

LIST = "/v1.PodResourcesLister/List"
ANSWERS = Answers(list=encode_get(PodView("web", "default")))
MAX_CONCURRENT_STREAMS = 3  # in SETTINGS
RST_STREAM = 3
ACK = 1
REFUSED_STREAM = 7


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s" / "kubelet.sock"


@contextmanager
def serving(loop: ServingLoop, *endpoints: Endpoint) -> Iterator[PodResourcesServer]:
    server = PodResourcesServer(loop, endpoints)
    server.start(ANSWERS)
    try:
        yield server
    finally:
        server.stop()


def outcomes(opened: grpc.Channel, calls: int) -> Counter[str]:
    """Start so many calls at once and wait for all: "OK", or what the error says."""
    list_pods = opened.unary_unary(LIST, request_serializer=bytes, response_deserializer=bytes)
    started = [list_pods.future(b"", timeout=SECONDS) for _ in range(calls)]
    errors = [call.exception() for call in started]
    return Counter(
        "OK" if error is None else f"{error.code().name}: {error.details()}"  # type: ignore[attr-defined] # gRPC's errors are calls
        for error in errors
    )


def test_a_thousand_calls_at_once_are_answered_or_refused_as_the_kubelet_does(loop: ServingLoop, path: Path) -> None:
    with serving(loop, Endpoint(SocketAccess(path))), channel(path) as opened:
        for _ in range(3):
            seen = outcomes(opened, 1000)
            assert seen.keys() <= {"OK", f"RESOURCE_EXHAUSTED: {RATE_LIMITED}"}
            assert seen.total() == 1000


def test_without_a_rate_limit_a_thousand_calls_at_once_are_all_answered(loop: ServingLoop, path: Path) -> None:
    with serving(loop, Endpoint(SocketAccess(path), limit=None)), channel(path) as opened:
        for _ in range(3):
            assert outcomes(opened, 1000) == {"OK": 1000}


def until(opened: grpc.Channel, method: str, wanted: str) -> None:
    """Call until the outcome is this: what others send or close is still being taken note of."""
    call = raw_call(opened, method)
    end = time.monotonic() + SECONDS
    while (seen := outcome(call)) != wanted:
        assert time.monotonic() < end, seen
        time.sleep(0.01)


def outcome(call: Callable[..., bytes]) -> str:
    """OK, or what the error says."""
    try:
        call(b"", timeout=SECONDS)
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"
    return "OK"


def frames(stream: BinaryIO, until: Callable[[int, int], bool]) -> list[tuple[int, int, bytes]]:
    """What the server sends, as (kind, flags, payload), up to the first frame for whose kind and flags `until` holds."""
    seen: list[tuple[int, int, bytes]] = []
    while not seen or not until(*seen[-1][:2]):
        head = stream.read(9)
        assert len(head) == 9, "the server closed the connection"
        seen.append((head[3], head[4], stream.read(int.from_bytes(head[:3], "big"))))
    return seen


def settings(stream: BinaryIO) -> dict[int, int]:
    """The server's."""
    *_, (_, _, payload) = frames(stream, lambda kind, flags: kind == SETTINGS and flags != ACK)
    return dict(struct.iter_unpack(">HI", payload))


def test_the_server_says_how_many_calls_a_connection_may_have(loop: ServingLoop, path: Path) -> None:
    with serving(loop, Endpoint(SocketAccess(path))), closing(RawClient(path)) as stranger:
        assert settings(stranger.socket.makefile("rb"))[MAX_CONCURRENT_STREAMS] == BOUNDS.streams


def test_calls_beyond_that_are_refused_at_the_door(loop: ServingLoop, path: Path) -> None:
    """Of a client that does not keep to what it has acknowledged."""
    with serving(loop, Endpoint(SocketAccess(path))), closing(RawClient(path)) as stranger:
        stream = stranger.socket.makefile("rb")
        settings(stream)
        stranger.send(frame(SETTINGS, ACK, 0, b""))
        for _ in range(10 * BOUNDS.streams):
            stranger.open_call(LIST)
        for _ in range(9 * BOUNDS.streams):
            *_, (_, _, error) = frames(stream, lambda kind, _: kind == RST_STREAM)
            assert error == struct.pack(">I", REFUSED_STREAM)


def test_all_connections_together_hold_a_bounded_number_of_calls(loop: ServingLoop, path: Path) -> None:
    """Calls whose request never comes are open until the bound; from there on they are answered at once."""
    needed = BOUNDS.calls // BOUNDS.streams + 2
    with serving(loop, Endpoint(SocketAccess(path))), ExitStack() as stack:
        strangers = [stack.enter_context(closing(RawClient(path))) for _ in range(needed)]
        for stranger in strangers:
            for _ in range(BOUNDS.streams):
                stranger.open_call(LIST)
        with channel(path) as opened:
            until(opened, LIST, "RESOURCE_EXHAUSTED: Concurrent RPC limit exceeded!")
            stack.close()
            until(opened, LIST, "OK")


def kept(stranger: socket.socket) -> bool:
    """Whether the server has sent its settings, and not closed the connection at once."""
    stranger.settimeout(SECONDS)
    try:
        return stranger.recv(1) != b""
    except ConnectionResetError:
        return False


def test_connections_beyond_the_bound_are_closed_and_cost_no_other_socket_anything(
    loop: ServingLoop, path: Path
) -> None:
    calm = path.with_name("calm.sock")
    with serving(loop, Endpoint(SocketAccess(path)), Endpoint(SocketAccess(calm), "calm")), ExitStack() as stack:
        strangers = [
            stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            for _ in range(3 * BOUNDS.connections)
        ]
        for stranger in strangers:
            stranger.connect(os.fspath(path))
        assert sum(map(kept, strangers)) == BOUNDS.connections
        with client(calm) as stub:
            assert names(stub) == ["web"]


@pytest.fixture
def node(loop: ServingLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The socket of a node service of which 100 kB may wait to be read."""
    view = with_pods(empty_view(), *(shared(f"pod-{number}") for number in range(20)))
    monkeypatch.setattr(node_service, "UNREAD_BYTES", 100_000)
    board = NodeBoard()
    board.publish(view)
    where = tmp_path / "n" / "node.sock"
    service = NodeService(loop, SocketAccess(where), board, "n1")
    service.start()
    yield where
    service.stop()


STATUS = "/pinfold.node.v1.Node/Status"


def test_answers_of_the_node_service_that_nobody_reads_are_bounded(node: Path) -> None:
    with channel(node) as opened, ExitStack() as stack:
        status = raw_call(opened, STATUS)
        size = len(status(b"", timeout=SECONDS))
        assert size > 1000
        for _ in range(100_000 // size // BOUNDS.streams + 1):
            stranger = stack.enter_context(closing(RawClient(node, window=0)))
            for _ in range(BOUNDS.streams):
                stranger.send(frame(DATA, END_STREAM, stranger.open_call(STATUS), bytes(5)))
        until(opened, STATUS, "RESOURCE_EXHAUSTED: too many answers wait to be read")
        stack.close()
        until(opened, STATUS, "OK")
