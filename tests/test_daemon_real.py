"""The agent against the kernel: real cgroups, real processes, what they may use read back from the kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from agent.errors import AgentError
from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy, detect
from agent.policy.cgroup_settings import Settings
from tests.agents import PATIENCE_SECONDS, Agent, affinity, pod_text, running
from tests.node.cgroup_parent import need_cpus, real_parent

pytestmark = pytest.mark.real

ROOT = Path("/sys/fs/cgroup")


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    parent = PurePosixPath(f"pinfold-test-daemon-{os.getpid()}")
    try:
        hierarchy: Hierarchy = detect(ROOT)
        hierarchy.create(parent)
        hierarchy.inherit(parent)
    except AgentError as error:
        pytest.skip(f"cgroups cannot be written here: {error}")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: nothing can be exclusive here")
    config = {
        "node": {"root": "/"},
        "enforcement": {"backend": "cgroup", "parent": str(parent), "periodSeconds": 0.2},
    }
    try:
        with running(tmp_path, **config) as agent:
            yield agent
    finally:
        end = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < end:
            for pid in hierarchy.processes(parent) if hierarchy.exists(parent) else ():
                os.kill(pid, signal.SIGKILL)
            try:
                hierarchy.remove(parent)
                break
            except AgentError:
                time.sleep(0.05)


def until_affinity(pid: int, wanted: set[int]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while affinity(pid) != wanted:
        assert time.monotonic() < end, f"process {pid} may use {affinity(pid)}, not {wanted}"
        time.sleep(0.02)


def test_shared_processes_leave_exclusive_cpus_and_return(agent: Agent) -> None:
    """Also over a SIGKILL of the agent: nothing moves (BL-34)."""
    agent.manifest("s1", pod_text("s1"))
    agent.manifest("s2", pod_text("s2"))
    status = agent.until(lambda status: len(status["pods"]) == 2)
    everything = {int(cpu) for cpu in os.sched_getaffinity(0)}
    first, one = agent.run_in("s1", "exec sleep 120")
    second, two = agent.run_in("s2", "exec sleep 120")
    assert status["cpus"]["reserved"] == "0"
    assert affinity(one) == affinity(two) == everything

    agent.manifest("x", pod_text("x", "1"))
    agent.until(lambda status: len(status["pods"]) == 3)
    own = {int(agent.cpus()["x"])}
    until_affinity(one, everything - own)
    until_affinity(two, everything - own)
    third, exclusive = agent.run_in("x", "exec sleep 120")
    assert affinity(exclusive) == own

    agent.kill()
    assert affinity(one) == everything - own
    assert affinity(exclusive) == own
    agent.start()
    assert affinity(one) == everything - own
    assert affinity(exclusive) == own
    assert agent.cpus() == {"x": ",".join(map(str, own))}

    agent.remove("x")
    agent.until(lambda status: any(pod["phase"] == "terminating" for pod in status["pods"]))
    assert affinity(one) == everything - own, "a terminating pod keeps its CPUs while its process runs"
    third.terminate()
    third.wait(PATIENCE_SECONDS)
    agent.until(lambda status: len(status["pods"]) == 2)
    until_affinity(one, everything)
    until_affinity(two, everything)
    for process in (first, second):
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def test_drift_is_repaired_within_a_period_and_counted(agent: Agent) -> None:
    agent.manifest("x", pod_text("x", "1"))
    agent.until(lambda status: len(status["pods"]) == 1)
    own = {int(agent.cpus()["x"])}
    process, pid = agent.run_in("x", "exec sleep 120")
    agent.control.call("look", {})
    groups = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    cpuset = next(path for _, controllers, path in groups if "cpuset" in controllers.split(",") or not controllers)
    base = ROOT / "cpuset" if (ROOT / "cpuset").is_dir() else ROOT
    (base / cpuset.lstrip("/") / "cpuset.cpus").write_text("0")
    assert affinity(pid) == {0}
    until_affinity(pid, own)
    assert "drift repaired" in agent.log()
    process.terminate()
    process.wait(PATIENCE_SECONDS)


def test_exec_passes_the_exit_code_and_runs_inside_the_grant(agent: Agent) -> None:
    agent.manifest("x", pod_text("x", "1"))
    agent.until(lambda status: len(status["pods"]) == 1)
    command = [
        sys.executable,
        "-m",
        "agent",
        "exec",
        "--socket",
        str(agent.directory / "control.sock"),
        "x",
        "main",
        "--",
    ]
    script = "grep Cpus_allowed_list /proc/self/status; exit 7"
    done = subprocess.run([*command, "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 7
    assert done.stdout.split() == ["Cpus_allowed_list:", agent.cpus()["x"]]
    refused = subprocess.run(
        [*command[:-3], "nobody", "main", "--", "true"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "no pod default/nobody is here" in refused.stderr


def test_a_lost_state_is_taken_over_from_what_runs_before_anything_is_given(agent: Agent) -> None:
    """Both generations are damaged; a pod that came meanwhile and is first in the list gets nothing of what is held."""
    agent.manifest("x", pod_text("x", "1"))
    (before,) = agent.until(lambda status: len(status["pods"]) == 1)["pods"]
    epoch = agent.status()["epoch"]
    own = {int(agent.cpus()["x"])}
    process, pid = agent.run_in("x", "exec sleep 120")
    agent.kill()
    for path in agent.state.glob("pinfold_state*"):
        if path.suffix in ("", ".previous"):
            path.write_bytes(path.read_bytes()[:-1])
    agent.manifest("a-first", pod_text("a-first", str(len(os.sched_getaffinity(0)) - 1)))
    agent.start()
    status = agent.until_pod("x")
    (after,) = [pod for pod in status["pods"] if pod["name"] == "x"]
    assert (after["uid"], after["containers"], after["phase"]) == (before["uid"], before["containers"], "running")
    assert affinity(pid) == own
    assert [each["name"] for each in status["refused"]] == ["a-first"]
    assert status["epoch"] > epoch
    assert len(list(agent.state.glob("*.damaged-*"))) == 2
    assert '"adopted"' in agent.log()
    process.terminate()
    process.wait(PATIENCE_SECONDS)
    agent.remove("x")
    agent.until(lambda status: [pod["name"] for pod in status["pods"]] == ["a-first"])


def test_a_parent_cgroup_with_fewer_cpus_than_the_machine_is_told(tmp_path: Path) -> None:
    with real_parent(frozenset({"cpuset", "cpu", "memory"})) as (hierarchy, outer):
        cpus = need_cpus(2, hierarchy)
        hierarchy.inherit(outer)
        hierarchy.write(outer, Settings(cpus=CPUSet.of(list(cpus)[:1])))
        section = {"backend": "cgroup", "parent": f"{outer}/inner", "periodSeconds": 0.1}
        with running(tmp_path, node={"root": "/"}, enforcement=section) as agent:
            status = agent.until(lambda status: not status["ready"])
            assert any(f"CPUs {next(iter(cpus))} only" in problem for problem in status["problems"])
            hierarchy.write(outer, Settings(cpus=cpus))
            hierarchy.inherit(outer / "inner")
            agent.until(lambda status: status["ready"])
            agent.stop()
