"""HTTP/1.1 over TLS from one thread, as cheaply as Python can: bodies are made before, answers are not decoded.

A client with a thread for each connection waits for its own threads (they share one interpreter lock), and times of such a client
say more about it than about the server.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.problems import WrongResultError

_READ = 64 * 1024


class _Client:
    """One connection with at most one request under way."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=30)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self._answer = b""
        self._begin = 0.0

    def send(self, request: bytes) -> None:
        """Blocks until the kernel has it, which has room for a request."""
        self._answer, self._begin = b"", time.perf_counter()
        self.socket.sendall(request)

    def receive(self) -> float | None:
        """Milliseconds since the request where its answer is complete. Raises WrongResultError where it does not admit."""
        while True:
            try:
                received = self.socket.recv(_READ)
            except ssl.SSLWantReadError:
                return None
            if not received:
                raise WrongResultError("the server has closed the connection")
            self._answer += received
            head, found, body = self._answer.partition(b"\r\n\r\n")
            if found and len(body) >= _length(head):
                elapsed = (time.perf_counter() - self._begin) * 1000
                if b'"allowed":true' not in body:
                    raise WrongResultError(body.decode(errors="replace")[:500])
                return elapsed


def _length(head: bytes) -> int:
    """Content-Length. Raises WrongResultError for another answer than 200."""
    if not head.startswith(b"HTTP/1.1 200 "):
        raise WrongResultError(head.decode(errors="replace")[:500])
    return int(head.lower().partition(b"content-length:")[2].split(maxsplit=1)[0])


def posts(port: int, ca: Path, path: str, bodies: Sequence[bytes], connections: int, warm_up: int = 5) -> list[float]:
    """Milliseconds of every POST but the first `warm_up` of each connection. Each connection has one under way all the time."""
    context = ssl.create_default_context(cafile=str(ca))
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    requests = iter([f"{head}{len(body)}\r\n\r\n".encode() + body for body in bodies])
    times = list[float]()
    with selectors.DefaultSelector() as selector:
        for _ in range(connections):
            client = _Client(port, context)
            selector.register(client.socket, selectors.EVENT_READ, (client, list[float]()))
            client.send(next(requests))
            client.socket.setblocking(False)
        while selector.get_map():
            for key, _ in selector.select():
                client, own = key.data
                if (elapsed := client.receive()) is None:
                    continue
                own.append(elapsed)
                if (request := next(requests, None)) is not None:
                    client.send(request)
                else:
                    selector.unregister(client.socket)
                    client.socket.close()
                    times += own[warm_up:]
    return times
