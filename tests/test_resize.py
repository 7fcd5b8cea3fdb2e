"""Resize by editing a manifest, with the agent as a process on a captured machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.agents import Agent, pod_text, running

EXCLUSIVE: dict[str, Any] = {"resize": {"exclusive": True}}


def sized_text(name: str, requests: dict[str, str], limits: dict[str, str]) -> str:
    pod = yaml.safe_load(pod_text(name))
    pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": limits}
    return yaml.safe_dump(pod)


def resize_of(agent: Agent, name: str) -> tuple[str, str]:
    (pod,) = (pod for pod in agent.status()["pods"] if pod["name"] == name)
    return pod["resize"], pod["resizeMessage"]


def test_a_pinned_pod_keeps_its_size_unless_exclusive_resize_is_on(tmp_path: Path) -> None:
    with running(tmp_path) as agent:
        agent.manifest("db", pod_text("db", "2"))
        uid = agent.until_pod("db")["pods"][0]["uid"]
        agent.manifest("db", pod_text("db", "4"))
        agent.until(lambda status: status["pods"][0]["resize"] == "infeasible")
        assert agent.cpus() == {"db": "1,17"}
        agent.kill()
        agent.start()
        assert resize_of(agent, "db") == (
            "infeasible",
            'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"',
        )
        agent.config = {**agent.config, **EXCLUSIVE}
        agent.write_config()
        agent.hang_up()
        agent.until(lambda status: status["pods"][0]["resize"] == "none")
        assert agent.cpus() == {"db": "1-2,17-18"}
        assert agent.status()["pods"][0]["uid"] == uid


def test_first_admission_sets_survive_restarts(tmp_path: Path) -> None:
    with running(tmp_path, **EXCLUSIVE) as agent:
        agent.manifest("db", pod_text("db", "2"))
        agent.until_pod("db")
        for cpus, expected in (("6", "1-3,17-19"), ("4", "1-2,17-18"), ("2", "1,17")):
            agent.manifest("db", pod_text("db", cpus))
            agent.until(lambda status, expected=expected: agent.cpus() == {"db": expected})  # type: ignore[misc]
            agent.kill()
            agent.start()
            assert agent.cpus() == {"db": expected}
        agent.manifest("db", pod_text("db", "1"))
        agent.until(lambda status: status["pods"][0]["resize"] == "infeasible")
        assert agent.cpus() == {"db": "1,17"}
        assert "resize-completed" in agent.log()


def test_a_deferred_resize_survives_a_restart_and_is_taken_up_later(tmp_path: Path) -> None:
    with running(tmp_path, **EXCLUSIVE) as agent:
        agent.manifest("a", pod_text("a", "16"))
        agent.until_pod("a")
        agent.manifest("b", pod_text("b", "12"))
        agent.until_pod("b")
        agent.manifest("b", pod_text("b", "20"))
        agent.until(lambda status: any(pod["resize"] == "deferred" for pod in status["pods"]))
        agent.kill()
        agent.start()
        assert resize_of(agent, "b")[0] == "deferred"
        agent.remove("a")
        agent.until(lambda status: [pod["resize"] for pod in status["pods"]] == ["none"])
        assert agent.status()["pods"][0]["conditions"] == []
        assert "Pod resize OutOfcpu: {" in agent.log().replace("\\", "")
