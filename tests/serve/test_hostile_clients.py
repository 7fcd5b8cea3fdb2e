"""Clients that break the rules of PodResources: they get nothing, and the others notice nothing."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import grpc
import pytest

from agent.formats.podresources import Answers, encode_get
from agent.model.podresources import PodView
from agent.serve.loop import ServingLoop
from agent.serve.podresources import BOUNDS, Endpoint, PodResourcesServer
from agent.serve.sockets import SocketAccess
from tests.serve.clients import SECONDS, channel, client, code_of, names, raw_call
from tests.serve.raw_http2 import PREFACE, RawClient

LIST = "/v1.PodResourcesLister/List"
ANSWERS = Answers(list=encode_get(PodView("web", "default")) * 4000)  # about 64 KiB
UNREAD_BYTES = 1 << 20


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s" / "kubelet.sock"


@pytest.fixture
def server(loop: ServingLoop, path: Path) -> Iterator[PodResourcesServer]:
    calm = Endpoint(SocketAccess(path.with_name("calm.sock")), client_group="calm", limit=None)
    server = PodResourcesServer(loop, [Endpoint(SocketAccess(path), limit=None, unread_bytes=UNREAD_BYTES), calm])
    server.start(ANSWERS)
    yield server
    server.stop()


@pytest.fixture
def seed() -> int:
    return 20260101


def answers_well(path: Path) -> bool:
    with client(path) as stub:
        return len(names(stub)) == 4000


@pytest.mark.parametrize("preface", [b"", PREFACE, b"GET / HTTP/1.1\r\n\r\n"], ids=["none", "http2", "http1"])
def test_garbage_ends_the_connection_it_came_on(
    server: PodResourcesServer, path: Path, seed: int, preface: bytes
) -> None:
    source = random.Random(seed)
    for _ in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(os.fspath(path))
            with suppress(OSError):  # refused already
                stranger.sendall(preface + source.randbytes(source.randrange(1, 4096)))
    assert answers_well(path)


def test_a_request_that_is_no_message_is_refused_as_the_go_server_does(server: PodResourcesServer, path: Path) -> None:
    with channel(path) as opened:
        for method in ("List", "Get", "GetAllocatableResources"):
            with pytest.raises(grpc.RpcError, match="error unmarshalling request") as refusal:
                raw_call(opened, f"/v1.PodResourcesLister/{method}")(b"\x0a\xff\xff", timeout=SECONDS)
            assert refusal.value.code() is grpc.StatusCode.INTERNAL
    assert answers_well(path)


def test_a_request_that_is_too_large_is_refused(server: PodResourcesServer, path: Path) -> None:
    with channel(path) as opened, pytest.raises(grpc.RpcError) as refusal:
        raw_call(opened, LIST)(b"\x0a" + bytes(1 << 20), timeout=SECONDS)
    assert refusal.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert answers_well(path)


def test_random_requests_get_an_answer_or_an_error_and_never_a_hang(
    server: PodResourcesServer, path: Path, seed: int
) -> None:
    source = random.Random(seed)
    with channel(path) as opened:
        get = raw_call(opened, "/v1.PodResourcesLister/Get")
        for _ in range(300):
            with pytest.raises(grpc.RpcError) as refusal:
                get(source.randbytes(source.randrange(0, 64)), timeout=SECONDS)
            assert refusal.value.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN)
    assert answers_well(path)


def test_calls_that_never_send_their_request_hold_up_nobody(server: PodResourcesServer, path: Path) -> None:
    with closing(RawClient(path)) as stranger:
        for _ in range(100):
            stranger.open_call(LIST)
        assert answers_well(path)


def test_connections_that_say_nothing_hold_up_nobody(server: PodResourcesServer, path: Path) -> None:
    strangers = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(BOUNDS.connections - 8)]
    for stranger in strangers:
        stranger.connect(os.fspath(path))
    assert answers_well(path)
    for stranger in strangers:
        stranger.close()


def test_thousands_of_calls_at_once_are_all_answered(server: PodResourcesServer, path: Path) -> None:
    calm = path.with_name("calm.sock")

    def ask() -> None:
        with channel(calm) as opened:
            call = raw_call(opened, LIST)
            for _ in range(100):
                assert call(b"", timeout=SECONDS) == ANSWERS.list

    with ThreadPoolExecutor(20) as clients:
        for asked in [clients.submit(ask) for _ in range(20)]:
            asked.result()


def resident_kib() -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])


def test_a_client_that_reads_nothing_costs_a_bounded_amount_and_only_its_own_group(
    server: PodResourcesServer, path: Path
) -> None:
    assert answers_well(path)
    before = resident_kib()
    strangers = [RawClient(path, window=0) for _ in range(8)]
    for stranger in strangers:
        for _ in range(120):
            stranger.call(LIST)
    with client(path) as stub, client(path.with_name("calm.sock")) as calm:
        while code_of(stub) == "OK":
            time.sleep(0.01)  # the strangers' calls are still coming in
        assert code_of(stub) == "RESOURCE_EXHAUSTED"
        assert len(names(calm)) == 4000
        assert resident_kib() - before < 32 * 1024  # 960 answers are 60 MiB
        for stranger in strangers:
            stranger.close()
        while code_of(stub) != "OK":
            time.sleep(0.01)
    assert answers_well(path)
