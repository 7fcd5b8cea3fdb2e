"""Pushing to an accountant that goes away, forgets, answers late or not at all: in the end it has exactly what the node has."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from agent.errors import AgentError
from agent.kube import accountant_client
from agent.kube.accountant_client import AccountantClient
from agent.kube.http_access import Access, Server
from agent.queues.accounting import Stamp
from agent.queues.node_report import ReportedPod
from agent.queues.node_report_format import decode_report
from tests.formats.test_occupancy import report_of, small_node
from tests.kube.servers import wait_until
from tests.nodes import named
from tests.pods import app
from tests.policy.resizing import Node, sizes


class Accountant:
    """The contract of an accountant, and faults: before a report is taken, after it, and forgetting everything."""

    def __init__(self) -> None:
        self.stamp: Stamp | None = None
        self.pods: dict[str, ReportedPod] = {}
        self.taken: list[str] = []
        self.whole = 0
        self.fault = ""
        self.chance: random.Random | None = None

    def post(self, body: bytes) -> tuple[int, Any] | None:
        """The answer; None to break off without one."""
        fault = self.fault
        if self.chance is not None:
            fault = self.chance.choice(["", "", "before", "after", "error", "forget"])
        if fault == "before":
            return None
        if fault == "error":
            return 503, {"error": "full"}
        if fault == "forget":
            self.stamp, self.pods = None, {}
        answer = self._take(body)
        self.taken.append(answer)
        return None if fault == "after" else (200, {"taken": answer})

    def _take(self, body: bytes) -> str:
        report = decode_report(body)
        if report.base is None:
            self.whole += 1
        if self.stamp is not None and report.stamp <= self.stamp:
            return "old"
        if report.base is None:
            self.pods = dict(report.pods)
        elif self.stamp is None or self.stamp < report.base:
            return "gap"
        else:
            merged = {**self.pods, **report.pods}
            self.pods = {uid: pod for uid, pod in merged.items() if uid not in report.gone}
        self.stamp = report.stamp
        return "applied"


@contextmanager
def listening(accountant: Accountant) -> Iterator[str]:
    """The accountant on loopback; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer = accountant.post(self.rfile.read(int(self.headers["Content-Length"])))
            if answer is None:
                self.close_connection = True
                return
            data = json.dumps(answer[1]).encode()
            self.send_response(answer[0])
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def pushing(accountant: Accountant, beat_seconds: float = 60.0) -> Iterator[tuple[AccountantClient, list[AgentError]]]:
    errors: list[AgentError] = []
    with listening(accountant) as url:
        client = AccountantClient(Server(Access(url)), errors.append, lambda: None, beat_seconds)
        client.worker.start()
        try:
            yield client, errors
        finally:
            client.worker.stop()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accountant_client, "_FIRST_WAIT", 0.005)
    monkeypatch.setattr(accountant_client, "_LONGEST_WAIT", 0.01)


def has(accountant: Accountant, node: Node) -> bool:
    """Whether the accountant has exactly what the node's report says."""
    report = report_of(node)
    wanted = {uid: spelt(pod.terms.effective) for uid, pod in report.pods.items()}
    return accountant.stamp == report.stamp and wanted == {
        uid: {"cpu": pod.allocated.cpu, "memory": pod.allocated.memory} for uid, pod in accountant.pods.items()
    }


def spelt(resources: Any) -> dict[str, int]:
    return {name: int(resources[name].number * 10**9) if name in resources else 0 for name in ("cpu", "memory")}


def burstable(name: str, cpu: str) -> Any:
    return named(name, app(f"cpu={cpu} memory=1Gi", "cpu=8 memory=8Gi"))


def test_one_whole_report_and_then_differences() -> None:
    accountant, node = Accountant(), small_node()
    with pushing(accountant) as (client, errors):
        for cpu in ("1", "2", "500m"):
            node.want(burstable("a", "1"))
            node.want(sizes(burstable("a", "1"), f"cpu={cpu} memory=1Gi", "cpu=8 memory=8Gi"))
            node.kernel()
            client.show(report_of(node))
            wait_until(lambda: has(accountant, node))
        assert (accountant.whole, errors) == (1, [])


def test_an_accountant_that_forgot_gets_the_whole_report() -> None:
    accountant, node = Accountant(), small_node()
    with pushing(accountant) as (client, _):
        node.want(burstable("a", "1"))
        client.show(report_of(node))
        wait_until(lambda: has(accountant, node))
        accountant.stamp, accountant.pods = None, {}
        node.want(burstable("b", "1"))
        client.show(report_of(node))
        wait_until(lambda: has(accountant, node))
        assert accountant.taken[-2:] == ["gap", "applied"]


def test_a_quiet_node_is_not_a_silent_one() -> None:
    accountant, node = Accountant(), small_node()
    with pushing(accountant, beat_seconds=0.02) as (client, _):
        node.want(burstable("a", "1"))
        client.show(report_of(node))
        wait_until(lambda: accountant.taken.count("old") > 2)
        assert accountant.whole == 1


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_counted_twice_through_faults_and_restarts_on_either_side(seed: int) -> None:
    chance = random.Random(seed)
    accountant, node = Accountant(), small_node()
    accountant.chance = random.Random(seed + 100)
    for _ in range(3):  # each round is another agent process on the same state
        with pushing(accountant) as (client, _):
            for _ in range(chance.randint(3, 12)):
                name = chance.choice("abcd")
                if name in node.wanted and chance.random() < 0.3:
                    node.end(name)
                else:
                    cpu = chance.choice(["500m", "1", "2"])
                    node.want(sizes(burstable(name, "1"), f"cpu={cpu} memory=1Gi", "cpu=8 memory=8Gi"))
                if chance.random() < 0.5:
                    node.kernel()
                client.show(report_of(node))
    accountant.chance = None
    with pushing(accountant) as (client, _):
        client.show(report_of(node))
        wait_until(lambda: has(accountant, node))
