"""A whole agent beside a kubelet that it knows by its Pods socket alone: admission, resize, ends of pods, a kubelet that goes."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from tests.agents import Agent, running
from tests.kube.pods_service import Kubelet, serving
from tests.kube.servers import pod


def allocated(name: str, cpu: str, wanted: str = "", phase: str = "Running") -> dict[str, Any]:
    """A Guaranteed pod with what its kubelet has allocated; `wanted`: what its spec asks for by now."""
    found = pod(name, 1, wanted or cpu)
    limits = {"cpu": cpu, "memory": "64Mi"}
    status = {
        "name": "main",
        "state": {"running": {}} if phase == "Running" else {"terminated": {"exitCode": 0}},
        "allocatedResources": limits,
        "resources": {"requests": limits, "limits": limits},
    }
    found["status"] = {"phase": phase, "qosClass": "Guaranteed", "containerStatuses": [status]}
    return found


def until_cpus(agent: Agent, **wanted: int) -> dict[str, str]:
    """Which CPUs the pods hold, once they hold so many."""

    def held(status: Mapping[str, Any]) -> dict[str, int]:
        return {
            each["name"]: len(CPUSet.parse(each["containers"][0]["cpus"]))
            for each in status["pods"]
            if each["containers"][0]["isolation"] == "container"
        }

    agent.until(lambda status: held(status) == wanted)
    return agent.cpus()


@pytest.fixture
def agent_config(tmp_path: Path) -> dict[str, Any]:
    sources = {"manifests": None, "pods": {"socket": str(tmp_path / "pods.sock")}}
    return {"sources": sources, "resize": {"exclusive": True}}


def test_pods_are_admitted_resized_and_released_as_the_kubelet_tells(
    tmp_path: Path, agent_config: dict[str, Any]
) -> None:
    kubelet = Kubelet()
    kubelet.add(allocated("db", "2"), pod("web"))
    with serving(tmp_path / "pods.sock", kubelet), running(tmp_path, **agent_config) as agent:
        before = until_cpus(agent, db=2)
        assert {each["name"] for each in agent.until_pod("web")["pods"]} == {"db", "web"}
        kubelet.add(allocated("job", "4"))
        until_cpus(agent, db=2, job=4)
        kubelet.add(allocated("db", "2", wanted="4"))  # asked for, not yet accepted
        kubelet.add(allocated("last", "2"))
        until_cpus(agent, db=2, job=4, last=2)
        assert agent.cpus()["db"] == before["db"]
        kubelet.add(allocated("db", "4"))
        after = until_cpus(agent, db=4, job=4, last=2)
        assert CPUSet.parse(before["db"]) <= CPUSet.parse(after["db"])
        kubelet.add(allocated("job", "4", phase="Succeeded"))
        until_cpus(agent, db=4, last=2)
        kubelet.remove("uid-last")
        until_cpus(agent, db=4)
        assert (kubelet.watched, kubelet.asked) == (1, [])


def test_a_pod_that_does_not_fit_runs_unplaced_as_beside_any_kubelet(
    tmp_path: Path, agent_config: dict[str, Any]
) -> None:
    kubelet = Kubelet()
    kubelet.add(allocated("large", "24"))
    with serving(tmp_path / "pods.sock", kubelet), running(tmp_path, **agent_config) as agent:
        until_cpus(agent, large=24)
        kubelet.add(allocated("more", "20"))
        status = agent.until(lambda status: any(each["unplaced"] for each in status["pods"]))
        assert not status["refused"]
        kubelet.remove("uid-large")
        until_cpus(agent, more=20)


def test_losing_the_kubelet_is_shown_and_moves_nothing_over_a_restart_of_the_agent(
    tmp_path: Path, agent_config: dict[str, Any]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def readable() -> bool:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return 'pinfold_source_readable{source="pods"} 1' in answer.read().decode()

    kubelet = Kubelet()
    kubelet.add(allocated("db", "2"), allocated("job", "4"))
    with ExitStack() as server:
        server.enter_context(serving(tmp_path / "pods.sock", kubelet))
        with running(tmp_path, **agent_config, http={"port": port}) as agent:
            before = until_cpus(agent, db=2, job=4)
            agent.until(lambda status: bool(status["ready"]))
            assert readable()
            server.close()
            status = agent.until(lambda status: not status["ready"])
            assert "source-pods" in status["problems"][0]
            assert not readable()
            assert agent.cpus() == before
            agent.kill()
            agent.start()
            status = agent.until(lambda status: any("no such socket" in each for each in status["problems"]))
            assert agent.cpus() == before
            kubelet.pods.pop("uid-job")  # ended while nobody looked
            server.enter_context(serving(tmp_path / "pods.sock", kubelet))
            agent.until(lambda status: bool(status["ready"]))
            assert until_cpus(agent, db=2) == {"db": before["db"]}
