from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.formats.state import decode
from agent.node.archive import open_sysroot
from agent.node.support_archive import SupportArchive
from agent.node.topology import read_topology
from tests.agents import TWO_SOCKETS, Agent, running

SECRETS = ("payroll", "treasury", "auditor", "hush", "swordfish", "vault-uid-7")


def secret_pod(name: str, cpu: int) -> str:
    size = {"limits": {"cpu": str(cpu), "memory": "1Gi"}}
    metadata = {
        "name": f"payroll-{name}",
        "namespace": "treasury",
        "uid": f"vault-uid-7-{name}",
        "labels": {"team": "hush"},
        "annotations": {"password": "swordfish"},
    }
    containers = [
        {"name": "auditor", "image": "registry.swordfish/x", "env": [{"name": "A", "value": "hush"}], "resources": size}
    ]
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers}})


def seen(count: int) -> Callable[[Mapping[str, Any]], bool]:
    return lambda status: len(status["pods"]) + len(status["refused"]) == count


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent that has admitted, refused and released, and was started again in between."""
    with running(tmp_path_factory.mktemp("agent")) as agent:
        for number, cpu in enumerate((4, 8, 40, 6)):
            agent.manifest(f"p{number}", secret_pod(str(number), cpu))
            agent.until(seen(number + 1))
        agent.remove("p1")
        agent.until(lambda status: len(status["pods"]) == 2)
        agent.stop()
        agent.start()
        agent.manifest("p4", secret_pod("4", 9))
        agent.until(lambda status: len(status["pods"]) == 3)
        yield agent


def pinfold(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def gathered(agent: Agent, path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    config, socket = agent.directory / "config.yaml", agent.directory / "control.sock"
    return pinfold("gather", "-o", path, "--config", config, "--socket", socket, *options)


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        files = {member.name.removeprefix("pinfold/"): tar.extractfile(member) for member in tar if member.isfile()}
        return {name: file.read() for name, file in files.items() if file is not None}


def contents(path: Path) -> Any:
    return json.loads(members(path)["contents.json"])


@pytest.fixture(scope="module")
def archive(agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "support.tar.gz"
    done = gathered(agent, path)
    assert done.returncode == 0, done.stderr
    return path


def test_the_archive_holds_everything_and_says_so(archive: Path) -> None:
    about = contents(archive)
    assert (about["layout"], about["redacted"], about["leftOut"]) == (1, True, {})
    wanted = {"versions.json", "config.json", "pinfold_state", "status.json", "topology.json", "decisions.jsonl"}
    assert wanted <= set(about["files"])
    assert archive.stat().st_mode & 0o077 == 0


def test_no_name_of_a_workload_leaves_the_house(archive: Path) -> None:
    for name, content in members(archive).items():
        for secret in SECRETS:
            assert secret.encode() not in content, f"{name} tells {secret}"


def test_decisions_replay_elsewhere_with_the_same_outcome(agent: Agent, archive: Path, tmp_path: Path) -> None:
    done = pinfold("replay", "--check", archive)
    assert done.returncode == 0, done.stdout
    records = [json.loads(line) for line in members(archive)["decisions.jsonl"].splitlines()]
    decided = [
        (op["op"], outcome.get("admitted")) for r in records if r["kind"] == "admission"
        for op, outcome in zip(r["input"]["ops"], r["want"]["ops"], strict=True)
    ]  # fmt: skip
    assert decided.count(("admit", True)) == 4
    assert ("admit", False) in decided
    assert decided.count(("remove", None)) == 1
    assert done.stdout.split()[1] == str(len(records))


def test_a_changed_outcome_is_found(archive: Path, tmp_path: Path) -> None:
    lines = members(archive)["decisions.jsonl"].decode().replace('"assigned_cpus":"1-2,17-18"', '"assigned_cpus":"1-4"')
    path = tmp_path / "changed.jsonl"
    path.write_text(lines)
    done = pinfold("replay", "--check", path)
    assert done.returncode == 1
    assert "1-2,17-18" in done.stdout


def test_the_state_stays_a_state_and_the_machine_a_machine(agent: Agent, archive: Path) -> None:
    state = decode(members(archive)["pinfold_state"])
    held = [str(sets) for entries in state.grants.cpu.entries.values() for sets in entries.values()]
    assert sorted(held) == sorted(agent.cpus().values())
    with open_sysroot(archive) as root:
        assert read_topology(root) == read_topology(TWO_SOCKETS)


def test_names_are_kept_on_request(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "open.tar.gz"
    gathered(agent, path, "--no-redact")
    assert b"payroll-0" in members(path)["status.json"]
    assert contents(path)["redacted"] is False
    assert pinfold("replay", "--check", path).returncode == 0


def test_two_archives_have_nothing_in_common_to_look_names_up_by(agent: Agent, archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tar.gz"
    gathered(agent, other)
    names = [{pod["name"] for pod in json.loads(members(path)["status.json"])["pods"]} for path in (archive, other)]
    assert not names[0] & names[1]


def test_the_size_is_bounded_and_what_is_missing_is_named(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "small.tar.gz"
    done = gathered(agent, path, "--max-bytes", "65536")
    assert done.returncode == 0
    assert sum(len(content) for name, content in members(path).items() if name != "contents.json") <= 65536
    for name in contents(path)["leftOut"]:
        assert f"left out {name}" in done.stdout


def test_without_an_agent_and_with_a_damaged_state_the_rest_is_gathered(tmp_path: Path) -> None:
    agent = Agent(tmp_path, {"node": {"root": str(TWO_SOCKETS)}})
    agent.write_config()
    agent.state.mkdir()
    (agent.state / "pinfold_state").write_bytes(b"damaged")
    path = tmp_path / "support.tar.gz"
    assert gathered(agent, path).returncode == 0
    left_out = contents(path)["leftOut"]
    assert {"pinfold_state", "status.json"} <= set(left_out)
    assert "topology.json" in contents(path)["files"]


def test_a_file_is_never_overwritten(agent: Agent, archive: Path) -> None:
    done = gathered(agent, archive)
    assert done.returncode == 2
    assert "exists already" in done.stderr


def test_an_archive_without_decisions_is_told(tmp_path: Path) -> None:
    archive = SupportArchive(1 << 20)
    archive.add("status.json", b"{}")
    archive.write(tmp_path / "support.tar.gz", {}, 0)
    done = pinfold("replay", tmp_path / "support.tar.gz")
    assert done.returncode == 2
    assert "holds no decisions" in done.stderr
