"""One HTTP server that knows pods (a kubelet, an API server): requests with a bounded answer, and watches line by line.

Plain `http.client`: few kinds of requests are all that is needed, and the official client costs 86 MB of memory. The token is
read for every request, since files of service accounts are rotated; it is never logged, and never sent in clear text.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from agent import __version__
from agent.errors import AgentError, BadInputError

MAX_TOKEN = 64 * 1024
MAX_ERROR_TEXT = 16 * 1024  # of an answer that says no
# seconds, seconds, count: a dead peer is found in a minute
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_HINTS = {
    401: "the token was refused: see that tokenFile names a current one",
    403: "the account may not do that: see the permissions in examples/kubernetes/",
    404: "see that the address is that of the right server",
}


class AccessError(AgentError):
    """The server cannot be asked, or its answer cannot be used."""

    hint = "the pods known from there are kept; see that the server runs and can be reached"


class StatusError(AccessError):
    """The server answered with an error. status: of HTTP. retry_after: seconds it asks to wait, None where it does not say."""

    def __init__(self, where: str, status: int, text: str, retry_after: float | None = None) -> None:
        super().__init__(f"{where}: HTTP {status}: {text}", hint=_HINTS.get(status))
        self.status = status
        self.retry_after = retry_after


class AccessConfigError(BadInputError):
    """An address or file that cannot be used."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach a server.

    url: https, or http on loopback. ca_file: who signed its certificate, None = the system's. token_file: a bearer token.
    ca_data, token: the same as text, from a kubeconfig.
    verify: False takes any certificate, on loopback only (kubelets often sign their own). Raises AccessConfigError.
    """

    url: str
    ca_file: Path | None = None
    token_file: Path | None = None
    client_certificate: Path | None = None
    client_key: Path | None = None
    verify: bool = True
    timeout_seconds: float = 10.0
    ca_data: str = field(default="", repr=False)
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        local = is_loopback(parts.hostname or "")
        if parts.scheme not in ("http", "https") or not parts.hostname or not _has_port(self.url):
            raise AccessConfigError(f"{self.url!r} is not an address", hint="write https://HOST:PORT")
        if parts.scheme == "http" and not local:
            raise AccessConfigError(f"{self.url}: clear text beyond loopback", hint="use https")
        if parts.scheme == "http" and (self.token_file is not None or self.token):
            raise AccessConfigError(f"{self.url}: a token is not sent in clear text", hint="use https, or no tokenFile")
        if not self.verify and not local:
            raise AccessConfigError(f"{self.url}: an unchecked certificate beyond loopback", hint="give a caFile")


def _has_port(url: str) -> bool:
    """Whether the port is one, given or not."""
    try:
        return urlsplit(url).port != 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether a host name means this machine for certain."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class _Body:
    """What a request that writes sends."""

    method: str
    content: bytes
    content_type: str


class Server:
    """Requests to one server, one at a time from one thread; `abort` may be called from another."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._parts = urlsplit(access.url)
        self._open: http.client.HTTPConnection | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None, *, limit: int) -> bytes:
        """The body of an answer of at most `limit` bytes. Raises AccessError."""
        with self._answer(path, query or {}, self._access.timeout_seconds) as answer:
            body = answer.read(limit + 1)
        if len(body) > limit:
            raise AccessError(f"{self._where(path)}: more than {limit} bytes", hint="run fewer pods on this node")
        return body

    def send(
        self,
        method: str,
        path: str,
        body: bytes,
        content_type: str,
        query: Mapping[str, str] | None = None,
        *,
        limit: int,
    ) -> bytes:
        """Write something; the beginning of the answer, `limit` bytes. Raises AccessError, StatusError where it is refused."""
        sent = _Body(method, body, content_type)
        with self._answer(path, query or {}, self._access.timeout_seconds, sent) as answer:
            return answer.read(limit)

    def lines(
        self, path: str, query: Mapping[str, str], *, limit: int, quiet_seconds: float, agreed: Callable[[], None]
    ) -> Iterator[bytes]:
        """The lines of an answer as they come, each of at most `limit` bytes. agreed: called once the server has said 200.

        Ends where the server ends it. Raises AccessError: nothing came for `quiet_seconds`, the stream broke off inside a line.
        """
        with self._answer(path, query, quiet_seconds) as answer:
            agreed()
            while line := answer.readline(limit + 1):
                if len(line) > limit:
                    raise AccessError(f"{self._where(path)}: a line of more than {limit} bytes")
                if not line.endswith(b"\n"):
                    raise AccessError(f"{self._where(path)}: the stream broke off inside an event")
                if line.strip():
                    yield line

    def abort(self) -> None:
        """Wake a request that waits for the server; it raises AccessError."""
        connection = self._open
        if connection is not None and (sock := connection.sock) is not None:
            with contextlib.suppress(OSError):  # closed meanwhile: nothing waits any more
                sock.shutdown(socket.SHUT_RDWR)

    @contextlib.contextmanager
    def _answer(
        self, path: str, query: Mapping[str, str], timeout: float, sent: _Body | None = None
    ) -> Iterator[http.client.HTTPResponse]:
        where = self._where(path)
        target = quote(self._parts.path.rstrip("/") + path) + (f"?{urlencode(query)}" if query else "")
        try:
            connection = self._connect(timeout)
            self._open = connection
            try:
                if sent is None:
                    connection.request("GET", target, headers=self._headers())
                else:
                    headers = {**self._headers(), "Content-Type": sent.content_type}
                    connection.request(sent.method, target, sent.content, headers)
                answer = connection.getresponse()
                if answer.status not in (http.client.OK, http.client.CREATED):
                    raise _status_error(where, answer)
                yield answer
            finally:
                self._open = None
                connection.close()
        except ssl.SSLCertVerificationError as error:
            hint = "give the caFile that signed it, and the name that is in the certificate"
            raise AccessError(f"{where}: certificate: {error.verify_message}", hint=hint) from error
        except TimeoutError as error:
            raise AccessError(f"{where}: no answer within {timeout:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise AccessError(f"{where}: {reason[:200]}") from error

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        # A watch may be quiet for minutes, but a server that takes that long to connect to is not there.
        connecting = min(timeout, self._access.timeout_seconds)
        if self._parts.scheme == "http":
            connection = http.client.HTTPConnection(host, port, timeout=connecting)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=connecting, context=self._context())
        connection.connect()
        connection.sock.settimeout(timeout)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return connection

    def _context(self) -> ssl.SSLContext:
        """Made anew for every connection: certificate files are rotated too, and connections are rare."""
        access = self._access
        for path in (access.ca_file, access.client_certificate, access.client_key):
            if path is not None and not path.is_file():
                raise AccessError(f"{path}: no such file", hint="see the files named in the configuration's sources")
        try:
            context = ssl.create_default_context(cafile=access.ca_file, cadata=access.ca_data or None)
        except ssl.SSLError as error:
            raise AccessError(f"{self._where('')}: the certificate authority cannot be read: {error.reason}") from error
        if not access.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if access.client_certificate is not None:
            context.load_cert_chain(access.client_certificate, access.client_key)
        return context

    def _headers(self) -> Mapping[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"pinfold/{__version__}"}
        file, token = self._access.token_file, self._access.token
        if file is not None or token:
            headers["Authorization"] = f"Bearer {_read_token(file) if file is not None else token}"
        return headers

    def _where(self, path: str) -> str:
        return f"{self._parts.scheme}://{self._parts.netloc.rpartition('@')[2]}{path}"


def _read_token(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            token = stream.read(MAX_TOKEN).strip().decode("ascii")
    except OSError as error:
        raise AccessError(f"{path}: {error.strerror}", hint="see tokenFile in the configuration's sources") from error
    except UnicodeDecodeError as error:
        raise AccessError(f"{path}: not a token") from error
    if not token or not token.isprintable():
        raise AccessError(f"{path}: not a token", hint="the file must hold one line")
    return token


def _status_error(where: str, answer: http.client.HTTPResponse) -> StatusError:
    """The server's own words: the message of a Kubernetes Status, else the beginning of the text."""
    body = answer.read(MAX_ERROR_TEXT)
    text = body.decode("utf-8", "replace").strip()
    with contextlib.suppress(ValueError, RecursionError):  # a proxy's page: its status says enough
        status = json.loads(body)
        if isinstance(status, dict) and isinstance(status.get("message"), str):
            text = status["message"]
    wait = answer.headers.get("Retry-After", "")
    seconds = min(float(wait), 600.0) if wait.isascii() and wait.isdecimal() else None
    return StatusError(where, answer.status, (text or answer.reason)[:300], seconds)
