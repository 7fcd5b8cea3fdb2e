"""The queue accountant at scale, as a process: what an API server and 2,000 agents see of it.

usage: python -m benchmarks.bench_queue_server [--reviews N] [--json]

1,000 queues of depth 4, 2,000 nodes, 50,000 pods. Full reports over a unix socket; then resize reviews over https with one and
with eight connections, quietly, while deltas (20 a second) and scrapes (one a second) come in, and during scrapes (ten a second,
each after a change), without and with the durable reservation ledger. Target: p99 of one connection below 5 ms. Reviews carry
pods with managedFields, 6 kB in all. Times are those of the client, one thread that shares the machine's CPUs with the server; on
a busy machine only the server's CPU time per operation (column cpu) says something.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from agent.formats.occupancy import SCHEMA
from agent.serve.queue_client import QueueClient, ServerAddress
from agent.serve.webhook import PATH
from benchmarks.big_node import cpu_ms
from benchmarks.https_load import posts
from tests.serve.browser import free_port

QUEUES, NODES, PODS_PER_NODE = 1000, 2000, 25
EPOCH = "000000000001-" + "0" * 16


@dataclass(frozen=True)
class Row:
    """Milliseconds of single operations. cpu: of the server, per operation on average."""

    what: str
    p50: float
    p99: float
    most: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.what:62}{self.p50:10.2f}{self.p99:10.2f}{self.most:10.2f}{self.cpu:10.2f}"


def queue(name: str, parent: str) -> dict[str, Any]:
    bounds = {"quota": -1, "limit": 1e9, "overQuotaWeight": 1}
    spec = {"parentQueue": parent, "resources": dict.fromkeys(("cpu", "memory", "gpu"), bounds)}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def cluster() -> list[dict[str, Any]]:
    """10 companies, 90 departments, 300 teams, 600 projects with a pod group each, and the nodes."""
    objects, above = list[dict[str, Any]](), [""]
    for level, count in (("c", 10), ("d", 90), ("t", 300), ("p", 600)):
        names = [f"{level}{number}" for number in range(count)]
        objects += [queue(name, above[number % len(above)]) for number, name in enumerate(names)]
        above = names
    for name in above:
        spec = {"queue": name, "minMember": 1}
        metadata = {"name": name, "namespace": "prod"}
        objects.append(
            {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": metadata, "spec": spec}
        )
    allocatable = {"cpu": "256", "memory": "1Ti"}
    for number in range(NODES):
        status = {"allocatable": allocatable}
        objects.append({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}, "status": status})
    return objects


def entry(node: int, pod: int, cpu: str = "2") -> dict[str, Any]:
    resources = {"cpu": cpu, "memory": "4Gi"}
    group = f"p{(node * PODS_PER_NODE + pod) % 600}"
    return {
        "namespace": "prod",
        "name": f"w-{node}-{pod}",
        "podGroup": group,
        "effective": resources,
        "requested": resources,
    }


def full_report(node: int) -> bytes:
    pods = {f"u-{node}-{pod}": entry(node, pod) for pod in range(PODS_PER_NODE)}
    head = {"schema": SCHEMA, "node": f"n{node}", "epoch": EPOCH, "generation": 1}
    return json.dumps({**head, "allocatable": {"cpu": "256", "memory": "1Ti"}, "pods": pods}).encode()


def delta(node: int, generation: int) -> dict[str, Any]:
    base = {"epoch": EPOCH, "generation": generation - 1}
    pods = {f"u-{node}-0": entry(node, 0, f"{2 + generation % 3}")}
    return {"schema": SCHEMA, "node": f"n{node}", "epoch": EPOCH, "generation": generation, "base": base, "pods": pods}


def review(number: int) -> bytes:
    """A pod that grows by half a CPU, padded to the size of a real one with its managedFields."""
    node, index = number % NODES, number // NODES % PODS_PER_NODE

    def pod(cpu: str) -> dict[str, Any]:
        group = f"p{(node * PODS_PER_NODE + index) % 600}"
        metadata = {
            "name": f"w-{node}-{index}",
            "namespace": "prod",
            "uid": f"u-{node}-{index}",
            "annotations": {"pod-group-name": group},
            "managedFields": [{"manager": "x" * 60, "fieldsV1": {f"f:{each}": {} for each in range(200)}}],
        }
        sizes = {"cpu": cpu, "memory": "4Gi"}
        containers = [{"name": "main", "resources": {"requests": sizes, "limits": sizes}}]
        status = {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}],
        }
        return {
            "metadata": metadata,
            "spec": {"schedulerName": "kai-scheduler", "containers": containers},
            "status": status,
        }

    request = {
        "uid": f"r{number}", "operation": "UPDATE", "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "resize", "namespace": "prod", "name": "w", "oldObject": pod("2"), "object": pod("2500m"),
    }  # fmt: skip
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def certificate(directory: Path) -> tuple[Path, Path]:
    paths = directory / "tls.crt", directory / "tls.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=bench",
         "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-out", paths[0], "-keyout", paths[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


@dataclass(frozen=True)
class Server:
    """pid, the webhook's port and certificate, and the address of its socket."""

    pid: int
    port: int
    ca: Path
    address: ServerAddress

    def cpu_ms(self) -> float:
        """CPU time used so far."""
        return cpu_ms(self.pid)


@contextmanager
def serving(directory: Path, *, ledger: bool) -> Iterator[Server]:
    """The server process."""
    pair, port = certificate(directory), free_port()
    (directory / "objects.json").write_text(json.dumps({"kind": "List", "items": cluster()}))
    section = {
        "objects": [str(directory / "objects.json")],
        "socket": str(directory / "q.sock"),
        "stateDirectory": str(directory / "state"),
        "ledger": ledger,
        "webhook": {"address": "127.0.0.1", "port": port, "certificate": str(pair[0]), "key": str(pair[1])},
        "api": {"port": 0},
    }
    (directory / "config.yaml").write_text(json.dumps({"queues": section}))
    command = [sys.executable, "-m", "agent", "queues", "serve", "--config", str(directory / "config.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "queue accounting started" in line:
                break
        threading.Thread(target=process.stderr.read, daemon=True).start()
        yield Server(process.pid, port, pair[0], ServerAddress(str(directory / "q.sock")))
    finally:
        process.terminate()
        process.wait()


class Agents:
    """Sends full reports once, then deltas for as long as `busy` lasts."""

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.client = QueueClient(address)
        self.generations = [1] * NODES

    def rebuild(self) -> list[float]:
        bodies = [json.loads(full_report(node)) for node in range(NODES)]
        return [timed(partial(self.client.post, "/v1/reports", body)) for body in bodies]

    def change(self, node: int) -> None:
        self.generations[node] += 1
        self.client.post("/v1/reports", delta(node, self.generations[node]))

    def ask(self, path: str) -> None:
        """A question whose answer nobody has asked for yet."""
        self.change(0)
        self.client.get(path)

    @contextmanager
    def busy(self, reports: float, scrapes: float) -> Iterator[None]:
        """Deltas and scrapes from a process of their own, so many a second, of each at least one change before a scrape."""
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=keep_busy, args=(self.address, self.generations, reports, scrapes, there))
        process.start()
        here.recv()
        yield
        here.send(None)
        self.generations = here.recv()
        process.join()


def keep_busy(
    address: ServerAddress, generations: list[int], reports: float, scrapes: float, parent: Connection
) -> None:
    """Until the parent says so: deltas of one node after another, and scrapes, so many a second."""
    agents, node = Agents(address), 0
    agents.generations = generations
    parent.send(None)
    due = time.monotonic()
    scraped = due
    while not parent.poll(max(0.0, due - time.monotonic())):
        agents.change(node % len(generations))
        node += 1
        if time.monotonic() >= scraped:
            agents.client.get("/metrics")
            scraped += 1 / scrapes
        due = max(due + 1 / reports, time.monotonic())
    parent.send(agents.generations)


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def reviews(port: int, ca: Path, count: int, connections: int, offset: int) -> list[float]:
    """Milliseconds of every review."""
    return posts(port, ca, PATH, [review(offset + number) for number in range(count)], connections)


def measured(server: Server, what: str, run: Callable[[], list[float]]) -> Row:
    before = server.cpu_ms()
    ordered = sorted(run())
    cpu = (server.cpu_ms() - before) / len(ordered)
    return Row(what, ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1], cpu)


def rows(count: int) -> Iterator[Row]:
    for ledger in (False, True):
        with tempfile.TemporaryDirectory() as name, serving(Path(name), ledger=ledger) as server:
            agents, kind = Agents(server.address), "ledger on" if ledger else "ledger off"
            rebuilt = measured(server, "full report, 25 pods (2,000 of them rebuild everything)", agents.rebuild)
            if not ledger:
                yield rebuilt
                yield measured(server, "one delta, acknowledged", partial(deltas, agents))
                for path in ("/v1/queues", "/", "/metrics"):
                    yield measured(server, f"GET {path}, after a change", partial(questions, agents, path))
            asked = partial(reviews, server.port, server.ca, count)
            yield measured(server, f"review, {kind}, one connection", partial(asked, 1, 0))
            with agents.busy(reports=20, scrapes=1):
                what = f"review, {kind}, one connection, reports and scrapes"
                yield measured(server, what, partial(asked, 1, 10_000))
            with agents.busy(reports=10, scrapes=10):
                what = f"review, {kind}, one connection, during scrapes"
                yield measured(server, what, partial(asked, 1, 20_000))
            yield measured(server, f"review, {kind}, eight connections", partial(asked, 8, 30_000))
            if not ledger:
                yield measured(server, "GET /metrics, nothing changed", partial(unchanged, agents, "/metrics"))


def deltas(agents: Agents) -> list[float]:
    return [timed(partial(agents.change, node)) for node in range(500)]


def unchanged(agents: Agents, path: str) -> list[float]:
    return [timed(partial(agents.client.get, path)) for _ in range(20)]


def questions(agents: Agents, path: str) -> list[float]:
    return [timed(partial(agents.ask, path)) for _ in range(20)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=int, default=2000, help="reviews per figure (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="rows as JSON lines")
    arguments = parser.parse_args()
    if not arguments.json:
        print("load average: " + " ".join(f"{load:.1f}" for load in os.getloadavg()))
        print(f"{'what, ms':62}{'p50':>10}{'p99':>10}{'max':>10}{'cpu':>10}")
    for each in rows(arguments.reviews):
        print(json.dumps(asdict(each)) if arguments.json else each, flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not arguments.json:
        print(
            f"server processes: {used.ru_maxrss / 1024:.0f} MiB resident at most, {used.ru_utime + used.ru_stime:.1f} s of CPU"
        )


if __name__ == "__main__":
    main()
