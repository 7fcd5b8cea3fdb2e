"""What HTTP requests and responses say, and how the head of a request is read (RFC 9112): no connection, no waiting."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qs

TEXT = "text/plain; charset=utf-8"


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
