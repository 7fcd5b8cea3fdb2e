"""The examples are what they say: configurations load, manifests parse, permissions are those that the sources use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import load
from agent.kube import apiserver_source
from agent.serve.loop import ServingLoop
from agent.source_config import sources

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.skipif(
    not (ROOT / "examples").is_dir(), reason="the examples are in the checkout, not in the wheel"
)
KUBERNETES = ROOT / "examples" / "kubernetes"


def documents(name: str) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((KUBERNETES / name).read_text())}


def test_the_daemonsets_configuration_loads_and_finds_the_cluster_it_runs_in(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(documents("daemonset.yaml")["ConfigMap"]["data"]["config.yaml"])
    config = load(path).config
    with ServingLoop() as loop:
        (source,) = sources(config, loop, {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "NODE_NAME": "n1"})
    assert source.name == apiserver_source.NAME


def test_the_daemonset_mounts_what_its_configuration_names() -> None:
    pod = documents("daemonset.yaml")["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert set(mounts) == {each["name"] for each in pod["volumes"]}
    config = yaml.safe_load(documents("daemonset.yaml")["ConfigMap"]["data"]["config.yaml"])
    assert config["enforcement"]["runtimeEndpoint"].rpartition("/")[0] in mounts.values()
    assert pod["serviceAccountName"] == documents("rbac.yaml")["ServiceAccount"]["metadata"]["name"]


def test_permissions_are_the_least() -> None:
    rules = documents("rbac.yaml")["ClusterRole"]["rules"]
    allowed = {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}
    assert allowed == {("pods", "list"), ("pods", "watch"), ("nodes/proxy", "get"), ("events", "create")}
