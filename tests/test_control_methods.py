"""What the control socket takes and refuses, asked of a running agent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.formats.documents import MAX_BYTES
from agent.serve.control_client import RemoteError
from agent.serve.exec_grant import ExecFinished, ExecGrantError
from tests.agents import TWO_SOCKETS, Agent, pod_text, running


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("agent"), node={"root": str(TWO_SOCKETS)}) as found:
        yield found


@pytest.mark.parametrize(
    ("method", "params", "said"),
    [
        ("pause", {"on": "x"}, "pause wants on as true or false, not 'x'"),
        ("pause", {"on": 1}, "pause wants on as true or false, not 1"),
        ("pause", {}, "pause wants on as true or false, not nothing"),
        ("release", {"apply": "true"}, "release wants apply as true or false, not 'true'"),
        ("repair", {"directory": "/", "apply": None}, "repair wants apply as true or false, not None"),
    ],
)
def test_a_switch_is_true_or_false_and_nothing_happens_for_anything_else(
    agent: Agent, method: str, params: dict[str, object], said: str
) -> None:
    before = agent.status()
    with pytest.raises(RemoteError, match=said) as refused:
        agent.control.call(method, params)
    assert refused.value.exit_status == 2
    assert agent.status() == before


@pytest.mark.parametrize(
    "ended",
    [
        {"exit_code": True, "signal": None},
        {"exit_code": None, "signal": False},
        {"exit_code": 0, "signal": 9},
        {"exit_code": None, "signal": None},
        {"exit_code": 1.0, "signal": None},
        {"exit_code": "0", "signal": None},
    ],
)
def test_how_a_command_ended_is_one_number(ended: dict[str, object]) -> None:
    with pytest.raises(ExecGrantError, match="exactly one of exit_code and signal"):
        ExecFinished.decode({"uid": "u", "container": "c", **ended})


def test_the_largest_manifest_can_be_explained_whatever_it_is_made_of(agent: Agent, tmp_path: Path) -> None:
    text = pod_text("web", "2")
    rest = MAX_BYTES - len(text) - len("# \n")
    path = tmp_path / "web.yaml"
    path.write_text(text + "# " + "\u00e9" * (rest // 2) + "\n")  # each an escape of six bytes in JSON
    socket = str(agent.directory / "control.sock")
    command = [sys.executable, "-m", "agent", "explain", "--socket", socket, "-o", "json", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["admitted"] is True


def test_a_manifest_beyond_that_is_refused_by_its_size(agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "web.yaml"
    path.write_text(pod_text("web", "2") + "# " + "\u00e9" * MAX_BYTES + "\n")
    command = [sys.executable, "-m", "agent", "explain", "--socket", str(agent.directory / "control.sock"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert f"{MAX_BYTES}" in done.stderr


def test_a_reader_that_goes_away_ends_a_command_as_it_ends_others_without_a_word(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "agent", "topology", "-o", "json", "--sysroot", str(TWO_SOCKETS)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (141, b"")


@pytest.mark.parametrize("option", ["--plan", "--apply"])
def test_a_repair_where_there_is_no_state_says_so_and_makes_nothing(tmp_path: Path, option: str) -> None:
    directory = tmp_path / "none"
    sets = (f"state.directory={directory}", f"node.root={TWO_SOCKETS}", f"control.socket={tmp_path}/no.sock")
    command = [sys.executable, "-m", "agent", "checkpoint", "repair", option]
    command += [word for each in sets for word in ("--set", each)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert f"{directory}: no state to repair" in done.stderr
    assert "the agent begins one at its first start" in done.stderr
    assert not directory.exists()
