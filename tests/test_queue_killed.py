"""`pinfold queues serve` killed between an admission and the report that shows it: no headroom is given away twice."""

from __future__ import annotations

import http.client
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from agent.queues.node_report_format import encode_report
from agent.serve.queue_client import QueueServerError
from agent.serve.webhook import PATH
from tests.certificates import Pair, make_ca, make_pair
from tests.kube.servers import HTTPPart, served
from tests.kube.test_cluster_objects import KINDS, Cluster, stored
from tests.serve.accountants import node, pod, pod_group, post, queue, report, trusting, upsize
from tests.test_queue_server import Served, eventually, serving, write_objects

FULL = encode_report(report(1, {"p1": 4.0, "p2": 4.0}))
RACERS, ROOM = 120, 17


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("tls")
    ca = make_ca(directory)
    return ca, make_pair(ca, directory, "server", "accountant")


def kill(site: Served) -> None:
    site.process.send_signal(signal.SIGKILL)
    site.process.wait()


def complete(site: Served) -> bool:
    """Whether it has read everything from the API server."""
    try:
        return bool(site.get("/v1/queues")["complete"])
    except QueueServerError:
        return False


@contextmanager
def api_server() -> Iterator[tuple[Cluster, HTTPPart]]:
    """Queues, a pod group, a node, and two pods of four cores each in a queue of ten."""
    cluster = Cluster()
    cluster.items = {
        "queues": [stored(queue("dept"), "q1"), stored(queue("leaf", "dept", 10_000), "q2")],
        "podgroups": [stored(pod_group("pg", "leaf"), "g1")],
        "nodes": [stored(node("n1"), "n1")],
        "pods": [running("p1", "4", 5), running("p2", "4", 5)],
    }
    with served(cluster.answer) as part:
        try:
            yield cluster, part
        finally:
            for kind in KINDS:
                cluster.stream(kind).put(None)


def running(name: str, cores: str, version: int) -> dict[str, Any]:
    return stored(pod(name, cores, nodeName="n1"), name, version)


def following(tmp_path: Path, part: HTTPPart, pairs: tuple[Pair, Pair]) -> Any:
    sources = {"apiserver": {"url": part.url}}
    return serving(tmp_path, *pairs, sources=sources, objects=[], apiserver=True)


def test_growth_admitted_before_a_kill_is_reserved_after_it_though_the_ledger_is_gone(
    tmp_path: Path, pairs: tuple[Pair, Pair]
) -> None:
    with api_server() as (cluster, part):
        with following(tmp_path, part, pairs) as site:
            eventually(lambda: complete(site))
            assert site.send(FULL) == "applied"
            assert site.admits(upsize("p1", "4", "6"))
            cluster.items["pods"][0] = running("p1", "6", 6)  # stored, and no agent has seen it
            kill(site)
        for kind in KINDS:
            cluster.stream(kind).put(None)  # the ends of its watches, or they would take what is for the next process
        rmtree(tmp_path / "state")  # as in a pod that comes up on another node
        with following(tmp_path, part, pairs) as site:
            eventually(lambda: complete(site))
            assert site.send(FULL) == "applied"
            assert site.get("/v1/reservations")["byQueue"]["leaf"]["cpu"] == 2000
            assert not site.admits(upsize("p2", "4", "5"))
            assert site.send(encode_report(report(2, {"p1": 6.0, "p2": 4.0}))) == "applied"
            assert not site.get("/v1/reservations")["reservations"]
            assert not site.admits(upsize("p2", "4", "5"))
            cluster.stream("pods").put({"type": "DELETED", "object": running("p2", "4", 12)})
            assert site.send(encode_report(report(3, {"p1": 6.0}))) == "applied"
            eventually(lambda: site.admits(upsize("p1", "6", "7", dryRun=True)))


def test_growth_that_the_api_server_stores_only_after_the_restart_is_reserved_too(
    tmp_path: Path, pairs: tuple[Pair, Pair]
) -> None:
    with api_server() as (cluster, part), following(tmp_path, part, pairs) as site:
        eventually(lambda: complete(site))
        assert site.send(FULL) == "applied"
        cluster.stream("pods").put({"type": "MODIFIED", "object": running("p1", "6", 11)})
        eventually(lambda: bool(site.get("/v1/reservations")["reservations"]))
        assert not site.admits(upsize("p2", "4", "5"))


def test_a_race_that_a_kill_cuts_short_never_admits_more_than_there_is(
    tmp_path: Path, pairs: tuple[Pair, Pair]
) -> None:
    limit = 1000 * (RACERS + ROOM)
    write_objects(
        tmp_path / "objects.yaml", [queue("dept"), queue("leaf", "dept", limit), pod_group("pg", "leaf"), node("n1")]
    )
    reported = encode_report(report(1, {f"p{number}": 1.0 for number in range(RACERS)}))
    admitted: set[int] = set()
    some = threading.Event()

    def ask(site: Served, number: int) -> None:
        try:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", site.webhook_port, timeout=30, context=trusting(site.ca.certificate)
            )
            _, answer = post(connection, PATH, upsize(f"p{number}", "1", "2"))
        except (OSError, http.client.HTTPException):
            return  # killed: the API server would not have stored it
        if answer["response"]["allowed"]:
            admitted.add(number)
            if len(admitted) > ROOM // 3:
                some.set()

    for killed in (True, True, False):
        some.clear()
        with serving(tmp_path, *pairs) as site, ThreadPoolExecutor(24) as pool:
            site.send(reported)
            racing = [pool.submit(ask, site, number) for number in range(RACERS) if number not in admitted]
            if killed:
                some.wait(5)
                kill(site)
            for each in racing:
                each.result()
            if not killed:
                held = site.get("/v1/reservations")["byQueue"]["leaf"]["cpu"]
        assert len(admitted) <= ROOM
    assert held == ROOM * 1000, "all the room is given away in the end, some of it perhaps to somebody who was not told"
    assert admitted
