"""The running agent on a failing disk: refused, rolled back, not ready with the reason, well again by itself; and killed at
every file operation of a decision (BL-07)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.formats.state import decode
from agent.model.state import State
from tests.agents import TWO_SOCKETS, Agent, launched, pod_text, running


@contextmanager
def faulty(directory: Path) -> Iterator[tuple[Agent, Path]]:
    """An agent with one pod, and the file that says how its disk fails."""
    faults = directory / "faults"
    launcher = ("-m", "tests.faulty_agent", str(faults))
    with launched(Agent(directory / "agent", {"node": {"root": str(TWO_SOCKETS)}}, launcher=launcher)) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        yield agent, faults


def tell(faults: Path, text: str) -> None:
    new = faults.with_suffix(".new")
    new.write_text(text)
    new.rename(faults)


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("write EIO", "cannot write the new state: Input/output error"),
        ("write-rest ENOSPC", "cannot write the new state: No space left on device"),
        ("fsync EIO", "cannot write the new state: Input/output error"),
        ("rename EIO", "cannot keep the previous state: Input/output error"),
        ("open EACCES", "cannot open the state directory: Permission denied"),
        ("link EACCES", "cannot keep the previous state: Permission denied"),
        ("open EROFS", "cannot open the state directory: Read-only file system"),
    ],
)
def test_a_decision_that_cannot_be_made_durable_did_not_happen(tmp_path: Path, fault: str, shown: str) -> None:
    with faulty(tmp_path) as (agent, faults):
        before = agent.status()
        stored = (agent.state / "pinfold_state").read_bytes()
        tell(faults, fault)
        agent.remove("a")
        agent.manifest("b", pod_text("b", "2"))
        status = agent.until(lambda status: not status["ready"])
        assert (status["pods"], status["generation"]) == (before["pods"], before["generation"])
        (problem,) = status["problems"]
        assert shown in problem
        assert str(agent.state) in problem
        assert (agent.state / "pinfold_state").read_bytes() == stored
        tell(faults, "")
        agent.until(lambda status: status["ready"] and [pod["name"] for pod in status["pods"]] == ["b"])
        assert agent.log().count('"state failed"') == 1


def test_a_deleted_directory_is_named_and_used_again_once_it_is_there(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("a", pod_text("a", "2"))
        before = agent.until_pod("a")
        shutil.rmtree(agent.state)
        agent.manifest("b", pod_text("b", "2"))
        status = agent.until(lambda status: not status["ready"])
        assert status["pods"] == before["pods"]
        assert str(agent.state) in status["problems"][0]
        assert "create the state directory again" in status["problems"][0]
        agent.state.mkdir(mode=0o700)
        agent.until(lambda status: status["ready"] and len(status["pods"]) == 2)
        agent.kill()
        agent.start()
        assert sorted(agent.cpus()) == ["a", "b"]


def test_a_disk_that_fails_from_the_start_does_not_keep_the_agent_from_starting(tmp_path: Path) -> None:
    with faulty(tmp_path) as (agent, faults):
        held = agent.cpus()
        agent.kill()
        agent.config["reservedSystemCPUs"] = "0-1"  # the state would have to be fitted to it
        tell(faults, "fsync EIO")
        agent.start()
        status = agent.until(lambda status: not status["ready"])
        assert "Input/output error" in status["problems"][0]
        assert agent.cpus() == held
        tell(faults, "")
        agent.until(lambda status: "repair" in "".join(status["problems"]))
        assert agent.cpus() == held


@pytest.mark.parametrize(
    "places", [pytest.param(range(0, 17, 4), id="some"), pytest.param(range(17), id="all", marks=pytest.mark.long)]
)
def test_killed_at_a_file_operation_of_a_decision_the_agent_goes_on_from_before_or_after(
    tmp_path: Path, places: range
) -> None:
    with faulty(tmp_path) as (agent, faults):
        names = {"a"}
        for place in places:
            before = stored(agent)
            tell(faults, f"kill {place}")
            agent.manifest(f"p{place}", pod_text(f"p{place}", "1"))
            assert agent.process is not None
            agent.process.wait(30)
            tell(faults, "")
            found = stored(agent)
            after = names | {f"p{place}"}
            assert found == before or {record.pod.name for record in found.pods.values()} == after
            agent.start()
            agent.until(lambda status: {pod["name"] for pod in status["pods"]} == after)  # noqa: B023 - waits here
            now = stored(agent)
            assert all(now.grants.cpu.entries[uid] == before.grants.cpu.entries[uid] for uid in before.pods)
            names = after


def stored(agent: Agent) -> State:
    return decode((agent.state / "pinfold_state").read_bytes())
