"""The queue accountant at scale, as a process: what an API server and 2,000 agents see of it.

usage: python -m benchmarks.bench_queue_server [--reviews N] [--json]

1,000 queues of depth 4, 2,000 nodes, 50,000 pods. Full reports over a unix socket; then resize reviews over https with one and
with eight connections, quietly and while deltas (20 a second) and scrapes (one a second) come in, without and with the durable
reservation ledger. Reviews carry whole pods of 8 kB, as an API server sends them. Times are those of the client, which shares the
machine's CPUs with the server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import resource
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from agent.formats.occupancy import SCHEMA
from agent.serve.queue_client import QueueClient, ServerAddress
from agent.serve.webhook import PATH

QUEUES, NODES, PODS_PER_NODE = 1000, 2000, 25
EPOCH = "000000000001-" + "0" * 16


@dataclass(frozen=True)
class Row:
    """Milliseconds of single operations; with p99 None a total."""

    what: str
    p50: float
    p99: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        tail = "" if self.p99 is None or self.most is None else f"{self.p99:10.2f}{self.most:10.2f}"
        return f"{self.what:66}{self.p50:10.2f}{tail}"


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


@contextmanager
def serving(directory: Path, *, ledger: bool) -> Iterator[tuple[int, QueueClient]]:
    """The server process: its webhook's port and a client of its socket."""
    pair = certificate(directory)
    (directory / "objects.json").write_text(json.dumps({"kind": "List", "items": cluster()}))
    section = {
        "objects": [str(directory / "objects.json")],
        "socket": str(directory / "q.sock"),
        "stateDirectory": str(directory / "state"),
        "ledger": ledger,
        "webhook": {"address": "127.0.0.1", "port": 29443, "certificate": str(pair[0]), "key": str(pair[1])},
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
        yield 29443, QueueClient(ServerAddress(str(directory / "q.sock")))
    finally:
        process.terminate()
        process.wait()


class Agents:
    """Sends full reports once, then deltas for as long as `busy` lasts."""

    def __init__(self, client: QueueClient) -> None:
        self.client = client
        self.generations = [1] * NODES

    def rebuild(self) -> float:
        bodies = [json.loads(full_report(node)) for node in range(NODES)]
        begin = time.perf_counter()
        for body in bodies:
            self.client.post("/v1/reports", body)
        return (time.perf_counter() - begin) * 1000

    def change(self, node: int) -> None:
        self.generations[node] += 1
        self.client.post("/v1/reports", delta(node, self.generations[node]))

    def ask(self, path: str) -> None:
        """A question whose answer nobody has asked for yet."""
        self.change(0)
        self.client.get(path)

    @contextmanager
    def busy(self) -> Iterator[None]:
        stop = threading.Event()

        def send() -> None:
            node = 0
            while not stop.wait(0.05):
                self.change(node % NODES)
                node += 1

        def scrape() -> None:
            while not stop.wait(1.0):
                self.client.get("/metrics")

        threads = [threading.Thread(target=each) for each in (send, scrape)]
        for thread in threads:
            thread.start()
        yield
        stop.set()
        for thread in threads:
            thread.join()


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def reviews(port: int, ca: Path, count: int, connections: int, offset: int) -> list[float]:
    """Milliseconds of every review."""
    context = ssl.create_default_context(cafile=str(ca))

    def client(first: int) -> list[float]:
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
        times = []
        for number in range(first, count, connections):
            body = review(offset + number)

            def ask(body: bytes = body) -> None:
                connection.request("POST", PATH, body, {"Content-Type": "application/json"})
                answer = json.loads(connection.getresponse().read())
                assert answer["response"]["allowed"], answer

            times.append(timed(ask))
        return times[5:]  # the handshake is in the first one

    with ThreadPoolExecutor(connections) as pool:
        return [each for found in pool.map(client, range(connections)) for each in found]


def row(what: str, times: list[float]) -> Row:
    ordered = sorted(times)
    return Row(what, ordered[len(ordered) // 2], ordered[int(len(ordered) * 0.99)], ordered[-1])


def rows(count: int) -> Iterator[Row]:
    for ledger in (False, True):
        with tempfile.TemporaryDirectory() as name, serving(Path(name), ledger=ledger) as (port, client):
            ca, agents, kind = Path(name) / "tls.crt", Agents(client), "ledger on" if ledger else "ledger off"
            total = agents.rebuild()
            if not ledger:
                yield Row("2,000 full reports over the socket, one after another: all", total)
                yield row("one delta, acknowledged", [timed(partial(agents.change, node)) for node in range(500)])
                yield row(
                    "GET /v1/queues, after a change", [timed(partial(agents.ask, "/v1/queues")) for _ in range(20)]
                )
                yield row("GET /metrics, after a change", [timed(partial(agents.ask, "/metrics")) for _ in range(20)])
            yield row(f"review, {kind}, one connection", reviews(port, ca, count, 1, 0))
            with agents.busy():
                yield row(f"review, {kind}, one connection, reports and scrapes", reviews(port, ca, count, 1, 10_000))
            yield row(f"review, {kind}, eight connections", reviews(port, ca, count, 8, 20_000))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=int, default=2000, help="reviews per figure (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="rows as JSON lines")
    arguments = parser.parse_args()
    if not arguments.json:
        print(f"{'what, ms':66}{'p50':>10}{'p99':>10}{'max':>10}")
    for each in rows(arguments.reviews):
        print(json.dumps(asdict(each)) if arguments.json else each, flush=True)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if not arguments.json:
        print(
            f"server processes: {used.ru_maxrss / 1024:.0f} MiB resident at most, {used.ru_utime + used.ru_stime:.1f} s of CPU"
        )


if __name__ == "__main__":
    main()
