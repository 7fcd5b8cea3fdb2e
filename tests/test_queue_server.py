"""The accountant as people run it: `pinfold queues serve` as a process, and inside the agent for its own node."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config import ConfigError
from agent.config_schema_queues import QueuesSection
from agent.formats.queue_objects import decode_objects
from agent.model.pod import Pod
from agent.queue_config import total_of
from agent.queue_server import QueueServer
from agent.queues.node_report_format import encode_report
from agent.serve.loop import ServingLoop
from agent.serve.queue_client import QueueClient, ServerAddress
from agent.serve.webhook import PATH
from tests.agents import PATIENCE_SECONDS, pod_text, running
from tests.certificates import Pair, make_ca, make_pair
from tests.queues.node_reports import changes
from tests.serve.accountants import node, pod_group, post, queue, report, trusting, upsize

CLUSTER = [queue("dept"), queue("leaf", "dept", 10_000), pod_group("pg", "leaf"), node("n1")]


def write_objects(path: Path, objects: list[dict[str, Any]]) -> None:
    new = path.with_suffix(".new")
    new.write_text(yaml.safe_dump_all(objects))
    new.rename(path)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Served:
    """The process, and how to talk to it."""

    def __init__(self, directory: Path, ca: Pair, process: subprocess.Popen[str], started: dict[str, str]) -> None:
        self.directory, self.ca, self.process = directory, ca, process
        self.webhook_port = int(started["webhook"].rpartition(":")[2])
        self.api_port = int(started["api"].rpartition(":")[2])
        self.client = QueueClient(ServerAddress(str(directory / "q.sock")))

    def get(self, path: str) -> Any:
        return json.loads(self.client.get(path))

    def send(self, body: bytes) -> str:
        return str(json.loads(self.client.post("/v1/reports", json.loads(body)))["taken"])

    def review(self, body: bytes) -> dict[str, Any]:
        context = trusting(self.ca.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.webhook_port, timeout=30, context=context)
        found: dict[str, Any] = post(connection, PATH, body)[1]["response"]
        return found

    def admits(self, body: bytes) -> bool:
        return bool(self.review(body)["allowed"])

    def readiness(self) -> str:
        """ "" where it is ready, else what its probe says."""
        connection = http.client.HTTPConnection("127.0.0.1", self.api_port, timeout=30)
        connection.request("GET", "/readyz?verbose")
        answer = connection.getresponse()
        text = answer.read().decode()
        return "" if answer.status == 200 else text


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def serving(
    directory: Path, ca: Pair, pair: Pair, sources: dict[str, Any] | None = None, **section: Any
) -> Iterator[Served]:
    """`pinfold queues serve` with a webhook, an API, a socket and a ledger."""
    values = {
        "objects": [str(directory / "objects.yaml")],
        "objectsPeriodSeconds": 0.05,
        "stateDirectory": str(directory / "state"),
        "ledger": True,
        "socket": str(directory / "q.sock"),
        "webhook": {
            "address": "127.0.0.1",
            "port": free_port(),
            "certificate": str(pair.certificate),
            "key": str(pair.key),
        },
        "api": {"port": free_port()},
        **section,
    }
    (directory / "config.yaml").write_text(yaml.safe_dump({"queues": values, "sources": sources or {}}))
    command = [sys.executable, "-m", "agent", "queues", "serve", "--config", str(directory / "config.yaml")]
    environment = {key: value for key, value in os.environ.items() if key not in ("NOTIFY_SOCKET", "JOURNAL_STREAM")}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if '"queue accounting started"' in line:
                break
        else:
            pytest.fail("it did not start")
        yield Served(directory, ca, process, json.loads(line))
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("tls")
    ca = make_ca(directory)
    return ca, make_pair(ca, directory, "server", "accountant")


def test_it_serves_through_kills_edits_and_restarts(tmp_path: Path, pairs: tuple[Pair, Pair]) -> None:
    write_objects(tmp_path / "objects.yaml", CLUSTER)
    first = report(1, {"p1": 4.0, "p2": 4.0})
    with serving(tmp_path, *pairs) as served:
        assert served.send(encode_report(first)) == "applied"
        assert served.admits(upsize("p1", "4", "6"))
        assert not served.admits(upsize("p2", "4", "5"))
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
    with serving(tmp_path, *pairs) as served:
        assert not served.admits(upsize("p2", "4", "5")), "the reservation outlived a kill"
        grown = report(2, {"p1": 5.0, "p2": 4.0})
        assert served.send(encode_report(changes(first, grown))) == "applied"
        assert served.get("/v1/reservations")["byQueue"]["leaf"]["cpu"] == 1000
        write_objects(tmp_path / "objects.yaml", [queue("dept"), queue("leaf", "dept", 20_000), *CLUSTER[2:]])
        eventually(lambda: served.get("/v1/queue?name=leaf")["queue"]["limit"]["cpu"] == 20_000)
        assert served.admits(upsize("p2", "4", "5"))
        (tmp_path / "objects.yaml").write_text("a: [")
        eventually(lambda: "objects.yaml" in served.client.get("/readyz", verbose=""))
        assert served.get("/v1/queue?name=leaf")["queue"]["limit"]["cpu"] == 20_000, "broken files change nothing"
        connection = http.client.HTTPConnection("127.0.0.1", served.api_port, timeout=30)
        connection.request("GET", "/readyz")
        assert connection.getresponse().read() == b"ok"
        assert (
            post(http.client.HTTPConnection("127.0.0.1", served.api_port, timeout=30), "/v1/reports", b"{}")[0] == 405
        )
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_SECONDS) == 0


def test_an_object_that_stays_refused_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Objects are read anew whenever any of them changes."""
    broken = queue("broken")
    broken["spec"]["parentQueue"] = 7
    path = tmp_path / "objects.yaml"
    write_objects(path, [*CLUSTER, broken])
    section = QueuesSection(objects=[str(path)], objectsPeriodSeconds=0.02, api={"port": 0})  # type: ignore[arg-type]

    def told() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.getMessage() == "queue object refused"]

    caplog.set_level("INFO")
    with ServingLoop() as loop, QueueServer(section, loop) as server:
        eventually(lambda: bool(told()))
        for number in range(3):
            write_objects(path, [*CLUSTER, broken, queue(f"another-{number}", "dept")])
            name = f"another-{number}"
            eventually(lambda name=name: name in server.service.view().tree.queues)  # type: ignore[misc]
        assert len(told()) == 1
        write_objects(path, [*CLUSTER, queue("other")])
        eventually(lambda: "other" in server.service.view().tree.queues)
        write_objects(path, [*CLUSTER, broken])
        eventually(lambda: len(told()) == 2)


def test_two_replicas_without_a_ledger_say_the_same(tmp_path: Path) -> None:
    write_objects(tmp_path / "objects.yaml", CLUSTER)
    sections = [
        QueuesSection(objects=[str(tmp_path / "objects.yaml")], socket=str(tmp_path / f"{name}.sock"), api={"port": 0})  # type: ignore[arg-type]
        for name in "ab"
    ]
    sent = [report(number, {f"p{number}": float(number), "q": 1.3}) for number in (1, 2, 3)]
    orders = [(0, 1, 2), (0, 2, 1)]
    answers = []
    with ServingLoop() as loop:
        for section, order in zip(sections, orders, strict=True):
            with QueueServer(section, loop):
                client = QueueClient(ServerAddress(section.socket))
                for index in order:
                    client.post("/v1/reports", json.loads(encode_report(sent[index])))
                answers.append(re.sub(r'"time":"[^"]*",', "", client.get("/v1/queues")))
    assert answers[0] == answers[1]
    assert '"cpu":4300' in answers[0]


def test_a_second_accountant_on_the_same_ledger_is_refused(tmp_path: Path) -> None:
    section = QueuesSection(stateDirectory=str(tmp_path), ledger=True, api={"port": 0})  # type: ignore[arg-type]
    with (
        ServingLoop() as loop,
        QueueServer(section, loop),
        pytest.raises(Exception, match="another accountant"),
        QueueServer(section, loop),
    ):
        pass


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"webhook": {"port": 9443}}, "over https only"),
        ({"webhook": {"port": 9443, "certificate": "a"}}, "belong together"),
        ({"ledger": True}, "give stateDirectory"),
        ({"lease": {}}, "lease: without ledger"),
        (
            {"lease": {}, "ledger": True, "stateDirectory": "/x", "enabled": True},
            "lease: an agent accounts for its own",
        ),
        ({"lease": {"renewDeadlineSeconds": 15}}, "retrySeconds < renewDeadlineSeconds < durationSeconds"),
        ({"lease": {"retrySeconds": 11}}, "retrySeconds < renewDeadlineSeconds < durationSeconds"),
        ({"lease": {"name": "../x"}}, "name"),
        ({"lease": {"namespace": "a/b"}}, "namespace"),
        ({"grpc": {"certificate": "a"}}, "certificate and key belong together"),
        ({"grpc": {"address": "0.0.0.0", "port": 9559}}, "beyond loopback certificate, key and clientCA are needed"),
        ({"profile": "0.19"}, "0.18"),
    ],
)
def test_a_wrong_section_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        QueuesSection.model_validate(values)


def test_the_total_is_read_or_refused() -> None:
    assert total_of(QueuesSection()) is None
    assert total_of(QueuesSection(total="cpu=2,memory=1Gi,gpu=1")) == (2000, 2**30, 1)
    for text in ("cpu", "disk=1", "cpu=lots"):
        with pytest.raises(ConfigError, match=r"queues\.total"):
            total_of(QueuesSection(total=text))


def test_beyond_loopback_the_api_needs_certificates(tmp_path: Path, pairs: tuple[Pair, Pair]) -> None:
    pair = pairs[1]
    bare = QueuesSection.model_validate({"api": {"address": "0.0.0.0", "port": 19999}})
    half = QueuesSection.model_validate(
        {"api": {"address": "0.0.0.0", "port": 19999, "certificate": str(pair.certificate), "key": str(pair.key)}}
    )
    with ServingLoop() as loop:
        for section, why in ((bare, "not a loopback address"), (half, "clientCA")):
            with pytest.raises(Exception, match=why), QueueServer(section, loop):
                pass


def test_the_agent_hosts_the_accountant_for_its_own_node(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    write_objects(objects, [queue("dept"), queue("leaf", "dept", 3000)])
    path = str(tmp_path / "q.sock")
    section = {
        "enabled": True,
        "objects": [str(objects)],
        "socket": path,
        "api": {"port": 0},
        "settleSeconds": 0,
    }
    with running(tmp_path / "agent", queues=section) as agent:
        text = pod_text("web", "2", uid="u1").replace("metadata:", "metadata:\n  labels: {kai.scheduler/queue: leaf}")
        (agent.manifests / "web.yaml").write_text(text)
        client = QueueClient(ServerAddress(path))

        def held() -> float:
            shown = json.loads(client.get("/v1/queue?name=leaf"))
            return float(shown["queue"]["allocated"]["cpu"])

        eventually(lambda: held() == 2000)
        (agent.manifests / "web.yaml").unlink()
        eventually(lambda: held() == 0)
        assert json.loads(client.get("/v1/queues"))["complete"] is True


def test_pods_of_files_count_as_those_of_an_api_server(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[1] / "examples" / "queues" / "cluster.yaml"
    pods: tuple[Pod, ...] = decode_objects(yaml.safe_load_all(example.read_text())).pods
    section = QueuesSection(objects=[str(example)], api={"port": 0})  # type: ignore[arg-type]
    with ServingLoop() as loop, QueueServer(section, loop) as server:
        view = server.service.view()
    assert len(pods) > 2
    assert view.shares["research"].allocated.gpu == 6.5
    assert view.capture.complete
