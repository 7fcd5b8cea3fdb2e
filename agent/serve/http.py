"""A small HTTP server for reading: GET and HEAD of a fixed set of paths, on loopback only.

Everything that a stranger sends is bounded: size and time of a request, time to read an answer, number of connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import parse_qs

from agent.errors import AgentError
from agent.serve.loop import ServingLoop

log = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"


class HTTPAddressError(AgentError):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """head_bytes: request line and headers together. request_seconds: until they are all there. idle_seconds: between two
        requests of a connection. answer_seconds: until the client has taken the answer. connections: at one time; one more ends
    the oldest, so that idle ones lock nobody out.
    """

    head_bytes: int = 8192
    request_seconds: float = 5.0
    idle_seconds: float = 30.0
    answer_seconds: float = 10.0
    connections: int = 64


@dataclass(frozen=True, slots=True)
class Request:
    """path: decoded, without query. query: the last value of each name, "" where it has none. method: GET or HEAD."""

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; text is sent as UTF-8."""

    body: str | bytes
    content_type: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Request], Response]


class MalformedRequestError(Exception):
    """A request that gets an error for an answer and the end of its connection."""

    def __init__(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.response = Response(f"{text}\n", status=status, headers=headers or {})


class HTTPServer:
    """Serves `routes` (path -> what answers it, called in a worker thread) between `start` and `stop`.

    address: a loopback address. port: 0 takes a free one; `port` tells which.
    """

    def __init__(
        self, loop: ServingLoop, address: str, port: int, routes: Mapping[str, Route], limits: Limits | None = None
    ) -> None:
        self.address = address
        self.port = port
        self._loop = loop
        self._routes = routes
        self._limits = limits or Limits()
        self._connections: dict[asyncio.Task[None], None] = {}  # oldest first
        self._server: asyncio.Server | None = None

    def start(self) -> None:
        """Begin to answer. Raises HTTPAddressError."""
        if not _is_loopback(self.address):
            hint = "set http.address to 127.0.0.1 or ::1 and put a TLS proxy before it where others need it"
            raise HTTPAddressError(f"{self.address}: not a loopback address, and TLS is not configured", hint=hint)
        try:
            self._loop.run(self._listen())
        except OSError as error:
            hint = "stop what listens there, or set http.port to another one"
            why = error.strerror or str(error)
            raise HTTPAddressError(f"{self.address} port {self.port}: {why}", hint=hint) from error

    def stop(self) -> None:
        """Close the port and every connection."""
        self._loop.run(self._close())

    @property
    def open_connections(self) -> int:
        """How many clients are connected now."""
        return len(self._connections)

    async def _listen(self) -> None:
        limit = self._limits.head_bytes
        self._server = await asyncio.start_server(self._connected, self.address, self.port, limit=limit)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self._server = None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= self._limits.connections:
            next(iter(self._connections)).cancel()
        self._connections[task] = None
        try:
            await _Connection(reader, writer, self._routes, self._limits).serve()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone or too slow, or gives way to another: nobody is there to be told
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()  # whoever took his answer has it all by now: see set_write_buffer_limits


class _Connection:
    """One client: its requests one after another."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        routes: Mapping[str, Route],
        limits: Limits,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._routes = routes
        self._limits = limits
        writer.transport.set_write_buffer_limits(high=0)  # so that drain waits until the client has taken everything

    async def serve(self) -> None:
        keep = True
        while keep:
            async with asyncio.timeout(self._limits.idle_seconds):
                first = await self._reader.read(1)
            if not first:
                return
            try:
                request, keep = parse_request(await self._read_head(first))
            except MalformedRequestError as refusal:
                await self._send(refusal.response, keep=False)
                return
            await self._send(await self._answer(request), keep=keep, with_body=request.method != "HEAD")

    async def _read_head(self, first: bytes) -> bytes:
        try:
            async with asyncio.timeout(self._limits.request_seconds):
                return first + await self._reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise MalformedRequestError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request may have {self._limits.head_bytes} bytes"
            ) from error
        except TimeoutError as error:
            raise MalformedRequestError(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time") from error

    async def _answer(self, request: Request) -> Response:
        route = self._routes.get(request.path)
        if route is None:
            paths = " ".join(sorted(self._routes))
            return Response(f"not found; there is {paths}\n", status=HTTPStatus.NOT_FOUND)
        try:
            return await asyncio.to_thread(route, request)
        except Exception:
            log.exception("http path=%s failed", request.path)
            return Response("internal error; see the agent's log\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)

    async def _send(self, response: Response, *, keep: bool, with_body: bool = True) -> None:
        body = response.body.encode() if isinstance(response.body, str) else response.body
        headers = {
            "Date": formatdate(usegmt=True),
            "Content-Type": response.content_type,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Connection": "keep-alive" if keep else "close",
            **response.headers,
        }
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._writer.write(head + body if with_body else head)
        async with asyncio.timeout(self._limits.answer_seconds):
            await self._writer.drain()


def parse_request(head: bytes) -> tuple[Request, bool]:
    """A request line with headers (RFC 9112), and whether the connection may be used again. Raises MalformedRequestError."""
    line, *fields = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0") or not parts[1].startswith("/"):
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request for a path")
    method, target, version = parts
    pairs = [_field(each) for each in fields]
    headers = dict(pairs)
    if method not in ("GET", "HEAD"):
        allowed = {"Allow": "GET, HEAD"}
        raise MalformedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, "read-only: GET or HEAD", allowed)
    if any(name == "transfer-encoding" or (name == "content-length" and value != "0") for name, value in pairs):
        raise MalformedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request for reading has no body")
    if not _names_this_machine(headers.get("host", "localhost")):
        # A page in somebody's browser can make its own name mean 127.0.0.1 (DNS rebinding) and read what it likes.
        raise MalformedRequestError(HTTPStatus.MISDIRECTED_REQUEST, "only for clients that mean this machine")
    path, _, query = target.partition("?")
    try:
        values = parse_qs(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "too many query parameters") from error
    keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    return Request(path, {name: found[-1] for name, found in values.items()}, method), keep


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name.strip() != name:  # a space here has been used to smuggle requests past proxies
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "a header is not NAME: VALUE")
    return name.lower(), value.strip()


def _names_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name.lower() == "localhost" or _is_loopback(name.strip("[]"))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
