"""`pinfold explain` offline: would this pod fit on that machine, where, and if not why; and mistakes without any machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli import main
from agent.formats.documents import MAX_BYTES
from agent.formats.state import encode
from tests.node.sysfs_machines import FIXTURES
from tests.states import small_state

STATIC = (
    "--sysroot",
    str(FIXTURES / "two-socket-smt"),
    "--set",
    "cpuManagerPolicy=static",
    "--set",
    "reservedSystemCPUs=0,16",
    "--set",
    "topologyManagerPolicy=single-numa-node",
)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as exit_info:
        main(["explain", *args])
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code, capsys.readouterr().out


def manifest(path: Path, *cpus: str, budget: str = "") -> str:
    """A file with one Guaranteed pod per amount of CPUs; budget: the pod's own cpu."""
    documents = []
    for number, amount in enumerate(cpus):
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "image": "x", "resources": {"limits": {"cpu": amount, "memory": "1Gi"}}}]
        }
        if budget:
            spec["resources"] = {key: {"cpu": budget, "memory": "2Gi"} for key in ("requests", "limits")}
            spec["containers"].append({"name": "log", "image": "x"})
        metadata = {"name": f"pod-{number}"}
        documents.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def test_a_pod_that_fits_is_shown_with_its_cpus_and_the_rule(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, out = run(capsys, *STATIC, manifest(tmp_path / "web.yaml", "4"))
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "pod default/pod-0  Guaranteed, admitted"
    assert lines[1].startswith("  main  cpus ")
    assert "  rule: topologyManagerPolicy single-numa-node found a preferred place" in lines
    assert any(line.startswith("    NUMA 0: ") and " free of " in line for line in lines)


def test_pods_of_one_file_come_one_after_the_other(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out = run(capsys, *STATIC, "-o", "json", manifest(tmp_path / "web.yaml", "14", "16", "4"))
    first, second, third = json.loads(out)
    assert status == 1
    assert (first["admitted"], second["admitted"], third["admitted"]) == (True, True, False)
    assert third["podsInTheWay"] == ["default/pod-0", "default/pod-1"]
    held = {owner for resource in third["resources"] for node in resource["nodes"] for owner in node["held"]}
    assert held == {"default/pod-0", "default/pod-1"}
    assert third["rule"].startswith("topologyManagerPolicy single-numa-node wants every resource on one")


def test_node_fit_counts_the_pods_before_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out = run(capsys, *STATIC[:2], "-o", "json", manifest(tmp_path / "web.yaml", "20", "20"))
    assert status == 1
    assert [each["reason"] for each in json.loads(out)] == ["", "OutOfcpu"]
    assert json.loads(out)[1]["rule"].startswith("node fit, judged last")


def test_a_state_may_be_larger_than_a_pod_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Both were once read up to the bound of pod files."""
    state = tmp_path / "pinfold_state"
    state.write_bytes(encode(small_state(pods=1, note="x" * MAX_BYTES)))
    question = (*STATIC, "--state", str(tmp_path), manifest(tmp_path / "web.yaml", "4"))
    status, _ = run(capsys, *question)
    assert status == 0
    state.write_bytes(state.read_bytes()[:MAX_BYTES])
    with pytest.raises(SystemExit) as exit_info:
        main(["explain", *question])
    assert exit_info.value.code == 2
    assert f"error: {state}: " in capsys.readouterr().err


def test_lint_needs_no_machine_and_says_what_to_do(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out = run(capsys, "--lint", manifest(tmp_path / "web.yaml", "2", budget="2"))
    assert status == 1
    assert "[empty-shared-pool]" in out
    assert "error: spec.resources.requests[cpu]" in out
    assert "raise the pod's cpu in .spec.resources" in out


def test_lint_of_a_good_file_has_nothing_to_say(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, out = run(capsys, "--lint", manifest(tmp_path / "web.yaml", "2"))
    assert (status, out.strip().endswith("pod default/pod-0: nothing to say")) == (0, True)


def test_lint_goes_by_a_configuration_where_one_is_given(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = manifest(tmp_path / "web.yaml", "2", budget="2")
    gate = "featureGates={PodLevelResourceManagers: false}"
    status, out = run(capsys, "--lint", "-o", "json", "--set", gate, file)
    assert status == 0
    [pod] = json.loads(out)
    assert [finding["rule"] for finding in pod["findings"]] == ["managers-gate-off"]
    assert pod["place"].endswith("web.yaml:1")


def test_lint_names_a_file_that_cannot_be_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, "--lint", str(tmp_path / "absent.yaml"))[0] == 2


@pytest.mark.parametrize(
    ("name", "status"),
    [("absent.yaml", 2), ("absent.json", 2), ("./some/where", 2), ("team-a/web", 3), ("web", 3), ("web.v2", 3)],
)
def test_a_file_that_is_not_there_is_no_pods_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, status: int
) -> None:
    """2: no such file; 3: no agent to ask about a pod of this name."""
    assert run(capsys, "--socket", str(tmp_path / "nobody.sock"), name)[0] == status


@pytest.mark.parametrize("options", [STATIC, ("--lint",)], ids=["judged", "lint"])
@pytest.mark.parametrize("text", ["", "apiVersion: v1\nkind: List\nitems: []\n"], ids=["empty", "an empty list"])
def test_a_file_without_a_pod_is_no_pod_that_fits(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], text: str
) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(text)
    with pytest.raises(SystemExit) as exit_info:
        main(["explain", *options, str(path)])
    assert exit_info.value.code == 2
    assert f"{path}: no pod in it" in capsys.readouterr().err
