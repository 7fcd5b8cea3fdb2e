"""Resize against the kernel: real processes in real cgroups keep running while their CPUs and bounds change."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import pytest
import yaml

from agent.enforcement import Enforcement
from agent.keeper import Keeper, Rules
from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import State
from agent.node.cgroup import detect
from agent.node.enforcer import CgroupEnforcer
from agent.node.exec_cgroups import ExecCgroups
from agent.node.state_store import StateStore
from agent.node.topology import read_topology
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.managers import ManagerConfig, Managers, policy_in_force, start
from agent.policy.observation import Event, Observation, Wanted
from agent.policy.policy_machine import policy_machine
from agent.policy.restore import fresh
from tests.agents import PATIENCE_SECONDS, Agent, affinity, pod_text
from tests.nodes import named
from tests.pods import guaranteed
from tests.policy.resizing import capacity, sizes
from tests.states import EPOCH
from tests.test_daemon_real import ROOT, agent

__all__ = ["agent"]
pytestmark = pytest.mark.real


def real_managers() -> Managers:
    """The static policy on this machine. It may have two CPUs only, so nothing is reserved here (a kubelet would refuse)."""
    machine = policy_machine(read_topology(Path("/")))
    config = ManagerConfig(
        cpu_policy="static",
        reserved_cpus=CPUSet.parse("0"),
        feature_gates={"InPlacePodVerticalScalingExclusiveCPUs": True},
    )
    managers = start(machine, config)
    assert managers.cpu is not None
    return replace(managers, cpu=replace(managers.cpu, reserved=CPUSet(), reserved_physical=CPUSet()))


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    yield running
    running.kill()
    running.wait()


def test_a_running_process_grows_and_shrinks_with_its_container(
    agent: Agent, tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    """The fixture's agent only lends its cgroup; the resize is decided, saved and written here."""
    managers = real_managers()
    parent = PurePosixPath(f"pinfold-test-daemon-{os.getpid()}") / "resize"
    hierarchy = detect(ROOT)
    cgroups = ExecCgroups(hierarchy, parent)
    cgroups.open()
    enforcement = Enforcement(CgroupEnforcer(hierarchy, cgroups.find, time.monotonic), cgroups)
    pod = named("p", guaranteed("1", "64Mi"))
    with StateStore(tmp_path / "own") as store:
        store.load(datetime.now(UTC))
        policy = policy_in_force(managers, ManagerConfig(cpu_policy="static"))
        rules = Rules(managers, capacity("cpu=64 memory=64Gi"), policy)
        keeper = Keeper(store, rules, State(EPOCH, policy=policy, grants=fresh(managers)))

        def want(desired: Pod) -> list[Event]:
            done = [each.event for each in keeper.look(Observation([Wanted(desired)]))]
            outcome = enforcement.apply(keeper.state)
            assert not outcome.faults
            return [*done, *(each.event for each in keeper.settle(outcome.actuation))]

        want(pod)
        first = set(keeper.state.grants.cpu.entries["p"]["app"])
        _, groups = enforcement.prepare(keeper.state, ContainerCgroup("p", "app"))
        for group in groups:
            (group / "cgroup.procs").write_text(str(process.pid))
        assert affinity(process.pid) == first

        grown = want(sizes(pod, "cpu=2 memory=96Mi"))
        assert grown == [Event.RESIZE_REQUESTED, Event.RESIZE_STARTED, Event.RESIZE_COMPLETED]
        second = affinity(process.pid)
        assert first < second
        assert len(second) == 2

        want(pod)
        assert affinity(process.pid) == first
        assert process.poll() is None, "it ran through all of it"
        process.kill()
        process.wait()
        assert keeper.look(Observation([])) is not None
        enforcement.apply(keeper.state)


def burstable_text(memory: str, cpu: str = "200m") -> str:
    manifest = yaml.safe_load(pod_text("b"))
    manifest["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "100m", "memory": "8Mi"},
        "limits": {"cpu": cpu, "memory": memory},
    }
    return yaml.safe_dump(manifest)


def limit_of(pid: int) -> int:
    """The memory limit of the process' cgroup, in bytes."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        base = ROOT / "memory" if "memory" in controllers.split(",") else ROOT if not controllers else None
        for name in ("memory.max", "memory.limit_in_bytes"):
            if base is not None and (file := base / group.lstrip("/") / name).exists():
                return int(file.read_text())
    pytest.skip("no memory controller")


def test_a_memory_limit_below_current_use_waits_with_an_error_until_the_use_falls(agent: Agent, tmp_path: Path) -> None:
    agent.manifest("b", burstable_text("128Mi"))
    agent.until_pod("b")
    release, script = tmp_path / "release", tmp_path / "hold.py"
    script.write_text(
        "import pathlib, sys, time\n"
        "held = bytearray(48 << 20)\n"
        "while not pathlib.Path(sys.argv[1]).exists():\n"
        "    time.sleep(0.02)\n"
        "del held\n"
        "time.sleep(120)\n"
    )
    process, pid = agent.run_in("b", f"exec {sys.executable} {script} {release}")
    assert limit_of(pid) == 128 << 20
    end = time.monotonic() + PATIENCE_SECONDS
    while int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") < 48 << 20:
        assert time.monotonic() < end
        time.sleep(0.02)
    agent.manifest("b", burstable_text("32Mi", cpu="100m"))
    status = agent.until(lambda status: status["pods"][0]["resize"] == "error")
    (condition,) = status["pods"][0]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodResizeInProgress", "Error")
    assert condition["message"].startswith("cannot decrease memory limits: attempting to set ")
    assert limit_of(pid) == 128 << 20
    assert process.poll() is None
    release.touch()
    agent.until(lambda status: status["pods"][0]["resize"] == "none")
    assert limit_of(pid) == 32 << 20
    assert "resize-completed" in agent.log()
    process.terminate()
    process.wait(PATIENCE_SECONDS)
