"""How often processes wake up that have nothing to do, with every gRPC client and server of theirs on.

The agent: beside a kubelet whose Pods service it watches and whose PodResources it asks, at the default periods, 30 pods; then
with a client that watches its node service. The accountant: gRPC, HTTP, 50 queues. Neighbours are servers in this process.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.bench_idle import QUICK_SETTLE_SECONDS, one
from benchmarks.big_node import process_id, until_ready
from benchmarks.figure import Scale
from benchmarks.problems import WrongResultError
from benchmarks.row import Row, Target
from benchmarks.soak.samples import cost
from tests.agents import Agent, pod_text
from tests.kube.pods_service import Kubelet as PodsKubelet
from tests.kube.pods_service import serving as serving_pods
from tests.kube.servers import pod, wait_until
from tests.serve.accountants import queue
from tests.serve.browser import free_port
from tests.serve.kubelets import Kubelet, device, holding
from tests.serve.kubelets import serving as serving_resources

HALF = 15  # of the pods: the kubelet's, and as many manifests
QUEUES = 50
SETTLE_SECONDS = 70.0  # until the kubelet's PodResources are asked at their longest period
_BUDGET = Target("no wake-up storm: < 20/s", "most", 20)
_WATCHER = """
import sys
from pathlib import Path
from agent.client import connect, watch
with connect(Path(sys.argv[1])) as service:
    for number, _ in enumerate(watch(service)):
        if number == 0:
            print("watches", flush=True)
"""


def rows(scale: Scale) -> Iterator[Row]:
    settle, seconds = scale.pick(SETTLE_SECONDS, QUICK_SETTLE_SECONDS), scale.pick(60.0, 0.5)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        agent = stack.enter_context(_beside(Path(folder)))
        accountant = stack.enter_context(_accountant(Path(folder)))
        time.sleep(settle)
        yield from _idle(f"agent, {2 * HALF} pods, Pods stream and upstream", process_id(agent), seconds)
        with _process("-c", _WATCHER, str(agent.directory / "node.sock")) as watcher:
            assert watcher.stdout is not None
            watcher.stdout.readline()
            time.sleep(scale.pick(10.0, QUICK_SETTLE_SECONDS))
            yield from _idle("the same, its node service watched", process_id(agent), seconds)
        yield from _idle(f"accountant, {QUEUES} queues, gRPC and HTTP", accountant.pid, seconds)


def _idle(who: str, pid: int, seconds: float) -> Iterator[Row]:
    found = cost(pid, seconds)
    yield one(f"{who}: wake-ups", found.woken, "1/s", _BUDGET)
    yield one("  of one CPU", found.cpu, "%")


@contextmanager
def _beside(folder: Path) -> Iterator[Agent]:
    """An agent beside a kubelet, ready with all its pods; killed at the end."""
    pods = {each["metadata"]["uid"]: each for each in (pod(f"kubelet-{number}", 1, "50m") for number in range(HALF))}
    resources = Kubelet(holding("kubelet-0", device("example.com/device", "one", numa=0)))
    config: dict[str, Any] = {
        "podResources": {
            "socket": str(folder / "pr" / "kubelet.sock"),
            "upstream": {"socket": str(folder / "up.sock")},
        },
        "http": {"port": free_port()},
        "enforcement": {"backend": "none"},
    }
    agent = Agent(folder / "agent", config)
    config["sources"] = {"manifests": {"path": str(agent.manifests)}, "pods": {"socket": str(folder / "pods.sock")}}
    agent.manifests.mkdir(parents=True)
    for number in range(HALF):
        agent.manifest(f"own-{number}", pod_text(f"own-{number}"))
    with serving_pods(folder / "pods.sock", PodsKubelet(pods=pods)), serving_resources(resources, folder / "up.sock"):
        try:
            until_ready(agent, 2 * HALF)
            wait_until(lambda: resources.asked > 0)
            yield agent
        finally:
            if agent.process is not None and agent.process.poll() is None:
                agent.kill()


@contextmanager
def _accountant(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`pinfold queues serve` that answers."""
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(queue(f"queue-{number}") for number in range(QUEUES)))
    section = {
        "objects": [str(folder / "objects.yaml")],
        "stateDirectory": str(folder / "accountant"),
        "socket": str(folder / "queues.sock"),
        "grpc": {"socket": str(folder / "queues-grpc.sock")},
        "api": {"port": free_port()},
    }
    (folder / "accountant.yaml").write_text(yaml.safe_dump({"queues": section}))
    command = ("-m", "agent", "queues", "serve", "--config", str(folder / "accountant.yaml"))
    with _process(*command) as process:
        wait_until(lambda: process.poll() is not None or (folder / "queues-grpc.sock").exists())
        if process.poll() is not None:
            raise WrongResultError(f"the accountant ended with {process.returncode}")
        yield process


@contextmanager
def _process(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Python with these arguments, killed at the end."""
    with subprocess.Popen(
        [sys.executable, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()
