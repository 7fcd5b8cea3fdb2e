"""Occupancy reports of a running agent: files that a reader takes one by one, over edits, kills and restarts."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from agent.model.state import Epoch
from agent.queues.charge import NANO
from agent.queues.node_report import NodeReport
from agent.queues.node_report_format import decode_report
from tests.agents import PATIENCE_SECONDS, TWO_SOCKETS, Agent, pod_text, running
from tests.kube.servers import wait_until
from tests.kube.test_accountant_client import Accountant, listening
from tests.kube.test_report_writer import Cluster, serving


def spooled(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {"reports": {"spool": {"directory": str(tmp_path / "spool"), **more}}}


class Reader:
    """Takes reports and keeps the newest, as an accountant does."""

    def __init__(self, spool: Path) -> None:
        self.spool = spool
        self.newest: NodeReport | None = None
        self.seen: list[tuple[Epoch, int]] = []

    def take(self) -> None:
        for path in sorted(self.spool.glob("*.json")):
            report = decode_report(path.read_bytes())
            self.seen.append(report.stamp)
            if self.newest is None or self.newest.stamp < report.stamp:
                self.newest = report
            path.unlink()

    def cpus(self) -> dict[str, float]:
        """Pod -> CPUs that it counts for."""
        assert self.newest is not None
        return {pod.name: pod.allocated.cpu / NANO for pod in self.newest.pods.values()}

    def until(self, cpus: dict[str, float]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while self.newest is None or self.cpus() != cpus:
            assert time.monotonic() < end, self.newest
            self.take()
            time.sleep(0.02)


def test_a_reader_follows_every_change_and_never_runs_backwards(tmp_path: Path) -> None:
    with running(tmp_path, **spooled(tmp_path), resize={"exclusive": True}) as agent:
        reader = Reader(tmp_path / "spool")
        agent.manifest("db", pod_text("db", "2"))
        reader.until({"db": 2.0})
        agent.manifest("db", pod_text("db", "6"))
        reader.until({"db": 6.0})
        agent.kill()
        agent.start()
        agent.manifest("web", pod_text("web", "3"))
        reader.until({"db": 6.0, "web": 3.0})
        agent.manifest("db", pod_text("db", "2"))
        reader.until({"db": 2.0, "web": 3.0})
        agent.remove("db")
        reader.until({"web": 3.0})
        assert reader.seen == sorted(reader.seen)
        assert reader.newest is not None
        assert reader.newest.allocatable["cpu"].value() == 31


def test_reports_that_nobody_takes_are_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    with running(tmp_path, **spooled(tmp_path, keep=3)) as agent:
        for number in range(4):
            add(agent, number)
        files = sorted((tmp_path / "spool").glob("*.json"))
        assert len(files) == 3
        assert len(decode_report(files[-1].read_bytes()).pods) == 4


def add(agent: Agent, number: int) -> None:
    agent.manifest(f"p{number}", pod_text(f"p{number}", "2"))
    agent.until_pod(f"p{number}")


def test_a_spool_that_cannot_be_written_is_told_once_and_nothing_else_suffers(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("in the way")
    with running(tmp_path, **spooled(tmp_path)) as agent:
        add(agent, 0)
        add(agent, 1)
        assert agent.log().count("report not delivered") == 1
        (tmp_path / "spool").unlink()
        Reader(tmp_path / "spool").until({"p0": 2.0, "p1": 2.0})
        assert "reports are delivered again" in agent.log()


def test_an_accountant_is_told_over_kills_of_the_agent(tmp_path: Path) -> None:
    accountant = Accountant()
    with listening(accountant) as url, running(tmp_path, reports={"accountant": {"url": url}}) as agent:
        add(agent, 0)
        wait_until(lambda: [pod.name for pod in accountant.pods.values()] == ["p0"])
        agent.kill()
        accountant.fault = "before"
        agent.start()
        add(agent, 1)
        wait_until(lambda: "report not delivered" in agent.log())
        accountant.fault = ""
        wait_until(lambda: sorted(pod.name for pod in accountant.pods.values()) == ["p0", "p1"])


def test_kubernetes_gets_the_nodes_object_and_knows_of_no_manifest_pods(tmp_path: Path) -> None:
    cluster = Cluster()
    with serving(cluster):
        config = {
            "node": {"root": str(TWO_SOCKETS), "name": "worker-1"},
            "sources": {
                "manifests": {"path": str(tmp_path / "manifests"), "periodSeconds": 0.05},
                "apiserver": {"url": cluster.url},
            },
            "reports": {"kubernetes": {}},
        }
        with running(tmp_path, **config) as agent:
            add(agent, 0)
            wait_until(lambda: available(cluster) == "13", lambda: available(cluster))


def available(cluster: Cluster) -> str:
    """CPUs that the first zone of the only topology object has left."""
    found: str = (
        next(iter(cluster.topologies.values()))["zones"][0]["resources"][0]["available"] if cluster.topologies else ""
    )
    return found
