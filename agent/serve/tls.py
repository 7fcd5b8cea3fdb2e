"""TLS for servers: certificates that are read again when their files change, and who a client says it is.

A renewed certificate is used from the next connection on, without a timer: files are looked at when somebody connects. Files that
cannot be used (half of a pair is renewed, say) leave the former certificate in force, and `problem` says so.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import AgentError

log = logging.getLogger(__name__)

_Signature = tuple[tuple[int, int, int], ...]


class CertificateError(AgentError):
    """A certificate, key or CA file cannot be used."""

    hint = "give PEM files: the certificate with its chain, the key that belongs to it, the clients' CA"


class ServerTLS:
    """certificate, key: PEM files. client_ca: PEM file; clients may then show a certificate, which must be of this CA."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._files = [certificate, key, *([client_ca] if client_ca is not None else [])]
        self._client_ca = client_ca
        self._lock = threading.Lock()
        self._problem = ""
        self._signature: _Signature = ()
        self._current: ssl.SSLContext | None = None
        self.reloads = 0

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients are asked for one."""
        return self._client_ca is not None

    @property
    def problem(self) -> str:
        """Why changed files are not in use; "" where all is well."""
        return self._problem

    def context(self) -> ssl.SSLContext:
        """The context to listen with. Raises CertificateError."""
        self._signature = self._sign()
        self._current = self._load()
        outer = self._load()
        outer.sni_callback = self._choose
        return outer

    def _choose(self, connection: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> None:
        """Called at every handshake, with or without a server name."""
        self.refresh()
        if self._current is not None:
            connection.context = self._current

    def refresh(self) -> None:
        """Read the files again if they are others now."""
        with self._lock:
            signature = self._sign()
            if signature == self._signature:
                return
            try:
                self._current = self._load()
            except CertificateError as error:
                self._tell(str(error))
                return
            self._signature = signature
            self.reloads += 1
            self._tell("")
            log.info("certificate reloaded from %s", self._files[0])

    def _tell(self, problem: str) -> None:
        if problem and problem != self._problem:
            log.error("certificate not reloaded, the former one stays: %s", problem)
        self._problem = problem

    def _sign(self) -> _Signature:
        """What tells a changed file: mounted secrets are links that are moved, so their targets are looked at."""
        found = []
        for path in self._files:
            try:
                facts = path.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
        return tuple(found)

    def _load(self) -> ssl.SSLContext:
        certificate, key = self._files[:2]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(certificate, key, password=_no_password)
            if self._client_ca is not None:
                context.load_verify_locations(self._client_ca)
                context.verify_mode = ssl.CERT_OPTIONAL
        except (OSError, ssl.SSLError, ValueError) as error:
            why = _why(error)
            raise CertificateError(f"{', '.join(map(str, self._files))}: {why}") from error
        return context


def _why(error: OSError | ValueError) -> str:
    """In words; OpenSSL has a library's name for some."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is not that of the certificate"
        return "not PEM, or of the wrong kind" if "PEM lib" in str(error) else str(error)
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _no_password() -> str:
    """Without it OpenSSL asks on the terminal for the password of an encrypted key, and waits."""
    return ""


def peer_name(certificate: Mapping[str, Any] | None) -> str:
    """The common name in a client's verified certificate; "" without one."""
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    return ""
