"""Many gRPC clients in one thread, by hand: cheap enough that the time measured is the server's (RFC 9113).

A client of gRPC's Python library costs more than the server does, and 64 of them in one process measure each other.
"""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from pathlib import Path

from tests.serve.raw_http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    PREFACE,
    SETTINGS,
    call_headers,
    frame,
)

RST_STREAM, PING, GOAWAY, WINDOW_UPDATE = 3, 6, 7, 8
ACK = 1
MAX_FRAME_SIZE = 5
LARGEST_WINDOW = 2**31 - 1
LARGEST_FRAME = 2**24 - 1
EMPTY_MESSAGE = bytes(5)
HEAD = 9  # bytes before the payload of a frame


class ServerBrokeOffError(Exception):
    """The server ended a call or the connection."""


class LoadClient:
    """One connection that makes one call after another."""

    def __init__(self, path: Path, method: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(os.fspath(path))
        self.started = 0.0
        self._headers = call_headers(method)
        self._stream = -1
        self._received = bytearray()
        self._unacknowledged = 0
        settings = struct.pack(">HIHI", INITIAL_WINDOW_SIZE, LARGEST_WINDOW, MAX_FRAME_SIZE, LARGEST_FRAME)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, settings))
        self._open_window(LARGEST_WINDOW - 65535)

    def start(self) -> None:
        """Send the next call."""
        self._stream += 2
        call = frame(HEADERS, END_HEADERS, self._stream, self._headers)
        self.started = time.perf_counter()
        self.socket.sendall(call + frame(DATA, END_STREAM, self._stream, EMPTY_MESSAGE))

    def receive(self) -> bool:
        """Take what has come; whether the call has ended."""
        data = self._received
        data += self.socket.recv(1 << 20)
        ended, place = False, 0
        while len(data) - place >= HEAD:
            size = int.from_bytes(data[place : place + 3], "big")
            if len(data) - place < HEAD + size:
                break
            payload = place + HEAD
            self._take(data[place + 3], data[place + 4], size, bytes(data[payload : payload + 8]))
            ended |= data[place + 3] in (DATA, HEADERS) and bool(data[place + 4] & END_STREAM)
            place = payload + size
        del data[:place]
        return ended

    def _take(self, kind: int, flags: int, size: int, payload: bytes) -> None:
        if kind in (RST_STREAM, GOAWAY):
            raise ServerBrokeOffError(f"frame {kind}: {payload!r}")
        if kind == SETTINGS and not flags & ACK:
            self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
        if kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        if kind == DATA:
            self._unacknowledged += size
            if self._unacknowledged > LARGEST_WINDOW // 4:
                self._open_window(self._unacknowledged)
                self._unacknowledged = 0

    def _open_window(self, size: int) -> None:
        self.socket.sendall(frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", size)))


def measure(path: Path, method: str, clients: int, calls: int, warm_up: int = 10) -> list[float]:
    """Milliseconds of `calls` calls in all, after `warm_up` for each of the clients, each of which always has one under way."""
    selector = selectors.DefaultSelector()
    for _ in range(clients):
        client = LoadClient(path, method)
        selector.register(client.socket, selectors.EVENT_READ, client)
        client.start()
    millis: list[float] = []
    remaining, running = calls + warm_up * clients, clients
    while running:
        for key, _ in selector.select():
            if not key.data.receive():
                continue
            millis.append(1000 * (time.perf_counter() - key.data.started))
            remaining -= 1
            if remaining >= running:
                key.data.start()
            else:
                running -= 1
                selector.unregister(key.data.socket)
                key.data.socket.close()
    return millis[warm_up * clients :]
