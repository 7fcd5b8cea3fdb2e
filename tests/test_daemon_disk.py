"""The agent when its disk is full or read-only: what is not durable is not acknowledged, and it heals by itself (BL-07)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import Agent, pod_text, running

pytestmark = pytest.mark.real


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB at `tmp_path/disk`."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "pinfold-test", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"\0" * 4096)
    return ballast


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


def pods(agent: Agent) -> list[str]:
    return [pod["name"] for pod in agent.status()["pods"]]


def test_a_full_disk_refuses_the_decision_and_heals_when_there_is_room(tmp_path: Path, small_disk: Path) -> None:
    with running(tmp_path / "agent", state={"directory": str(small_disk / "state")}) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        ballast = fill(small_disk)
        agent.manifest("b", pod_text("b", "2"))
        agent.remove("a")
        status = agent.until(lambda status: not status["ready"])
        assert [pod["name"] for pod in status["pods"]] == ["a"], "neither the grant nor the release happened"
        (problem,) = status["problems"]
        assert str(small_disk / "state") in problem
        assert "No space left" in problem
        ballast.unlink()
        agent.until(lambda status: status["ready"] and [pod["name"] for pod in status["pods"]] == ["b"])
        agent.kill()
        agent.start()
        assert pods(agent) == ["b"]


def test_a_read_only_disk_is_the_same(tmp_path: Path, small_disk: Path) -> None:
    with running(tmp_path / "agent", state={"directory": str(small_disk / "state")}) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        remount(small_disk, "ro")
        agent.manifest("b", pod_text("b", "2"))
        status = agent.until(lambda status: not status["ready"])
        assert [pod["name"] for pod in status["pods"]] == ["a"]
        remount(small_disk, "rw")
        agent.until(lambda status: status["ready"] and len(status["pods"]) == 2)


def test_a_lasting_fault_is_logged_once(tmp_path: Path, small_disk: Path) -> None:
    with running(tmp_path / "agent", state={"directory": str(small_disk / "state")}) as agent:
        agent.manifest("a", pod_text("a", "2"))
        agent.until_pod("a")
        fill(small_disk)
        agent.manifest("b", pod_text("b", "2"))
        agent.until(lambda status: not status["ready"])
        for _ in range(20):
            agent.control.call("look", {})
        assert agent.log().count("state failed") == 1
