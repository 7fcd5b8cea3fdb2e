"""What the clients of one gRPC server may cost all together, however careless: connections, calls, bytes that wait to be read.

Measured: a call takes some 15 KiB from its first byte until its answer is read, a connection 17 KiB. docs/served.md has the sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import grpc.aio

_OPTIONS = (
    ("grpc.server_handshake_timeout_ms", 10_000),  # for those that say nothing; gRPC's default is two minutes
    # On, a call counts until its memory is free, so that clients which keep to the limit see calls refused in a burst.
    ("grpc.http.overload_protection", 0),
    # Clients that open connections and forget them; one that is still in use connects again without noticing.
    ("grpc.max_connection_idle_ms", 120_000),
    # A client that does not read is found by a ping while it has a call open; an idle connection is never pinged.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.bdp_probe", 0),  # requests are small; its pings after every one keep gRPC's threads awake
)

TOO_MANY_UNREAD = "too many answers wait to be read"  # with RESOURCE_EXHAUSTED, where `Unread.take` says no

Context: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Bounds:
    """connections: at a time, one more is closed at once. They cost file descriptors above all: an agent that has none
    left reads no manifests and writes no cgroups.

    streams: calls of one connection at a time; gRPC clients keep further ones back until one ends.

    request_bytes: of one message; of an unfinished one as much is kept.

    calls: of all connections at a time, until the answer is read; gRPC itself refuses further ones, with RESOURCE_EXHAUSTED and a
    text of its own.
    """

    connections: int
    streams: int
    request_bytes: int
    calls: int


def bounded_server(bounds: Bounds, options: Sequence[tuple[str, int]] = ()) -> grpc.aio.Server:
    """A server that has these bounds; further `options` are gRPC's channel arguments."""
    limits = (
        ("grpc.max_allowed_incoming_connections", bounds.connections),
        ("grpc.max_concurrent_streams", bounds.streams),
        ("grpc.max_receive_message_length", bounds.request_bytes),
    )
    return grpc.aio.server(options=(*_OPTIONS, *limits, *options), maximum_concurrent_rpcs=bounds.calls)


class Unread:
    """The answers of one server that wait for clients which do not read. Lives on the event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0

    def take(self, size: int, call: Context) -> bool:
        """Whether so many bytes more may wait, as the answer of `call`: until it is read or its client gone. One may always."""
        if self._bytes and self._bytes + size > self._most:
            return False
        self._bytes += size
        call.add_done_callback(lambda _: self._give_back(size))  # type: ignore[arg-type] # stubs name a class
        return True

    def _give_back(self, size: int) -> None:
        self._bytes -= size
