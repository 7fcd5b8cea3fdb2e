"""One client of an HTTP server: its requests one after another, within the limits that everybody has.

Everything that a stranger sends is bounded: size and time of a request, time to read an answer. An answer is one write,
and TCP_NODELAY is on (asyncio's default): two packets would wait for each other (Nagle, delayed acknowledgement).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from email.utils import formatdate
from http import HTTPStatus

from agent.serve.http_messages import Head, MalformedRequestError, Request, Response, parse_request
from agent.serve.tls import ServerTLS, peer_name

log = logging.getLogger(__name__)

_LARGE_BODY = 64 * 1024  # bytes; of larger ones few are read at one time, which bounds the memory of all together
_LINGER_SECONDS = 1.0
_LINGER_BYTES = 16 * 1024 * 1024

Route = Callable[[Request], Response]
LoopRoute = Callable[[Request], Awaitable[Response]]


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
class Posting:
    """What answers POST of a path, in a worker thread."""

    route: Route
    max_bytes: int


@dataclass(frozen=True, slots=True)
class LoopPosting:
    """What answers POST of a path on the event loop itself: between two awaits about a millisecond at most."""

    route: LoopRoute
    max_bytes: int


class Site:
    """What one server has to offer, and to whom. routes, posts: path -> what answers it. open_paths: for everybody."""

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


class Connection:
    """One client: its requests one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: Site) -> None:
        self._reader = reader
        self._writer = writer
        self._site = site
        self._limits = site.limits
        self._peer = peer_name(writer.get_extra_info("peercert"))
        writer.transport.set_write_buffer_limits(high=0)  # so that drain waits until the client has taken everything

    async def serve(self) -> None:
        """Answer until either side has had enough. Raises TimeoutError, ConnectionError, asyncio.IncompleteReadError."""
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
