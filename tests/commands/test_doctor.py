"""`pinfold doctor` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from agent.commands.doctor import command
from tests.agents import TWO_SOCKETS
from tests.kube.pods_service import Kubelet, serving
from tests.kube.servers import pod_list, served


def config(directory: Path, **values: object) -> list[str]:
    path = directory / "config.yaml"
    paths = {
        "node": {"root": str(TWO_SOCKETS)},
        "state": {"directory": str(directory)},
        "podResources": {"socket": str(directory / "kubelet.sock")},
        "control": {"socket": str(directory / "control.sock")},
        "enforcement": {"backend": "none"},
    }
    path.write_text(yaml.safe_dump({**paths, **values}))
    return ["--config", str(path)]


def test_a_node_that_is_fit(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        command, config(tmp_path, cpuManagerPolicy="static", reservedSystemCPUs="0,16"), standalone_mode=False
    )
    assert "this node is fit" in result.output
    assert result.return_value == 0


def test_what_is_wrong_is_said_with_what_to_do_and_by_the_exit_status(tmp_path: Path) -> None:
    with served(lambda asked, to: to.json({"message": "no"}, 403)) as server:
        sources = {"kubelet": {"url": server.url}}
        flags = config(tmp_path, sources=sources, cpuManagerPolicy="static", reservedSystemCPUs="99")
        result = CliRunner().invoke(command, flags, standalone_mode=False)
    assert result.return_value == 1
    assert "unknown CPU ID: 99" in result.output
    assert "HTTP 403: no" in result.output
    assert "-> the account may not do that" in result.output
    assert "2 failures" in result.output


def test_json(tmp_path: Path) -> None:
    with served(lambda asked, to: to.json(pod_list())) as server:
        sources = {"kubelet": {"url": server.url}, "apiserver": {"url": server.url}}
        result = CliRunner().invoke(command, [*config(tmp_path, sources=sources), "-o", "json"], standalone_mode=False)
    answer = json.loads(result.output)
    assert answer["ok"] is True
    assert {"check": "source", "level": "ok", "text": "apiserver answers", "hint": ""} in answer["findings"]


def test_the_pods_socket_is_asked(tmp_path: Path) -> None:
    path = tmp_path / "pods.sock"
    flags = config(tmp_path, sources={"pods": {"socket": str(path)}})
    result = CliRunner().invoke(command, flags, standalone_mode=False)
    assert f"pods: {path}: no such socket" in result.output
    assert "featureGates: {PodsAPI: true}" in result.output
    assert result.return_value == 1
    with serving(path, Kubelet()):
        result = CliRunner().invoke(command, flags, standalone_mode=False)
    assert "pods answers" in result.output
    assert result.return_value == 0
