"""The agent second beside a kubelet: its /pods from a server on loopback, its cgroups for real, the kernel's word for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.commands.release import render
from agent.model.pod import QOSClass
from agent.node.cgroup import Hierarchy
from agent.policy.cgroup_names import Driver, pod_cgroup, qos_cgroup
from tests.agents import PATIENCE_SECONDS, Agent, affinity, running
from tests.kube.servers import Answer, Asked, HTTPPart, pod, pod_list, served
from tests.node.cgroup_parent import join, need_cpus, real_parent
from tests.runtime_names import Runtime, container_leaf

pytestmark = pytest.mark.real


@dataclass
class FakeKubelet:
    """Lists pods and has their cgroups made, each container with one process."""

    hierarchy: Hierarchy
    root: str
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    broken: bool = False

    def answer(self, asked: Asked, to: Answer) -> None:
        if self.broken:
            to.raw(b"no", 500)
        else:
            to.json(pod_list(*self.pods.values()))

    def run(self, name: str, cpu: str = "") -> int:
        """A pod whose container runs: its process."""
        made = f"{len(self.pods):064x}"
        qos = QOSClass.GUARANTEED if cpu else QOSClass.BEST_EFFORT
        group = pod_cgroup(Driver.CGROUPFS, qos, f"uid-{name}", self.root)
        group = group / container_leaf(Driver.CGROUPFS, Runtime.CONTAINERD, made)
        self.hierarchy.create(group)
        process = self.processes[name] = subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL)
        join(self.hierarchy, group, process.pid)
        status = {"name": "main", "containerID": f"containerd://{made}", "state": {"running": {}}}
        self.pods[name] = pod(name, len(self.pods) + 1, cpu, status={"containerStatuses": [status]})
        return process.pid

    def stop(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()


@dataclass
class Beside:
    agent: Agent
    kubelet: FakeKubelet
    server: HTTPPart

    def until_affinity(self, pid: int, wanted: set[int]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while affinity(pid) != wanted:
            assert time.monotonic() < end, f"{affinity(pid)}, not {wanted}: {self.agent.status()}\n{self.agent.log()}"
            time.sleep(0.02)


@pytest.fixture
def beside(tmp_path: Path) -> Iterator[Beside]:
    with real_parent(frozenset({"cpuset", "cpu", "memory"})) as (hierarchy, parent):
        need_cpus(2, hierarchy)
        if len(os.sched_getaffinity(0)) < 2:
            pytest.skip("one CPU: nothing can be exclusive here")
        kubelet = FakeKubelet(hierarchy, f"/{parent}")
        for qos in (QOSClass.BURSTABLE, QOSClass.BEST_EFFORT):
            hierarchy.create(qos_cgroup(Driver.CGROUPFS, qos, f"/{parent}"))
        with served(kubelet.answer) as server:
            config: dict[str, Any] = {
                "node": {"root": "/", "kubeletRoot": str(tmp_path / "kubelet")},
                "sources": {"manifests": None, "kubelet": {"url": server.url, "periodSeconds": 0.5}},
                "enforcement": {
                    "backend": "cgroup",
                    "parent": f"{parent}/pinfold",
                    "kubeletCgroupRoot": f"/{parent}",
                    "periodSeconds": 0.2,
                },
            }
            try:
                with running(tmp_path, **config) as agent:
                    yield Beside(agent, kubelet, server)
            finally:
                for name in kubelet.processes:
                    kubelet.stop(name)


def test_a_kubelets_pods_are_pinned_and_what_starts_later_starts_outside(beside: Beside) -> None:
    shared = beside.kubelet.run("web")
    pinned = beside.kubelet.run("db", "1")
    beside.until_affinity(pinned, {1})
    beside.until_affinity(shared, {0})
    kubelet = beside.kubelet
    for qos in (QOSClass.BURSTABLE, QOSClass.BEST_EFFORT):
        group = qos_cgroup(Driver.CGROUPFS, qos, kubelet.root)
        assert str(kubelet.hierarchy.observe(group).effective) == "0"
    late = kubelet.run("late")  # not yet pinned by anybody: its cgroup was made inside a narrowed one
    assert affinity(late) == {0}


def test_a_pod_without_room_runs_unplaced_and_gets_its_cpu_when_it_frees(beside: Beside) -> None:
    first = beside.kubelet.run("a", "1")
    beside.until_affinity(first, {1})
    second = beside.kubelet.run("b", "1")
    status = beside.agent.until(lambda status: any(each["unplaced"] for each in status["pods"]))
    assert "not enough cpus available" in next(each["unplaced"] for each in status["pods"] if each["name"] == "b")
    assert not status["refused"]
    beside.until_affinity(second, {0})
    del beside.kubelet.pods["a"]  # gone from the listing, and still running: it keeps its CPU
    beside.agent.until(lambda status: any(each["phase"] == "terminating" for each in status["pods"]))
    assert affinity(first) == {1}
    beside.kubelet.stop("a")
    beside.until_affinity(second, {1})
    beside.agent.until(lambda status: not any(each["unplaced"] for each in status["pods"]))


def test_losing_the_kubelet_is_shown_and_moves_nothing_over_a_restart_of_the_agent(beside: Beside) -> None:
    pinned = beside.kubelet.run("db", "1")
    beside.until_affinity(pinned, {1})
    beside.kubelet.broken = True
    status = beside.agent.until(lambda status: not status["ready"])
    assert "source-kubelet" in status["problems"][0]
    assert "HTTP 500" in status["problems"][0]
    beside.agent.kill()
    beside.agent.start()
    status = beside.agent.until(lambda status: any("HTTP 500" in problem for problem in status["problems"]))
    assert beside.agent.cpus() == {"db": "1"}
    assert affinity(pinned) == {1}
    beside.kubelet.broken = False
    beside.agent.until(lambda status: bool(status["ready"]))
    assert beside.agent.cpus() == {"db": "1"}


def test_a_quota_that_the_kubelet_writes_back_is_undone(beside: Beside) -> None:
    pinned = beside.kubelet.run("db", "1")
    beside.until_affinity(pinned, {1})
    group = pod_cgroup(Driver.CGROUPFS, QOSClass.GUARANTEED, "uid-db", beside.kubelet.root)
    cpu = next(path for path in beside.kubelet.hierarchy.directories(group) if (path / "cpu.shares").exists())
    (cpu / "cpu.cfs_quota_us").write_text("100000")
    end = time.monotonic() + PATIENCE_SECONDS
    while (cpu / "cpu.cfs_quota_us").read_text().strip() != "-1":
        assert time.monotonic() < end
        time.sleep(0.02)
    assert "drift repaired" in beside.agent.log()
    assert '"kubelet"' in beside.agent.log()


def test_release_widens_everything_over_a_restart_and_going_on_pins_again(beside: Beside) -> None:
    shared, pinned = beside.kubelet.run("web"), beside.kubelet.run("db", "1")
    beside.until_affinity(pinned, {1})
    beside.until_affinity(shared, {0})
    plan = beside.agent.control.call("release", {"apply": False})
    assert not plan["applied"]
    settings = [each["settings"] for each in plan["changes"]]
    assert {each["pod"].rpartition("/")[2] for each in plan["changes"]} >= {"web", "db"}
    assert any(" of " in line and "/db: " in line for line in render(plan))
    assert any(each.get("cpus") == "0-1" for each in settings)
    assert any(each.get("quotaMicroseconds") == 100_000 for each in settings)
    assert affinity(pinned) == {1}
    assert not beside.agent.control.call("release", {"apply": True})["failed"]
    assert affinity(pinned) == affinity(shared) == {0, 1}
    assert not beside.agent.control.call("release", {"apply": False})["changes"]
    beside.agent.stop()
    beside.agent.start()
    assert beside.agent.status()["paused"]
    assert affinity(pinned) == {0, 1}
    beside.agent.control.call("pause", {"on": False})
    beside.until_affinity(pinned, {1})
    beside.until_affinity(shared, {0})


def test_doctor_names_processes_of_the_host_that_may_run_on_exclusive_cpus(beside: Beside) -> None:
    pinned = beside.kubelet.run("db", "1")
    beside.until_affinity(pinned, {1})
    config = str(beside.agent.directory / "config.yaml")
    done = subprocess.run(
        [sys.executable, "-m", "agent", "doctor", "--config", config, "-o", "json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    findings = json.loads(done.stdout)["findings"]
    (found,) = [each for each in findings if each["check"] == "strangers"]
    assert found["level"] == "warning"
    assert "may run on the exclusive CPUs 1: " in found["text"]  # this test's own process is one of them
    assert "AllowedCPUs=0," in found["hint"]
