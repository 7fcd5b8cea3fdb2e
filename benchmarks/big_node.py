"""A real agent, a process of its own, on a machine of 512 CPUs with as many pods as wanted; and what /proc says about it."""

from __future__ import annotations

import compileall
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from agent.errors import AgentError
from benchmarks.disks import disks
from benchmarks.machine import ROOT
from benchmarks.problems import WrongResultError
from tests.agents import Agent
from tests.node.sysfs_tree import regular, write_tree
from tests.serve.browser import free_port

PATIENCE_SECONDS = 120.0  # on a busy machine
EXCLUSIVE = 400  # pods that get a CPU for themselves at most; the others share


def manifest(number: int) -> str:
    """Every second pod has a CPU of its own, as long as there are some; the others have two containers."""
    exclusive = number % 2 == 1 and number < 2 * EXCLUSIVE
    amounts = {"cpu": "1" if exclusive else "50m", "memory": "64Mi"}
    main = {"name": "main", "image": "example", "resources": {"requests": amounts, "limits": amounts}}
    side = {"name": "side", "image": "example", "resources": {}}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number:04}"},
            "spec": {"containers": [main] if exclusive else [main, side]},
        }
    )


@contextmanager
def prepared(pods: int) -> Iterator[Agent]:
    """An agent that has not been started yet, with its manifests; killed at the end. Two sockets, 8 NUMA nodes, backend none."""
    # as an installed agent, which does not compile itself at every start
    compileall.compile_dir(ROOT / "agent", quiet=2)
    with disks() as places:
        folder = places["disk"]
        root = write_tree(places["tmpfs"] / "machine", regular(packages=2, nodes=4, caches=4, cores=8, threads=2))
        config: dict[str, Any] = {
            "node": {"root": str(root), "maxPods": 2 * pods},
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
            "kubeReserved": {"memory": "1Gi"},
            "topologyManagerPolicy": "restricted",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"},
            "http": {"port": free_port()},
        }
        agent = Agent(folder / "agent", config)
        # this and enforcement: with the default periods
        config["sources"] = {"manifests": {"path": str(agent.manifests)}}
        config["enforcement"] = {"backend": "none"}
        agent.manifests.mkdir(parents=True)
        for number in range(pods):
            (agent.manifests / f"pod-{number:04}.yaml").write_text(manifest(number))
        try:
            yield agent
        finally:
            if agent.process is not None and agent.process.poll() is None:
                agent.kill()


def until_ready(agent: Agent, pods: int) -> tuple[float, float]:
    """Start it; milliseconds until it answers that it is ready with all its pods, and milliseconds of CPU it took."""
    started = time.perf_counter()
    agent.start(wait=False)
    seen = "nothing yet"
    while time.perf_counter() < started + PATIENCE_SECONDS:
        if process_of(agent).poll() is not None:
            raise WrongResultError(f"the agent ended: {agent.log()[-2000:]}")
        with contextlib.suppress(AgentError):
            status = agent.status()
            if status["ready"] and len(status["pods"]) == pods:
                return (time.perf_counter() - started) * 1000, cpu_ms(process_id(agent))
            seen = f"{len(status['pods'])} pods, not ready for {status['problems']}"
        time.sleep(0.005)
    raise WrongResultError(f"not ready with {pods} pods within {PATIENCE_SECONDS:.0f} s: {seen}")


def process_of(agent: Agent) -> subprocess.Popen[bytes]:
    if agent.process is None:
        raise WrongResultError("the agent is not started")
    return agent.process


def process_id(agent: Agent) -> int:
    return process_of(agent).pid


def cpu_ms(pid: int) -> float:
    """User and system time so far, of ended threads too (proc(5), stat, fields 14 and 15; in ticks of mostly 10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")


def precise_cpu_ms(pid: int) -> float:
    """Time on a CPU so far, of the threads that live, to the nanosecond (/proc/PID/task/TID/schedstat, first field)."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def switches(pid: int) -> tuple[int, int]:
    """Times that a thread gave up its CPU to wait, so often it was woken; and times that it was made to."""
    found = {"voluntary_ctxt_switches": 0, "nonvoluntary_ctxt_switches": 0}
    for path in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name in found:
                found[name] += int(value)
    return found["voluntary_ctxt_switches"], found["nonvoluntary_ctxt_switches"]


def resident_mib(pid: int, kind: str = "VmRSS") -> float:
    """Resident memory now; `VmHWM`: at most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) / 1024
    raise WrongResultError(f"/proc/{pid}/status has no {kind}")
