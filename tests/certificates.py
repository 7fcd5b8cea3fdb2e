"""Certificates for tests, made by the openssl command: a CA, and pairs that it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True, slots=True)
class Pair:
    certificate: Path
    key: Path


def _openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


def _new_key(path: Path) -> None:
    _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def make_ca(directory: Path, name: str = "ca") -> Pair:
    """A CA of its own. Skips the test where there is no openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command")
    pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
    _new_key(pair.key)
    _openssl("req", "-x509", "-new", "-key", pair.key, "-subj", f"/CN={name}", "-days", "2", "-out", pair.certificate)
    return pair


def make_pair(ca: Pair, directory: Path, name: str, subject: str) -> Pair:
    """A pair for 127.0.0.1 and localhost, usable by servers and clients. subject: its common name."""
    pair = Pair(directory / f"{name}.crt", directory / f"{name}.key")
    request, extensions = directory / f"{name}.csr", directory / f"{name}.ext"
    extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\nextendedKeyUsage=serverAuth,clientAuth\n")
    _new_key(pair.key)
    _openssl("req", "-new", "-key", pair.key, "-subj", f"/CN={subject}", "-out", request)
    _openssl(
        "x509", "-req", "-in", request, "-CA", ca.certificate, "-CAkey", ca.key, "-CAcreateserial",
        "-days", "2", "-extfile", extensions, "-out", pair.certificate,
    )  # fmt: skip
    return pair
