"""The agent on a machine whose hugepages somebody else has taken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.agents import running
from tests.node.sysfs_tree import regular, write_tree


def manifest(name: str) -> str:
    amounts = {"cpu": "1", "memory": "64Mi", "hugepages-2Mi": "64Mi"}
    container = {"name": "main", "image": "example", "resources": {"limits": amounts, "requests": amounts}}
    spec = {"containers": [container]}
    return str(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}))


def machine(directory: Path, free: int) -> str:
    """Two NUMA nodes with 64 pages of 2 MiB each; free: how many of them nobody uses."""
    return str(write_tree(directory, regular(2, 1, 2, 2, 2, hugepages={2048: (64, free)})))


def test_too_few_free_pages_are_warned_of_and_the_pod_is_admitted(tmp_path: Path) -> None:
    with running(tmp_path, node={"root": machine(tmp_path / "root", 4)}) as agent:
        agent.manifest("web", manifest("web"))
        agent.until(lambda status: len(status["pods"]) == 1)
        agent.until(lambda status: "HugepagesInUse" in agent.log())
        assert "hugepages-2Mi: requested=67108864, really free=16777216 on NUMA nodes 0, 1" in agent.log()


def test_by_option_the_pod_is_refused_and_admitted_once_they_are_free(tmp_path: Path) -> None:
    root = machine(tmp_path / "root", 4)
    with running(tmp_path, node={"root": root, "freeHugepages": "refuse"}) as agent:
        agent.manifest("web", manifest("web"))
        status = agent.until(lambda status: len(status["refused"]) == 1)
        assert status["refused"][0]["reason"] == "UnexpectedAdmissionError"
        assert "not enough free hugepages" in status["refused"][0]["message"]
        machine(tmp_path / "again", 64)
        for node in (0, 1):
            name = f"sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/free_hugepages"
            (Path(root) / name).write_text((tmp_path / "again" / name).read_text())
        agent.control.call("reload", {})
        agent.until(lambda status: len(status["pods"]) == 1)


@pytest.mark.parametrize(
    ("rule", "status", "said"),
    [
        ("refuse", 1, "not enough free hugepages, hugepages-2Mi: requested=67108864, really free=16777216"),
        ("warn", 0, "note: too few free hugepages, hugepages-2Mi: requested=67108864, really free=16777216"),
        ("ignore", 0, ""),
    ],
)
@pytest.mark.parametrize("online", [False, True])
def test_explain_looks_at_the_free_pages_as_an_admission_does(
    tmp_path: Path, rule: str, status: int, said: str, online: bool
) -> None:
    root = machine(tmp_path / "root", 4)
    path = tmp_path / "web.yaml"
    path.write_text(manifest("web"))
    with running(tmp_path, node={"root": root, "freeHugepages": rule}) as agent:
        where = ["--socket", str(agent.directory / "control.sock")]
        if not online:
            where = ["--config", str(agent.directory / "config.yaml")]
        command = [sys.executable, "-m", "agent", "explain", *where, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    assert said in done.stdout
    assert ("free hugepages" in done.stdout) == bool(said)
