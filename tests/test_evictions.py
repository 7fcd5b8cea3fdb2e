"""Pods without room are evicted slowly and told of: the steps with a clock of our own, and a running agent with an API server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agent.config import ConfigError, load
from agent.evictions import Evictions
from agent.kube.evictor import Evicted, Outcome
from agent.model.pod import Pod
from agent.policy.eviction import EvictionRule
from agent.policy.pod_events import PodEvent
from agent.preflight import faults
from agent.serve.series import Tally
from tests.agents import Agent, running
from tests.kube.servers import Answer, Asked, event, pod_list, served, wait_until
from tests.kube.servers import pod as listed
from tests.policy.test_eviction import node, pod
from tests.serve.browser import free_port
from tests.serve.test_podresources_upstream import samples


@dataclass
class Bench:
    """Looks at unplaced pods at times of our choice: unplaced for 100 s, ten seconds between two evictions."""

    now: float = 0.0
    evicted: list[str] = field(default_factory=list)
    events: list[PodEvent] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=lambda: [pod("a"), pod("b", 5)])

    def __post_init__(self) -> None:
        self.evictions = Evictions(
            EvictionRule(100.0, 10.0),
            lambda each: self.evicted.append(each.name),
            Tally(),
            self.events.append,
            lambda: self.now,
        )

    def look(self, now: float, *, ready: bool = True) -> list[str]:
        """Who is being evicted since the last look."""
        self.now, self.evicted = now, []
        self.evictions.look(*node(*self.pods), ready=ready)
        return self.evicted

    def answer(self, name: str, outcome: Outcome, retry_after: float | None = None) -> None:
        self.evictions.ended(Evicted(pod(name), outcome, "said so", retry_after=retry_after))


def test_pods_are_evicted_one_after_another() -> None:
    bench = Bench()
    assert [bench.look(now) for now in (0, 99, 100, 101, 150)] == [[], [], ["a"], [], []]  # "a" has not been answered
    bench.answer("a", Outcome.EVICTED)
    bench.pods = bench.pods[1:]
    assert bench.look(151) == ["b"]
    assert [each.message for each in bench.events] == ["no room on this node for 100 s: no room"]
    bench.answer("b", Outcome.GONE)
    assert bench.look(152) == []
    assert [each.reason for each in bench.events] == ["EvictedUnplaced"]


def test_between_two_evictions_lies_the_interval() -> None:
    bench = Bench()
    bench.look(0)
    bench.look(100)
    bench.answer("a", Outcome.EVICTED)
    assert [bench.look(now) for now in (101, 109, 110)] == [[], [], ["b"]]


def test_a_disruption_budget_holds_up_its_own_pods_only_and_longer_each_time() -> None:
    bench = Bench()
    bench.look(0)
    assert bench.look(100) == ["a"]
    bench.answer("a", Outcome.REFUSED, retry_after=300.0)
    assert bench.look(101) == []
    assert bench.look(110) == ["b"]
    bench.answer("b", Outcome.REFUSED)
    assert [bench.look(now) for now in (111, 130, 131)] == [[], [], ["b"]]
    bench.answer("b", Outcome.REFUSED)
    assert [bench.look(now) for now in (132, 171, 172)] == [[], [], ["b"]]
    bench.answer("b", Outcome.EVICTED)
    bench.pods = bench.pods[:1]
    assert [bench.look(now) for now in (300, 400, 401)] == [[], [], ["a"]]


def test_a_server_that_fails_holds_up_everybody() -> None:
    bench = Bench()
    bench.look(0)
    assert bench.look(100) == ["a"]
    bench.answer("a", Outcome.FAILED, retry_after=60.0)
    assert [bench.look(now) for now in (101, 160, 161)] == [[], [], ["a"]]


def test_an_agent_that_is_not_ready_evicts_nobody_and_begins_to_count_anew() -> None:
    bench = Bench()
    bench.look(0)
    assert bench.look(100, ready=False) == []
    assert [bench.look(now) for now in (101, 200, 201)] == [[], [], ["a"]]


# --- a running agent ------------------------------------------------------------------------------------------------------


def owned(name: str, kind: str = "ReplicaSet", cpu: str = "20") -> dict[str, Any]:
    """A pod of a controller; two of 20 CPUs do not fit on a machine of 32."""
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": "it", "uid": "o", "controller": True}
    return listed(name, 1, cpu, metadata={"ownerReferences": [owner]} if kind else {})


@dataclass
class APIServer:
    """Lists its pods, deletes those that are evicted, or answers as `refusals` say first."""

    pods: dict[str, Any]
    refusals: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    evictions: list[str] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)
    deleted: list[Any] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, asked: Asked, to: Answer) -> None:
        if asked.path.endswith("/eviction"):
            self._evict(asked, to)
        elif asked.method == "POST":
            self.events.append((asked.body["reason"], asked.body["involvedObject"]["name"]))
            to.json(asked.body, 201)
        elif asked.watch:
            to.open()
            told = 0
            while not self.over.wait(0.02):
                for each in self.deleted[told:]:
                    to.send(event("DELETED", each))
                    told += 1
        else:
            to.json(pod_list(*self.pods.values()))

    def _evict(self, asked: Asked, to: Answer) -> None:
        name = asked.body["metadata"]["name"]
        self.evictions.append(name)
        if self.refusals:
            status, headers = self.refusals.pop(0)
            to.json({"kind": "Status", "message": f"said {status}"}, status, **headers)
            return
        assert asked.body["deleteOptions"]["preconditions"]["uid"] == self.pods[name]["metadata"]["uid"]
        gone = self.pods.pop(name)
        gone["metadata"]["resourceVersion"] = str(100 + len(self.deleted))
        to.json({"kind": "Status", "status": "Success"}, 201)
        self.deleted.append(gone)


@contextmanager
def beside(tmp_path: Path, server: APIServer, **eviction: float) -> Iterator[tuple[Agent, int]]:
    port = free_port()
    with served(server.answer) as part:
        config: dict[str, Any] = {
            "sources": {"manifests": None, "apiserver": {"url": part.url}},
            "enforcement": {"backend": "none", "periodSeconds": 0.1, "eviction": eviction},
            "reports": {"kubernetes": {"nodeResourceTopology": False, "placementAnnotations": False}},
            "node": {"root": str(Path(__file__).parents[1] / "fixtures" / "sysfs" / "two-socket-smt"), "name": "n1"},
            "http": {"port": port},
        }
        try:
            with running(tmp_path, **config) as agent:
                yield agent, port
        finally:
            server.over.set()


def unplaced(agent: Agent) -> set[str]:
    return {each["name"] for each in agent.status()["pods"] if each["unplaced"]}


def test_a_pod_without_room_is_evicted_and_those_that_are_kept_stay(tmp_path: Path) -> None:
    pods = {name: owned(name, kind) for name, kind in (("a-first", "Job"), ("web", "ReplicaSet"), ("bare", ""))}
    pods["daemon"] = owned("daemon", "DaemonSet")
    server = APIServer(pods)
    with beside(tmp_path, server, afterSeconds=0.5, intervalSeconds=0.2) as (agent, port):
        agent.until(lambda status: len(status["pods"]) == 3 and server.evictions == ["web"])
        wait_until(lambda: ("EvictedUnplaced", "web") in server.events)
        agent.until(lambda status: {each["name"] for each in status["pods"]} == {"a-first", "bare", "daemon"})
        assert unplaced(agent) == {"bare", "daemon"}
        assert {each.labels["outcome"]: each.value for each in samples(port, "pinfold_evictions_total")} == {
            "evicted": 1.0,
            "gone": 0.0,
            "refused": 0.0,
            "failed": 0.0,
        }
        assert server.evictions == ["web"]
        assert "no room on this node for" in agent.log()


def test_a_disruption_budget_is_asked_again_and_an_error_holds_up(tmp_path: Path) -> None:
    server = APIServer({"first": owned("first"), "web": owned("web")}, [(429, {"Retry_After": "1"}), (500, {})])
    with beside(tmp_path, server, afterSeconds=0.2, intervalSeconds=0.1) as (agent, port):
        agent.until(lambda status: len(status["pods"]) == 1)
        assert server.evictions == ["web", "web", "web"]
        counts = {each.labels["outcome"]: each.value for each in samples(port, "pinfold_evictions_total")}
        assert (counts["evicted"], counts["refused"], counts["failed"]) == (1.0, 1.0, 1.0)


def test_a_paused_agent_evicts_nobody(tmp_path: Path) -> None:
    server = APIServer({"first": owned("first"), "web": owned("web")})
    with beside(tmp_path, server, afterSeconds=2.0, intervalSeconds=0.1) as (agent, _):
        agent.until(lambda status: unplaced(agent) == {"web"})
        agent.control.call("pause", {"on": True})
        for _ in range(60):  # looks, well beyond the time
            agent.control.call("look", {})
            threading.Event().wait(0.05)
        assert server.evictions == []
        agent.control.call("pause", {"on": False})
        wait_until(lambda: server.evictions == ["web"])


def test_where_nobody_could_be_evicted_the_configuration_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"only a kubelet's pods can be evicted: configure sources\.apiserver"):
        load(None, {"enforcement.eviction": {}})


def test_without_an_api_server_the_agent_does_not_start() -> None:
    config = load(None, {"enforcement.eviction": {}, "sources.kubelet.url": "http://127.0.0.1:1"}).config
    assert [str(fault) for fault in faults(config) if "API server" in str(fault)] == [
        "sources.apiserver: no url, and the environment names no API server (KUBERNETES_SERVICE_HOST)"
    ]
