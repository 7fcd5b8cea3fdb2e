"""The HTTP server over real connections: what it answers, and what it refuses to wait for."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.serve.http import HTTPAddressError, HTTPServer
from agent.serve.http_connection import Limits
from agent.serve.http_messages import Request, Response
from agent.serve.loop import ServingLoop

Start = Callable[..., HTTPServer]
LOOPBACK = "127.0.0.1"


def hello(request: Request) -> Response:
    return Response(f"hello {request.query.get('name', 'nobody')}\n")


def broken(_: Request) -> Response:
    raise ZeroDivisionError


def large(_: Request) -> Response:
    return Response(bytes(32 << 20), "application/octet-stream")


ROUTES = {"/hello": hello, "/broken": broken, "/large": large}


@pytest.fixture
def start(loop: ServingLoop) -> Iterator[Start]:
    started = []

    def start(address: str = LOOPBACK, port: int = 0, **limits: float) -> HTTPServer:
        server = HTTPServer(loop, address, port, ROUTES, Limits(**limits))  # type: ignore[arg-type]
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def connect(server: HTTPServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(server.address, server.port, timeout=20)


def ask(server: HTTPServer, target: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = connect(server)
    connection.request(method, target, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def raw(server: HTTPServer, data: bytes) -> bytes:
    """Send bytes; everything that comes back until the server closes."""
    with socket.create_connection((server.address, server.port), timeout=20) as connection:
        connection.sendall(data)
        received = b""
        while part := connection.recv(65536):
            received += part
        return received


def established(server: HTTPServer) -> int:
    """How many clients the kernel has connected to the server (proc_pid_net(5))."""
    sockets = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(int(local.partition(":")[2], 16) == server.port and state == "01" for _, local, _, state, *_ in sockets)


def test_a_path_is_answered_and_its_query_read(start: Start) -> None:
    server = start()
    assert ask(server, "/hello?name=me%20too&flag") == (200, "hello me too\n")
    assert ask(server, "/hello") == (200, "hello nobody\n")


def test_one_connection_serves_many_requests(start: Start) -> None:
    connection = connect(start())
    for number in range(5):
        connection.request("GET", f"/hello?name={number}")
        assert connection.getresponse().read() == f"hello {number}\n".encode()


def test_head_gets_the_headers_alone(start: Start) -> None:
    connection = connect(start())
    connection.request("HEAD", "/hello")
    answer = connection.getresponse()
    assert (answer.read(), answer.headers["Content-Length"]) == (b"", "13")


def test_an_unknown_path_is_told_what_there_is(start: Start) -> None:
    assert ask(start(), "/") == (404, "not found; there is /broken /hello /large\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "hello"])
def test_only_reading_is_possible(start: Start, method: str) -> None:
    assert ask(start(), "/hello", method) == (405, "read-only: GET or HEAD\n")


def test_a_bug_in_a_route_is_logged_and_told_without_details(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start()
    assert ask(server, "/broken") == (500, "internal error; see the agent's log\n")
    assert "ZeroDivisionError" in caplog.text
    assert ask(server, "/hello")[0] == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9557", "LOCALHOST:1", "[::1]:9557", "127.8.8.8"])
def test_who_means_this_machine_is_answered(start: Start, host: str) -> None:
    assert ask(start(), "/hello", Host=host)[0] == 200


@pytest.mark.parametrize(
    "host", ["attacker.example", "attacker.example:9557", "localhost.attacker.example", "10.0.0.1", ""]
)
def test_a_web_page_that_renames_this_machine_is_refused(start: Start, host: str) -> None:
    assert ask(start(), "/hello", Host=host)[0] == 421


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /hello HTTP/2.0\r\n\r\n", b"400"),
        (b"GET http://localhost/hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET  /hello HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nbad header: x\r\nno colon\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nHost : localhost\r\n\r\n", b"400"),
        (b"GET /hello?" + b"a&" * 100 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 0\r\n\r\n", b"413"),
        (b"GET /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"413"),
        (b"GET /hello HTTP/1.1\r\nX: " + b"x" * 10000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"x" * 100000, b"431"),
    ],
)  # fmt: skip
def test_a_malformed_request_is_refused_and_its_connection_closed(start: Start, data: bytes, status: bytes) -> None:
    server = start()
    assert raw(server, data).startswith(b"HTTP/1.1 " + status)
    assert ask(server, "/hello")[0] == 200


def test_a_request_that_trickles_in_is_not_waited_for(start: Start) -> None:
    server = start(request_seconds=0.2)
    with socket.create_connection((server.address, server.port), timeout=20) as slow:
        slow.sendall(b"GET /hello HTTP/1.1\r\n")
        received, answered = b"", threading.Event()

        def trickle() -> None:
            while not answered.wait(0.02):
                try:
                    slow.sendall(b"X: y\r\n")
                except OSError:
                    return

        writer = threading.Thread(target=trickle)
        writer.start()
        received = slow.recv(65536)
        answered.set()
        writer.join()
    assert received.startswith(b"HTTP/1.1 408")


def test_an_idle_connection_is_closed(start: Start) -> None:
    server = start(idle_seconds=0.1)
    assert raw(server, b"") == b""


def test_a_client_that_does_not_take_its_answer_loses_it(start: Start, loop: ServingLoop) -> None:
    server = start(answer_seconds=0.2)
    with socket.create_connection((server.address, server.port), timeout=20) as deaf:
        deaf.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert established(server) == 1
        while established(server):
            time.sleep(0.01)
    assert ask(server, "/hello")[0] == 200


def test_a_connection_too_many_ends_the_oldest(start: Start) -> None:
    server = start(connections=4)
    idle = [socket.create_connection((server.address, server.port), timeout=20) for _ in range(4)]
    assert ask(server, "/hello")[0] == 200
    assert idle[0].recv(1) == b""
    for one in idle:
        one.close()


def test_a_large_answer_arrives_whole(start: Start) -> None:
    connection = connect(start())
    connection.request("GET", "/large")
    assert len(connection.getresponse().read()) == 32 << 20


@pytest.mark.parametrize("address", ["0.0.0.0", "192.0.2.1", "::", "localhost", "example.com"])
def test_only_loopback_is_listened_on(start: Start, address: str) -> None:
    with pytest.raises(HTTPAddressError, match="not a loopback address") as refusal:
        start(address)
    assert "127.0.0.1" in refusal.value.hint


def test_a_port_in_use_is_named(start: Start) -> None:
    server = start()
    with pytest.raises(HTTPAddressError, match=f"127.0.0.1 port {server.port}: ") as refusal:
        start(port=server.port)
    assert str(refusal.value).endswith(f" port {server.port}: Address already in use")
    assert "another port" in refusal.value.hint


def test_stop_closes_connections_and_the_port_can_be_used_again(start: Start) -> None:
    server = start()
    connection = connect(server)
    connection.request("GET", "/hello")
    connection.getresponse().read()
    server.stop()
    assert ask(start(port=server.port), "/hello")[0] == 200


def test_a_client_that_is_still_sending_what_is_refused_reads_why(start: Start) -> None:
    """Closed at once, the connection would be reset, and the refusal lost with it."""
    server = start()
    with socket.create_connection((server.address, server.port), timeout=20) as client:
        client.sendall(b"GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n")
        client.sendall(bytes(8_000_000))
        assert client.recv(100).startswith(b"HTTP/1.1 413 ")
