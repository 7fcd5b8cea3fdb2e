"""The agent as a process over state files of all kinds: older, newer, made for another policy, taken over from a kubelet."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent.formats.allocated_pods import read_allocated_pods
from agent.formats.checkpoint import Verdict
from agent.formats.cpu_checkpoint import CPUVersion, cpu_state, read_cpu_checkpoint, write_cpu_checkpoint
from agent.formats.kubelet_export import ALLOCATED_FILE, CPU_FILE, MEMORY_FILE
from agent.formats.memory_checkpoint import MemoryVersion, read_memory_checkpoint
from agent.formats.state import SCHEMA, decode
from agent.model.cpuset import CPUSet
from agent.model.state import CPUState
from agent.serve.control_client import RemoteError
from tests.agents import TWO_SOCKETS, Agent, pod_text, running
from tests.shared import SHARED

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"


def pinfold(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def cpus_by_uid(agent: Agent) -> dict[str, dict[str, str]]:
    entries = decode((agent.state / "pinfold_state").read_bytes()).grants.cpu.entries
    return {uid: {name: str(cpus) for name, cpus in sets.items()} for uid, sets in entries.items()}


# --- older and newer programs ---


@pytest.mark.parametrize("schema", range(1, SCHEMA + 1))
def test_a_state_of_every_schema_that_ever_was_is_gone_on_with(tmp_path: Path, schema: int) -> None:
    old = CHECKPOINTS / "pinfold_state" / str(schema) / "pinfold_state"
    before = decode(old.read_bytes())
    agent_directory = tmp_path / "agent"
    (agent_directory / "state").mkdir(parents=True)
    shutil.copy(old, agent_directory / "state")
    with running(agent_directory, sources={"manifests": None}) as agent:
        status = agent.status()
        assert {pod["uid"] for pod in status["pods"]} == set(before.pods)
        after = decode((agent.state / "pinfold_state").read_bytes())
        assert after.grants.cpu.entries == before.grants.cpu.entries
        assert (after.epoch, after.generation > before.generation) == (before.epoch, True)
        assert (agent.state / "pinfold_state.previous").read_bytes() == old.read_bytes()


def newer_copy(path: Path, *, understood: bool) -> bytes:
    """The file as a program of the next schema might have written it."""
    payload = json.loads(path.read_bytes().split(b"\n")[1])
    payload = {**payload, "schema": SCHEMA + 1, "moon": "full"} if understood else {"schema": SCHEMA + 1}
    text = json.dumps(payload).encode()
    digest = hashlib.sha256(text).hexdigest().encode()
    return b'{"schema":%d,"bytes":%d,"sha256":"%s"}\n%s\n' % (SCHEMA + 1, len(text), digest, text)


@pytest.mark.parametrize("understood", [True, False])
def test_over_a_newer_file_the_agent_observes_keeps_everything_and_says_how_to_go_on(
    tmp_path: Path, understood: bool
) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        held = agent.until_pod("a")["pods"]
        agent.kill()
        newer = newer_copy(agent.state / "pinfold_state", understood=understood)
        (agent.state / "pinfold_state").write_bytes(newer)
        previous = (agent.state / "pinfold_state.previous").read_bytes()
        agent.remove("a")
        agent.manifest("b", pod_text("b", "2"))
        agent.start()
        status = agent.until(lambda status: not status["ready"])
        assert status["pods"] == (held if understood else [])
        assert f"schema {SCHEMA + 1}" in status["problems"][0]
        assert "install the pinfold that wrote it" in status["problems"][0]
        for method, params in (
            ("exec-prepare", {"pod": "a", "container": "main"}),
            ("repair", {"directory": str(agent.state.resolve()), "apply": True}),
        ):
            with pytest.raises(RemoteError, match="schema"):
                agent.control.call(method, params)
        agent.control.call("look", {})
        agent.stop()
        assert (agent.state / "pinfold_state").read_bytes() == newer
        assert (agent.state / "pinfold_state.previous").read_bytes() == previous
        assert not list(agent.state.glob("*.damaged-*"))


# --- another configuration, and `repair` over the control socket ---


def test_a_policy_that_is_switched_off_and_on_under_running_pods_loses_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.manifest("b", pod_text("b", "3"))
        agent.until(lambda status: len(status["pods"]) == 2)
        before = cpus_by_uid(agent)
        agent.stop()
        agent.config["cpuManagerPolicy"] = "none"
        agent.start()
        status = agent.until(lambda status: not status["ready"])
        assert "default/a (1,17)" in status["problems"][0]
        assert "pinfold checkpoint repair --apply" in status["problems"][0]
        assert cpus_by_uid(agent) == before
        agent.stop()
        agent.config["cpuManagerPolicy"] = "static"
        agent.start()
        agent.until(lambda status: bool(status["ready"]))
        assert cpus_by_uid(agent) == before


def test_repair_asks_the_running_agent_and_has_it_made(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        agent.stop()
        agent.config["reservedSystemCPUs"] = "0-1"
        agent.start()
        agent.until(lambda status: not status["ready"])
        config = ("--config", agent.directory / "config.yaml")
        planned = pinfold("checkpoint", "repair", "--plan", *config)
        assert planned.returncode == 1
        assert "waits reserved-held: CPUs 1 of pod default/a are reserved now" in planned.stdout
        assert agent.cpus() == {"a": "1,17"}
        applied = pinfold("checkpoint", "repair", "--apply", "-o", "json", *config)
        assert applied.returncode == 0
        assert [step["rule"] for step in json.loads(applied.stdout)["steps"] if not step["safe"]] == ["reserved-held"]
        agent.until(lambda status: bool(status["ready"]))
        assert agent.cpus() == {"a": "16-17"}
        assert pinfold("checkpoint", "repair", *config).stdout == "nothing to repair\n"
        other = pinfold("checkpoint", "repair", *config, "--set", f"state.directory={tmp_path / 'nowhere'}")
        assert other.returncode == 2
        assert "nowhere" in other.stderr, "not the running agent's state: looked for in its file"


def test_a_plan_for_another_configuration_is_made_beside_the_running_agent_and_changes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        config = ("--config", agent.directory / "config.yaml")
        before = (agent.state / "pinfold_state").read_bytes()
        planned = pinfold("checkpoint", "repair", "--plan", *config, "--set", "reservedSystemCPUs=0-1")
        assert planned.returncode == 1, planned.stderr
        assert "waits reserved-held: CPUs 1 of pod default/a are reserved now" in planned.stdout
        applied = pinfold("checkpoint", "repair", "--apply", *config, "--set", "reservedSystemCPUs=0-1")
        assert applied.returncode == 2
        assert "pinfold config reload" in applied.stderr
        assert pinfold("checkpoint", "repair", *config).stdout == "nothing to repair\n"
        assert (agent.state / "pinfold_state").read_bytes() == before


def test_a_reload_that_reserves_what_a_pod_holds_takes_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        agent.config["reservedSystemCPUs"] = "0-1"
        agent.write_config()
        agent.hang_up()
        status = agent.until(lambda status: not status["ready"])
        assert "reserved-held" in status["problems"][0]
        assert agent.cpus() == {"a": "1,17"}
        assert "are reserved now" in status["pods"][0]["degraded"]
        agent.remove("a")
        agent.until(lambda status: status["ready"] and not status["pods"])


# --- the kubelet's files ---


def test_the_kubelets_files_are_kept_beside_the_state_and_never_read(tmp_path: Path) -> None:
    directory = tmp_path / "agent" / "state"
    with running(tmp_path / "agent", state={"directory": str(directory), "kubeletFiles": True}) as agent:
        for name in ("a", "b"):
            agent.manifest(name, pod_text(name, "2"))
            agent.until_pod(name)
            agent.control.call("look", {})
            assert same_as_state(agent)
        agent.remove("a")
        agent.until(lambda status: len(status["pods"]) == 1)
        assert same_as_state(agent)
        agent.kill()
        (directory / CPU_FILE).write_text("nonsense")
        agent.start()
        agent.control.call("look", {})
        assert same_as_state(agent)
        memory = read_memory_checkpoint((directory / MEMORY_FILE).read_bytes())
        allocated = read_allocated_pods((directory / ALLOCATED_FILE).read_bytes())
        assert (memory.verdict, memory.version) == (Verdict.VALID, MemoryVersion.V3)
        assert allocated.verdict is Verdict.VALID
        assert pinfold("checkpoint", "verify", directory).returncode == 0


def same_as_state(agent: Agent) -> bool:
    reading = read_cpu_checkpoint((agent.state / CPU_FILE).read_bytes())
    assert (reading.verdict, reading.version) == (Verdict.VALID, CPUVersion.V4)
    return cpu_state(reading) == decode((agent.state / "pinfold_state").read_bytes()).grants.cpu


def test_where_the_kubelets_files_cannot_be_written_nothing_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "agent" / "state"
    (directory / CPU_FILE).mkdir(parents=True)
    with running(tmp_path / "agent", state={"directory": str(directory), "kubeletFiles": True}) as agent:
        agent.manifest("a", pod_text("a", "2"))
        assert agent.until_pod("a")["ready"]
        assert "the kubelet's files are not up to date" in agent.log()


def kubelet_pod(uid: str, cpu: str) -> dict[str, Any]:
    """As GET /pods tells of a static pod on node n1."""
    amounts = {"cpu": cpu, "memory": "64Mi"}
    return {
        "metadata": {
            "name": f"{uid}-n1",
            "namespace": "default",
            "uid": uid,
            "annotations": {"kubernetes.io/config.source": "file"},
            "creationTimestamp": "2025-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "resources": {"limits": amounts, "requests": amounts}}],
        },
    }


@pytest.mark.parametrize("version", [CPUVersion.V2, CPUVersion.V3, CPUVersion.V4])
@pytest.mark.parametrize("last", ["0,3-15", "0,3-31"], ids=["file of a machine with 16 CPUs (BL-11)", "same machine"])
def test_a_node_is_taken_over_from_a_kubelet_runs_and_is_handed_back(
    tmp_path: Path, version: CPUVersion, last: str
) -> None:
    kubelet, back, directory = tmp_path / "kubelet", tmp_path / "back", tmp_path / "agent"
    for folder in (kubelet, back, directory):
        folder.mkdir()
    state = CPUState(CPUSet.parse(last), {"web": {"main": CPUSet.parse("1-2")}})
    (kubelet / CPU_FILE).write_bytes(write_cpu_checkpoint("static", state, version))
    (tmp_path / "pods.json").write_text(json.dumps({"items": [kubelet_pod("web", "2")]}))
    agent = Agent(directory, {"node": {"root": str(TWO_SOCKETS)}})
    config = agent.write_config()
    imported = pinfold("checkpoint", "import", kubelet, "--pods", tmp_path / "pods.json", "--config", config, "--apply")
    assert imported.returncode == 0, imported.stderr
    with running(directory) as agent:  # its manifest is not there yet: the pod would be ended, so it is put there first
        pass
    agent.manifest("web", pod_text("web", "2"))
    pinfold("checkpoint", "import", kubelet, "--pods", tmp_path / "pods.json", "--config", config, "--apply")
    with running(directory) as agent:
        agent.until_pod("web")
        assert cpus_by_uid(agent) == {"web": {"main": "1-2"}}, "not the 1,17 that a new pod would get"
        agent.manifest("new", pod_text("new", "2"))
        status = agent.until_pod("new")
        assert status["cpus"]["shared"] == "0,4-18,20-31"
        agent.stop()
    exported = pinfold("checkpoint", "export", "--kubelet-version", "1.37", "--state", agent.state, "--to", back)
    assert exported.returncode == 0, exported.stderr
    reading = read_cpu_checkpoint((back / CPU_FILE).read_bytes())
    assert reading.verdict is Verdict.VALID
    assert cpu_state(reading).entries["web"] == {"main": CPUSet.parse("1-2")}
    assert pinfold("checkpoint", "verify", back).returncode == 0


def test_an_import_without_pods_holds_everything_until_somebody_names_it(tmp_path: Path) -> None:
    kubelet, directory = tmp_path / "kubelet", tmp_path / "agent"
    kubelet.mkdir()
    directory.mkdir()
    state = CPUState(CPUSet.parse("0,3-31"), {"web": {"main": CPUSet.parse("1-2")}})
    (kubelet / CPU_FILE).write_bytes(write_cpu_checkpoint("static", state, CPUVersion.V4))
    config = Agent(directory, {"node": {"root": str(TWO_SOCKETS)}}).write_config()
    assert pinfold("checkpoint", "import", kubelet, "--config", config, "--apply").returncode == 0
    with running(directory) as agent:
        agent.manifest("new", pod_text("new", "2"))
        agent.until_pod("new")
        assert cpus_by_uid(agent)["web"] == {"main": "1-2"}
        agent.manifest("web", pod_text("web", "2", uid="web"))
        agent.until_pod("web")
        assert cpus_by_uid(agent)["web"] == {"main": "1-2"}
        assert agent.status()["ready"]


@pytest.mark.shared
def test_a_real_kubelets_files_are_taken_over_by_a_running_agent(tmp_path: Path) -> None:
    kubelet = SHARED / "samples" / "kubelet" / "vm-v2-2numa-smt"
    directory = tmp_path / "agent"
    directory.mkdir()
    config = Agent(directory, {"node": {"root": str(TWO_SOCKETS)}, "sources": {"manifests": None}}).write_config()
    pods = ("--pods", kubelet / "pods.json")
    pinfold("checkpoint", "import", kubelet, *pods, "--config", config, "--apply")
    before = cpu_state(read_cpu_checkpoint((kubelet / CPU_FILE).read_bytes())).entries
    with running(directory, sources={"manifests": None}) as agent:
        assert {pod["name"] for pod in agent.status()["pods"]} == {"gu-2cpu", "gu-two"}
        found = decode((agent.state / "pinfold_state").read_bytes()).grants.cpu.entries
        assert found == before
