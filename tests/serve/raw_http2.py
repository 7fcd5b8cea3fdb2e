"""HTTP/2 by hand, for clients that do what no gRPC library lets them do (RFC 9113)."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


class RawClient:
    """One connection. window: how many bytes of each answer the server may send before it is told that they were read."""

    def __init__(self, path: Path, window: int = 65535) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(5)
        self.socket.connect(os.fspath(path))
        self._stream = 1
        self.send(PREFACE + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window)))

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def open_call(self, method: str) -> int:
        """Begin a call without a message yet; its stream."""
        stream, self._stream = self._stream, self._stream + 2
        self.send(frame(HEADERS, END_HEADERS, stream, call_headers(method)))
        return stream

    def call(self, method: str) -> None:
        """A whole call with an empty message."""
        self.send(frame(DATA, END_STREAM, self.open_call(method), bytes(5)))

    def close(self) -> None:
        self.socket.close()


def call_headers(method: str) -> bytes:
    """The header block of a gRPC call."""
    fields = {
        ":method": "POST",
        ":scheme": "http",
        ":path": method,
        ":authority": "localhost",
        "content-type": "application/grpc",
        "te": "trailers",
    }
    return b"".join(literal(*field) for field in fields.items())


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: str, value: str) -> bytes:
    """A header field that uses no table of HPACK."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
