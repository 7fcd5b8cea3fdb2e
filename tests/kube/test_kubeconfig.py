"""A kubeconfig as kubeadm writes one for the kubelet, and the kinds that cannot be used."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.kube.http_access import Access, AccessConfigError, AccessError, Server
from agent.kube.kubeconfig import read_kubeconfig
from tests.kube.servers import certificate, served


def written(directory: Path, cluster: dict[str, Any], user: dict[str, Any], **parts: Any) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "other", "context": {}}, {"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        **parts,
    }
    path = directory / "kubelet.conf"
    path.write_text(yaml.safe_dump(config))
    return path


def test_a_server_is_reached_with_the_authority_and_the_token_in_the_file(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    authority = base64.b64encode(tls[0].read_bytes()).decode()
    with served(lambda asked, to: to.json({}), tls) as part:
        path = written(tmp_path, {"server": part.url, "certificate-authority-data": authority}, {"token": "secret"})
        access = read_kubeconfig(path)
        assert Server(access).get("/api", limit=100) == b"{}"
        assert part.asked[0].token == "secret"
        assert "secret" not in repr(access)


def test_files_are_relative_to_it(tmp_path: Path) -> None:
    user = {"client-certificate": "pki/client.pem", "client-key": "/abs/key.pem"}
    path = written(tmp_path, {"server": "https://10.0.0.1:6443", "certificate-authority": "ca.crt"}, user)
    assert read_kubeconfig(path) == Access(
        "https://10.0.0.1:6443",
        ca_file=tmp_path / "ca.crt",
        client_certificate=tmp_path / "pki/client.pem",
        client_key=Path("/abs/key.pem"),
    )


@pytest.mark.parametrize(
    ("cluster", "user", "parts", "expected"),
    [
        ({"server": "https://x"}, {"exec": {"command": "aws"}}, {}, "credentials from a program"),
        ({"server": "https://x"}, {"client-key-data": "AA=="}, {}, "a client key inside the file"),
        ({"server": "https://x", "tls-server-name": "y"}, {}, {}, "tls-server-name"),
        ({"server": "https://x", "certificate-authority-data": "?"}, {}, {}, "not base64"),
        ({"server": "http://10.0.0.1"}, {}, {}, "clear text"),
        ({"server": "https://10.0.0.1", "insecure-skip-tls-verify": True}, {}, {}, "unchecked certificate"),
        ({}, {}, {}, "not an address"),
        ({}, {}, {"current-context": "nowhere"}, "no context named 'nowhere'"),
        ({}, {}, {"clusters": 5}, "no cluster named 'k'"),
    ],
)
def test_what_cannot_be_used_is_refused(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], parts: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AccessConfigError, match=expected):
        read_kubeconfig(written(tmp_path, cluster, user, **parts))


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: [", b"- 1", b""])
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "config").write_bytes(content)
    with pytest.raises(AccessConfigError):
        read_kubeconfig(tmp_path / "config")
    with pytest.raises(AccessConfigError, match="No such file"):
        read_kubeconfig(tmp_path / "absent")


def test_an_authority_that_is_no_certificate_is_told_when_it_is_used() -> None:
    with pytest.raises(AccessError, match="certificate authority"):
        Server(Access("https://127.0.0.1:1", ca_data="not a certificate")).get("/", limit=1)
