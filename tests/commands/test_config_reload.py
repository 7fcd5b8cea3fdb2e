"""`pinfold config reload`, which is also what `systemctl reload` runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.agents import Agent, running


def reload(agent: Agent) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agent", "config", "reload", "--socket", str(agent.directory / "control.sock")]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, check=False)


def test_it_comes_back_when_the_new_configuration_is_in_force(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.config["topologyManagerPolicy"] = "restricted"
        agent.write_config()
        done = reload(agent)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert agent.status()["policy"]["topologyManagerPolicy"] == "restricted"


def test_it_fails_with_what_is_wrong_each_time_and_the_configuration_before_stays(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.config["reservedSystemCPUs"] = "77"
        agent.write_config()
        for _ in range(2):
            done = reload(agent)
            assert done.returncode == 2
            assert "unknown CPU ID: 77" in done.stderr
            assert "hint:" in done.stderr
        status = agent.status()
        assert status["cpus"]["reserved"] == "0"
        assert not status["ready"]


def test_without_an_agent_it_says_so(tmp_path: Path) -> None:
    done = reload(Agent(tmp_path))
    assert done.returncode == 3
    assert "no agent answers" in done.stderr
