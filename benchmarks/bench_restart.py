"""How long a node takes to come back: 500 pods on a machine of 512 CPUs, from the start of the process to ready; nothing moves.

    python -m benchmarks.bench_restart [PODS] [ROUNDS]

The agent is a process of its own over a sysfs tree of the machine (backend none), with a manifest for each pod. Ready is when the
control socket answers that it is, with every pod in place; the clock starts before the process does. Then SIGKILL, and again.
Beside it the CPU time of the process, which says the same on a busy machine. Target (design section 13): below 2 s.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from agent.errors import AgentError
from agent.formats.state import decode
from tests.agents import Agent
from tests.node.sysfs_tree import regular, write_tree


def manifest(number: int) -> str:
    """Every second pod has a CPU of its own; memory is small enough for all."""
    cpu = "1" if number % 2 else "500m"
    amounts = {"cpu": cpu, "memory": "64Mi"}
    resources = {"requests": amounts, "limits": amounts}
    containers = [{"name": name, "image": "example", "resources": resources} for name in ("main", "side")]
    if number % 2 == 0:
        containers[1]["resources"] = {}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{number:04}"},
            "spec": {"containers": containers[: 2 if number % 2 == 0 else 1]},
        }
    )


def until_ready(agent: Agent, pods: int) -> tuple[float, float]:
    """Seconds from the start of the process until it answers that it is ready with all pods, and seconds of CPU it took."""
    started = time.perf_counter()
    agent.start(wait=False)
    while True:
        try:
            status = agent.status()
        except AgentError:
            time.sleep(0.005)
            continue
        if status["ready"] and len(status["pods"]) == pods:
            return time.perf_counter() - started, cpu_seconds(agent)
        time.sleep(0.005)


def cpu_seconds(agent: Agent) -> float:
    """User and system time of the agent so far (proc(5), fields 14 and 15 of stat)."""
    assert agent.process is not None
    fields = Path(f"/proc/{agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(pods: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(Path(folder) / "machine", regular(packages=2, nodes=4, caches=4, cores=8, threads=2))
        config: dict[str, Any] = {
            "node": {"root": str(root), "maxPods": 2 * pods},
            "memoryManagerPolicy": "Static",
            "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
            "kubeReserved": {"memory": "1Gi"},
            "topologyManagerPolicy": "restricted",
            "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "8"},
        }
        agent = Agent(Path(folder) / "agent", config)
        agent.manifests.mkdir(parents=True)
        for number in range(pods):
            (agent.manifests / f"pod-{number:04}.yaml").write_text(manifest(number))
        first = until_ready(agent, pods)
        before = (agent.state / "pinfold_state").read_bytes()
        held = sum(bool(entries) for entries in decode(before).grants.cpu.entries.values())
        print(f"{pods} pods, {held} with exclusive CPUs, state of {len(before)} bytes; first start {first[0]:.2f} s")
        times = []
        for _ in range(rounds):
            agent.kill()
            times.append(until_ready(agent, pods))
            assert (agent.state / "pinfold_state").read_bytes() == before, "something moved"
        agent.kill()
        for name, values in (("until ready", [wall for wall, _ in times]), ("CPU time", [cpu for _, cpu in times])):
            median = statistics.median(values)
            print(f"restart, {name}: median {median:.2f} s, min {min(values):.2f}, max {max(values):.2f}")
        began = time.perf_counter()
        decode(before)
        print(f"reading the state alone: {(time.perf_counter() - began) * 1000:.0f} ms")


if __name__ == "__main__":
    main(*(int(text) for text in (sys.argv[1:] + ["500", "5"][len(sys.argv) - 1 :])))
