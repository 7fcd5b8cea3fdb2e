"""A small HTTP server: GET and HEAD of a fixed set of paths, POST of a few; beyond loopback only with TLS.

The number of connections is bounded here; what each of them may take, in `agent.serve.http_connection`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection, Mapping

from agent.errors import AgentError
from agent.serve.http_connection import Connection, Limits, LoopPosting, Posting, Route, Site
from agent.serve.http_messages import is_loopback
from agent.serve.loop import ServingLoop
from agent.serve.sockets import SocketAccess, SocketFile
from agent.serve.tls import ServerTLS


class HTTPAddressError(AgentError):
    """The address cannot be listened on."""


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
    hint = "stop what listens there, or configure another port"
    # asyncio puts its own words, with the address once more, in place of the system's
    why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
    return HTTPAddressError(f"{address} port {port}: {why}", hint=hint)


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
        self._site = Site(routes, posts or {}, limits or Limits(), tls, frozenset(open_paths))
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
            await Connection(reader, writer, self._site).serve()
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client is gone or too slow, or gives way to another: nobody is there to be told
        finally:
            self._connections.pop(task, None)
            writer.transport.abort()  # whoever took his answer has it all by now: see set_write_buffer_limits
