"""A small HTTP server: GET and HEAD of a fixed set of paths, POST of a few; beyond loopback only with TLS.

Everything that a stranger sends is bounded: size and time of a request, time to read an answer, number of connections. An answer
is one write, and TCP_NODELAY is on (asyncio's default): two packets would wait for each other (Nagle, delayed acknowledgement).
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs

from agent.errors import AgentError
from agent.serve.loop import ServingLoop
from agent.serve.sockets import SocketAccess, SocketFile
from agent.serve.tls import ServerTLS, peer_name

log = logging.getLogger(__name__)

TEXT = "text/plain; charset=utf-8"
_LARGE_BODY = 64 * 1024  # bytes; of larger ones few are read at one time, which bounds the memory of all together

_LINGER_SECONDS = 1.0
_LINGER_BYTES = 16 * 1024 * 1024


class HTTPAddressError(AgentError):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Limits:
    """head_bytes: request line and headers together. request_seconds: until they are all there. body_seconds: then the body.

    idle_seconds: between two requests of a connection. answer_seconds: until the client has taken the answer. connections: at
    one time; one more ends the oldest, so that idle ones lock nobody out. large_bodies: read at one time, above 64 KiB each.
    """

    head_bytes: int = 8192
    request_seconds: float = 5.0
    body_seconds: float = 10.0
    idle_seconds: float = 30.0
    answer_seconds: float = 10.0
    connections: int = 64
    large_bodies: int = 8


@dataclass(frozen=True, slots=True)
class Request:
    """path: decoded, without query. query: the last value of each name, "" where it has none. method: GET, HEAD or POST.

    peer: common name of the client's certificate, "" without one.
    """

    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "GET"
    body: bytes = b""
    peer: str = ""


@dataclass(frozen=True, slots=True)
class Response:
    """An answer; text is sent as UTF-8."""

    body: str | bytes
    content_type: str = TEXT
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


Route = Callable[[Request], Response]
LoopRoute = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Posting:
    """What answers POST of a path, in a worker thread."""

    route: Route
    max_bytes: int


@dataclass(frozen=True, slots=True)
class LoopPosting:
    """What answers POST of a path on the event loop itself: between two awaits about a millisecond at most."""

    route: LoopRoute
    max_bytes: int


class Head(NamedTuple):
    """A request line with its headers. keep: the connection may be used again. length: bytes of body that follow.

    continues: the client waits for a word before it sends them.
    """

    request: Request
    keep: bool
    length: int = 0
    continues: bool = False


class MalformedRequestError(Exception):
    """A request that gets an error for an answer and the end of its connection."""

    def __init__(self, status: HTTPStatus, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.response = Response(f"{text}\n", status=status, headers=headers or {})


def bound(address: str, port: int) -> socket.socket:
    """A socket that holds the address and does not listen yet. Raises HTTPAddressError where another has it, or there is none."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
        held = socket.socket(family, kind, protocol)
        try:
            # connections of an agent that has just ended do not count
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(place)
        except OSError:
            held.close()
            raise
    except OSError as error:
        raise _address_error(address, port, error) from error
    return held


def _address_error(address: str, port: int, error: OSError) -> HTTPAddressError:
    hint = "stop what listens there, or set http.port to another one"
    return HTTPAddressError(f"{address} port {port}: {error.strerror or error}", hint=hint)


class HTTPServer:
    """Serves `routes` (path -> what answers it, called in a worker thread) and `posts` between `start` and `stop`.

    address: of loopback, or any with `tls`. port: 0 takes a free one; `port` tells which. open_paths: served to clients without a
    certificate too, where `tls` asks for one. socket: a unix socket to listen on instead of address and port. held: what `bound`
    gave for the address.
    """

    def __init__(
        self,
        loop: ServingLoop,
        address: str,
        port: int,
        routes: Mapping[str, Route],
        limits: Limits | None = None,
        *,
        posts: Mapping[str, Posting | LoopPosting] | None = None,
        tls: ServerTLS | None = None,
        open_paths: Collection[str] = (),
        socket: SocketAccess | None = None,
        held: socket.socket | None = None,
    ) -> None:
        self.address = address
        self.port = port
        self._held = held
        self._loop = loop
        self._site = _Site(routes, posts or {}, limits or Limits(), tls, frozenset(open_paths))
        self._limits = self._site.limits
        self._tls = tls
        self._file = None if socket is None else SocketFile(socket)
        self._connections: dict[asyncio.Task[None], None] = {}  # oldest first
        self._server: asyncio.Server | None = None

    def start(self) -> None:
        """Begin to answer. Raises HTTPAddressError, SocketInUseError, SocketPathError."""
        if self._file is not None:
            path = self._file.claim()
            self._loop.run(self._listen_at(os.fspath(path)))
            self._file.expose()
            return
        if self._tls is None and not is_loopback(self.address):
            hint = "set http.address to 127.0.0.1 or ::1 and put a TLS proxy before it where others need it"
            raise HTTPAddressError(f"{self.address}: not a loopback address, and TLS is not configured", hint=hint)
        try:
            self._loop.run(self._listen())
        except OSError as error:
            raise _address_error(self.address, self.port, error) from error

    def stop(self) -> None:
        """Close the port and every connection."""
        if self._file is not None:
            self._file.release()
        self._loop.run(self._close())

    @property
    def open_connections(self) -> int:
        """How many clients are connected now."""
        return len(self._connections)

    async def _listen(self) -> None:
        limit = self._limits.head_bytes
        tls = None if self._tls is None else self._tls.context()
        handshake = None if tls is None else self._limits.request_seconds
        place = {"host": self.address, "port": self.port} if self._held is None else {"sock": self._held}
        self._server = await asyncio.start_server(
            self._connected,
            **place,
            limit=limit,
            backlog=self._limits.connections,
            ssl=tls,
            ssl_handshake_timeout=handshake,
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def _listen_at(self, path: str) -> None:
        limits = self._limits
        self._server = await asyncio.start_unix_server(
            self._connected, path, limit=limits.head_bytes, backlog=limits.connections
        )

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
            await _Connection(reader, writer, self._site).serve()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone or too slow, or gives way to another: nobody is there to be told
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()  # whoever took his answer has it all by now: see set_write_buffer_limits


class _Site:
    """What one server has to offer, and to whom."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        posts: Mapping[str, Posting | LoopPosting],
        limits: Limits,
        tls: ServerTLS | None,
        open_paths: frozenset[str],
    ) -> None:
        self.routes = routes
        self.posts = posts
        self.limits = limits
        self.max_bytes = {path: post.max_bytes for path, post in posts.items()}
        self.any_host = tls is not None  # no page in a browser can name a machine whose certificate it does not have
        self.large = asyncio.Semaphore(limits.large_bodies)
        self._closed = tls is not None and tls.asks_for_certificates
        self._open_paths = open_paths

    def admits(self, request: Request) -> bool:
        """Whether this client may have this path."""
        return not self._closed or bool(request.peer) or request.path in self._open_paths


class _Connection:
    """One client: its requests one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: _Site) -> None:
        self._reader = reader
        self._writer = writer
        self._site = site
        self._limits = site.limits
        self._peer = peer_name(writer.get_extra_info("peercert"))
        writer.transport.set_write_buffer_limits(high=0)  # so that drain waits until the client has taken everything

    async def serve(self) -> None:
        keep = True
        while keep:
            async with asyncio.timeout(self._limits.idle_seconds):
                first = await self._reader.read(1)
            if not first:
                return
            try:
                head = parse_request(await self._read_head(first), self._site.max_bytes, any_host=self._site.any_host)
                request, keep = replace(head.request, peer=self._peer), head.keep
                if not self._site.admits(request):
                    raise MalformedRequestError(HTTPStatus.FORBIDDEN, "a client certificate is needed for this path")
                if head.length > _LARGE_BODY:
                    async with self._site.large:
                        answer = await self._answer(await self._with_body(request, head))
                else:
                    answer = await self._answer(await self._with_body(request, head))
            except MalformedRequestError as refusal:
                await self._send(refusal.response, keep=False)
                await self._pass_over_rest()
                return
            await self._send(answer, keep=keep, with_body=request.method != "HEAD")

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

    async def _with_body(self, request: Request, head: Head) -> Request:
        if not head.length:
            return request
        if head.continues:
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                return replace(request, body=await self._reader.readexactly(head.length))
        except TimeoutError as error:
            raise MalformedRequestError(HTTPStatus.REQUEST_TIMEOUT, "the body did not arrive in time") from error

    async def _pass_over_rest(self) -> None:
        """A close with unread bytes is a reset, which takes the refusal from a client that is still sending (RFC 9112, 9.6)."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                left = _LINGER_BYTES
                while left > 0 and (passed := await self._reader.read(_LARGE_BODY)):
                    left -= len(passed)

    async def _answer(self, request: Request) -> Response:
        post = self._site.posts.get(request.path) if request.method == "POST" else None
        route = self._site.routes.get(request.path)
        try:
            match post:
                case LoopPosting():
                    return await post.route(request)
                case Posting():
                    return await asyncio.to_thread(post.route, request)
            if route is not None:
                return await asyncio.to_thread(route, request)
        except Exception:
            log.exception("http path=%s failed", request.path)
            return Response("internal error; see the agent's log\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        paths = " ".join(sorted(self._site.routes))
        return Response(f"not found; there is {paths}\n", status=HTTPStatus.NOT_FOUND)

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
        if response.status == HTTPStatus.NO_CONTENT:
            del headers["Content-Length"]  # RFC 9110, 8.6
        lines = [f"HTTP/1.1 {response.status} {HTTPStatus(response.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self._writer.write(head + body if with_body else head)
        async with asyncio.timeout(self._limits.answer_seconds):
            await self._writer.drain()


def parse_request(head: bytes, posts: Mapping[str, int] | None = None, *, any_host: bool = False) -> Head:
    """A request line with headers (RFC 9112). posts: path -> bytes that may be posted there. Raises MalformedRequestError."""
    line, *fields = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0") or not parts[1].startswith("/"):
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request for a path")
    method, target, version = parts
    pairs = [_field(each) for each in fields]
    headers = dict(pairs)
    path, _, query = target.partition("?")
    most = (posts or {}).get(path)
    if method not in ("GET", "HEAD") and not (method == "POST" and most is not None):
        allowed = {"Allow": "GET, HEAD" if most is None else "POST"}
        text = "read-only: GET or HEAD" if most is None else "POST only"
        raise MalformedRequestError(HTTPStatus.METHOD_NOT_ALLOWED, text, allowed)
    length = _body_length(pairs, most if method == "POST" else None)
    if not any_host and not _names_this_machine(headers.get("host", "localhost")):
        # A page in somebody's browser can make its own name mean 127.0.0.1 (DNS rebinding) and read what it likes.
        raise MalformedRequestError(HTTPStatus.MISDIRECTED_REQUEST, "only for clients that mean this machine")
    if method == "POST" and "origin" in headers:
        # The same page can post without reading the answer; programs send no Origin.
        raise MalformedRequestError(HTTPStatus.FORBIDDEN, "not for web pages")
    try:
        values = parse_qs(query, keep_blank_values=True, max_num_fields=16)
    except ValueError as error:
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "too many query parameters") from error
    keep = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    request = Request(path, {name: found[-1] for name, found in values.items()}, method)
    return Head(request, keep, length, headers.get("expect", "").lower() == "100-continue")


def _body_length(pairs: Sequence[tuple[str, str]], most: int | None) -> int:
    """Bytes of body. most: None where there must be none."""
    lengths = {value for name, value in pairs if name == "content-length"}
    chunked = any(name == "transfer-encoding" for name, _ in pairs)
    if most is None:
        if chunked or lengths - {"0"}:
            raise MalformedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "a request for reading has no body")
        return 0
    if chunked or len(lengths) != 1:
        raise MalformedRequestError(HTTPStatus.LENGTH_REQUIRED, "one Content-Length is needed")
    text = lengths.pop()
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "Content-Length is not a number")
    if int(text) > most:
        raise MalformedRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"at most {most} bytes are taken here")
    return int(text)


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or name.strip() != name:  # a space here has been used to smuggle requests past proxies
        raise MalformedRequestError(HTTPStatus.BAD_REQUEST, "a header is not NAME: VALUE")
    return name.lower(), value.strip()


def _names_this_machine(host: str) -> bool:
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    return name.lower() == "localhost" or is_loopback(name.strip("[]"))


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own; names are none."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
