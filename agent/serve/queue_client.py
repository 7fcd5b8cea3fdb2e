"""A client of the accountant's API, for the command line: over http, https or a unix socket."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from agent.errors import AgentError

_TIMEOUT_SECONDS = 30.0
_MAX_BYTES = 256 * 1024 * 1024


class QueueServerError(AgentError):
    """The accountant cannot be asked, or does not answer as it should."""

    hint = "is `pinfold queues serve` running there? look at its log and at queues.api or queues.socket"


class QueueQuestionError(AgentError):
    """The accountant answers that the question is wrong."""

    exit_status = 2


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """target: an http(s) URL, or the path of a unix socket. ca, certificate, key: PEM files for https."""

    target: str
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class QueueClient:
    """Asks one server; every question is a connection of its own."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    def get(self, path: str, **query: str) -> str:
        """The answer's text. Raises QueueServerError, QueueQuestionError."""
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, document: object, **query: str) -> str:
        """As `get`, with a JSON body."""
        return self._ask("POST", f"{path}?{urlencode(query)}" if query else path, json.dumps(document).encode())

    def _ask(self, method: str, target: str, body: bytes | None) -> str:
        try:
            connection = self._connect()
            try:
                connection.request(method, target, body, {"Content-Type": "application/json"} if body else {})
                answer = connection.getresponse()
                text = answer.read(_MAX_BYTES).decode("utf-8", errors="replace")
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise QueueServerError(f"{self._address.target}: {error}") from error
        if answer.status == 200:
            return text
        told = _told(text)
        if 400 <= answer.status < 500:
            raise QueueQuestionError(f"{self._address.target}: {told['error']}", hint=str(told.get("hint", "")))
        raise QueueServerError(f"{self._address.target}: {answer.status} {told['error']}")

    def _connect(self) -> http.client.HTTPConnection:
        address = self._address
        url = urlsplit(address.target)
        if url.scheme == "http" and url.hostname:
            return http.client.HTTPConnection(url.hostname, url.port or 80, timeout=_TIMEOUT_SECONDS)
        if url.scheme == "https" and url.hostname:
            context = ssl.create_default_context(cafile=address.ca)
            if address.certificate is not None:
                context.load_cert_chain(address.certificate, address.key)
            return http.client.HTTPSConnection(url.hostname, url.port or 443, timeout=_TIMEOUT_SECONDS, context=context)
        if url.scheme:
            raise ValueError("give http://HOST:PORT, https://HOST:PORT or the path of a socket")
        return _UnixConnection(address.target)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_SECONDS)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_TIMEOUT_SECONDS)
        self.sock.connect(self._path)


def _told(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError:
        document = None
    return document if isinstance(document, dict) and "error" in document else {"error": text.strip()[:500]}
