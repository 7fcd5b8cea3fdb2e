"""HTTP servers on loopback that answer as a test tells them, well or badly, and remember what was asked."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PATIENCE_SECONDS = 20.0


@dataclass(frozen=True)
class Asked:
    """One request: path, query, bearer token, method, body."""

    path: str
    query: Mapping[str, str]
    token: str
    method: str = "GET"
    body: Any = None

    @property
    def watch(self) -> bool:
        return self.query.get("watch") == "1"


class Answer:
    """What a handler can do: answer whole, or open a stream and send it in pieces. Its connection is closed at the end."""

    def __init__(self, handler: BaseHTTPRequestHandler) -> None:
        self._handler = handler

    def json(self, value: object, status: int = 200, **headers: str) -> None:
        self.raw(json.dumps(value).encode(), status, **headers)

    def raw(self, body: bytes, status: int = 200, **headers: str) -> None:
        self._handler.send_response(status)
        self._handler.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self._handler.send_header(name.replace("_", "-"), value)
        self._handler.end_headers()
        self._handler.wfile.write(body)

    def open(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Transfer-Encoding", "chunked")
        self._handler.end_headers()

    def send(self, *events: object) -> None:
        for event in events:
            self.send_raw(json.dumps(event).encode() + b"\n")

    def send_raw(self, data: bytes) -> None:
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self._handler.wfile.flush()

    def end(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")


@dataclass
class HTTPPart:
    """A running server. asked: every request so far."""

    url: str
    asked: list[Asked] = field(default_factory=list)

    def until(self, done: Callable[[], bool]) -> None:
        wait_until(done, lambda: f"asked: {self.asked[-5:]}")


def wait_until(done: Callable[[], bool], shown: Callable[[], object] = lambda: "") -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not done():
        assert time.monotonic() < end, shown()
        time.sleep(0.005)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # a client that went away is what many of these tests are about


@contextmanager
def served(answer: Callable[[Asked, Answer], None], tls: tuple[Path, Path] | None = None) -> Iterator[HTTPPart]:
    """A server on loopback. tls: its certificate and key."""
    part = HTTPPart("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            sent = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            body = json.loads(sent) if sent else None
            asked = Asked(parts.path, dict(parse_qsl(parts.query)), token, self.command, body)
            part.asked.append(asked)
            self.close_connection = True
            answer(asked, Answer(self))

        do_POST = do_PUT = do_GET  # noqa: N815 - the names that http.server looks for

        def log_message(self, format: str, *args: object) -> None:
            return

    server = _Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    part.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield part
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def certificate(directory: Path, *, address: str = "127.0.0.1") -> tuple[Path, Path]:
    """A self-signed certificate for an address, and its key."""
    made, key = directory / f"{address}.crt", directory / f"{address}.key"
    subject = ["-subj", "/CN=test", "-addext", f"subjectAltName=IP:{address}"]
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key)]
    subprocess.run(
        ["openssl", "req", "-x509", *new_key, "-out", str(made), "-days", "2", *subject],
        check=True,
        capture_output=True,
    )
    return made, key


def pod(name: str, version: int = 1, cpu: str = "", *, uid: str = "", **parts: Any) -> dict[str, Any]:
    """A pod as an API server sends it. parts: `metadata` and `status` members beside the usual ones."""
    resources = {"requests": {"cpu": cpu, "memory": "64Mi"}, "limits": {"cpu": cpu, "memory": "64Mi"}} if cpu else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": f"2026-01-01T00:00:{version % 60:02}Z",
            **parts.get("metadata", {}),
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "example", "resources": resources}]},
        "status": {"phase": "Running", **parts.get("status", {})},
    }


def pod_list(*pods: object, version: int = 1, more: str = "") -> dict[str, Any]:
    metadata = {"resourceVersion": str(version), **({"continue": more} if more else {})}
    return {"apiVersion": "v1", "kind": "PodList", "metadata": metadata, "items": list(pods)}


def event(kind: str, obj: object) -> dict[str, Any]:
    return {"type": kind, "object": obj}


def bookmark(version: int) -> dict[str, Any]:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})
