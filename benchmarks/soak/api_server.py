"""An API server on loopback with the pods of one node: lists, watches, Events and patches, at one address over its restarts."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_KEPT_EVENTS = 500  # a watch that begins before them is answered 410, as etcd does after a compaction
_BOOKMARK_SECONDS = 60.0


class Pods:
    """The pods, and what happened to them; lives through the server's restarts. Called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._version = 1
        self._pods: dict[str, Mapping[str, Any]] = {}
        self._events: deque[tuple[int, bytes]] = deque(maxlen=_KEPT_EVENTS)

    def put(self, pod: Mapping[str, Any]) -> None:
        """A pod is here, or has changed; `pod` gets its resourceVersion."""
        with self._lock:
            uid = pod["metadata"]["uid"]
            self._tell("MODIFIED" if uid in self._pods else "ADDED", pod)
            self._pods[uid] = pod

    def remove(self, uid: str) -> None:
        with self._lock:
            self._tell("DELETED", self._pods.pop(uid))

    def _tell(self, kind: str, pod: Mapping[str, Any]) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        self._events.append((self._version, json.dumps({"type": kind, "object": pod}).encode() + b"\n"))
        self._lock.notify_all()

    def listed(self) -> bytes:
        with self._lock:
            metadata = {"resourceVersion": str(self._version)}
            return json.dumps({"kind": "PodList", "metadata": metadata, "items": list(self._pods.values())}).encode()

    def after(self, version: int, seconds: float) -> tuple[int, bytes] | None:
        """What happened after this version, waiting for it; None where that is not known any more."""
        with self._lock:
            self._lock.wait_for(lambda: self._version > version, seconds)
            if self._events and version + 1 < self._events[0][0] and version < self._version:
                return None
            found = [data for number, data in self._events if number > version]
            return self._version, b"".join(found)

    def bookmark(self) -> bytes:
        with self._lock:
            obj = {"kind": "Pod", "metadata": {"resourceVersion": str(self._version)}}
        return json.dumps({"type": "BOOKMARK", "object": obj}).encode() + b"\n"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self.open: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # a client that is killed, or the end of the server


@contextmanager
def api_server(pods: Pods, port: int) -> Iterator[None]:
    """The server until the end of the block, which cuts its connections as a kill does."""
    stopping = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query))
            if parts.path != "/api/v1/pods":
                self._answer(404, b"{}")
            elif query.get("watch") == "1":
                self._watch(int(query["resourceVersion"]), float(query.get("timeoutSeconds", "300")))
            else:
                self._answer(200, pods.listed())

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._answer(201, b"{}")

        do_PATCH = do_POST  # noqa: N815 - the names that http.server looks for

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _watch(self, version: int, seconds: float) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            quiet = 0.0
            while not stopping.is_set() and seconds > 0:
                found = pods.after(version, 0.25)
                if found is None:
                    status = {"code": 410, "message": "too old resource version"}
                    self._chunk(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                    break
                version, data = found
                seconds, quiet = seconds - 0.25, 0.0 if data else quiet + 0.25
                if quiet >= _BOOKMARK_SECONDS:
                    data, quiet = pods.bookmark(), 0.0
                if data:
                    self._chunk(data)
            self.wfile.write(b"0\r\n\r\n")

        def _chunk(self, data: bytes) -> None:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()

        def log_message(self, format: str, *args: object) -> None:
            return

    server = _Server(port, Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        server.shutdown()
        server.server_close()
        for each in list(server.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        thread.join()
