"""TLS for gRPC servers, with files that are read again when they change; `agent.serve.tls` judges them."""

from __future__ import annotations

import threading
from pathlib import Path

import grpc

from agent.serve.tls import ServerTLS


class GRPCCertificates:
    """certificate, key: PEM files. client_ca: PEM file; clients must then show a certificate of this CA."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        self._files = certificate, key, client_ca
        self._tls = ServerTLS(certificate, key, client_ca)
        self._lock = threading.Lock()
        self._reloads = 0

    @property
    def asks_for_certificates(self) -> bool:
        """Whether clients without one are turned away."""
        return self._tls.asks_for_certificates

    @property
    def problem(self) -> str:
        """Why changed files are not in use; "" where all is well."""
        return self._tls.problem

    def credentials(self) -> grpc.ServerCredentials:
        """What to listen with. Raises CertificateError."""
        self._tls.context()
        return grpc.dynamic_ssl_server_credentials(
            self._read(),
            self._fetch,  # type: ignore[arg-type] # the stubs do not know that it may return None
            require_client_authentication=self.asks_for_certificates,
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Called at every handshake: the new files, None where the former ones stay in force."""
        with self._lock:
            self._tls.refresh()
            if self._tls.reloads == self._reloads:
                return None
            found = self._read()
            self._reloads = self._tls.reloads
            return found

    def _read(self) -> grpc.ServerCertificateConfiguration:
        certificate, key, client_ca = self._files
        roots = None if client_ca is None else client_ca.read_bytes()
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), certificate.read_bytes())], roots)
