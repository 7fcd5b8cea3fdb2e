"""A kubeconfig file -> how to reach its API server: the current context with certificate files or a token.

What would run a program or needs a library of its own (exec, auth-provider) is refused with what to use instead.
Source: k8s.io/client-go/tools/clientcmd/api/v1/types.go.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path

import yaml

from agent.kube.http_access import Access, AccessConfigError

MAX_BYTES = 1 << 20
_REFUSED = {
    "exec": "credentials from a program",
    "auth-provider": "credentials from a provider",
    "client-certificate-data": "a client certificate inside the file",
    "client-key-data": "a client key inside the file",
    "username": "a password",
    "as": "impersonation",
}
_HINT = "use one with client-certificate and client-key files, tokenFile or token; the kubelet's own is one"


def read_kubeconfig(path: Path) -> Access:
    """The server and account of the current context. Raises AccessConfigError."""
    try:
        with path.open("rb") as stream:
            config = yaml.safe_load(stream.read(MAX_BYTES))
    except OSError as error:
        raise AccessConfigError(f"{path}: {error.strerror}", hint="see sources.apiserver.kubeconfig") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise AccessConfigError(f"{path}: not YAML") from error
    context = _named(path, config, "contexts", "context", _text(config, "current-context"))
    cluster = _named(path, config, "clusters", "cluster", _text(context, "cluster"))
    user = _named(path, config, "users", "user", _text(context, "user"))
    for key, what in _REFUSED.items():
        if user.get(key):
            raise AccessConfigError(f"{path}: {what} ({key}) cannot be used", hint=_HINT)
    if _text(cluster, "tls-server-name") or _text(cluster, "proxy-url"):
        raise AccessConfigError(f"{path}: tls-server-name and proxy-url cannot be used", hint="name the server itself")
    return Access(
        _text(cluster, "server"),
        ca_file=_file(path, cluster, "certificate-authority"),
        ca_data=_decoded(path, _text(cluster, "certificate-authority-data")),
        client_certificate=_file(path, user, "client-certificate"),
        client_key=_file(path, user, "client-key"),
        token_file=_file(path, user, "tokenFile"),
        token=_text(user, "token"),
        verify=cluster.get("insecure-skip-tls-verify") is not True,
    )


def _named(path: Path, config: object, listed: str, kind: str, name: str) -> Mapping[str, object]:
    """The entry of this name in one of the file's lists."""
    entries = config.get(listed) if isinstance(config, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name and isinstance(value := entry.get(kind), dict):
            return value
    raise AccessConfigError(f"{path}: no {kind} named {name[:80]!r}", hint="see: kubectl config view --minify")


def _text(holder: object, key: str) -> str:
    value = holder.get(key) if isinstance(holder, Mapping) else None
    return value if isinstance(value, str) else ""


def _file(path: Path, holder: Mapping[str, object], key: str) -> Path | None:
    """Relative paths are relative to the kubeconfig."""
    name = _text(holder, key)
    return path.parent / name if name else None


def _decoded(path: Path, data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise AccessConfigError(f"{path}: certificate-authority-data is not base64 of PEM") from error
