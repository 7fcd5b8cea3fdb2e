"""Several `pinfold queues serve` with one Lease at one API server: one answers, and another follows it, whatever ends it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from agent.proto import queues_v1_pb2 as v1
from agent.proto.queues_v1_pb2_grpc import QueuesStub
from agent.queues.node_report_format import encode_report
from agent.serve.queue_client import QueueServerError
from agent.serve.queue_service import SERVICE
from tests.certificates import Pair, make_ca, make_pair
from tests.kube.leases import LeaseStore, keeping
from tests.kube.servers import Answer, Asked, HTTPPart
from tests.serve.accountants import node, pod, pod_group, queue, report, upsize
from tests.test_queue_server import Served, eventually, serving, write_objects

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
REPORT = encode_report(report(1, {"p1": 4.0, "p2": 4.0}))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair]:
    directory = tmp_path_factory.mktemp("tls")
    ca = make_ca(directory)
    return ca, make_pair(ca, directory, "server", "accountant")


class Replicas:
    """An API server, objects that all replicas read, and replicas."""

    def __init__(
        self, directory: Path, pairs: tuple[Pair, Pair], part: HTTPPart, store: LeaseStore, stack: ExitStack
    ) -> None:
        self.store = store
        self._directory, self._pairs, self._part, self._stack = directory, pairs, part, stack
        self.apply(p1="4", p2="4")

    def apply(self, **cores: str) -> None:
        """What the API server knows: the pods of the queue with their present specs; they occupy 4 cores each."""
        pods = [self._pod(name, cpu) for name, cpu in cores.items()]
        objects = [queue("dept"), queue("leaf", "dept", 10_000), pod_group("pg", "leaf"), node("n1"), *pods]
        write_objects(self._directory / "objects.yaml", objects)

    def _pod(self, name: str, cpu: str) -> dict[str, Any]:
        found = {"apiVersion": "v1", "kind": "Pod", **pod(name, cpu, nodeName="n1")}
        given = {"name": "c", "allocatedResources": {"cpu": "4"}, "resources": {"requests": {"cpu": "4"}}}
        found["status"] = {"phase": "Running", "containerStatuses": [given]}
        return found

    def start(self, name: str, duration: int, deadline: float, **section: Any) -> Served:
        folder = self._directory / name
        folder.mkdir(exist_ok=True)
        lease = {"name": "queues", "namespace": "pinfold", "durationSeconds": duration, "retrySeconds": 0.1}
        return self._stack.enter_context(
            serving(
                folder,
                *self._pairs,
                sources={"apiserver": {"url": self._part.url}},
                objects=[str(self._directory / "objects.yaml")],
                lease={**lease, "renewDeadlineSeconds": deadline},
                grpc={"socket": str(folder / "g.sock")},
                **section,
            )
        )


@contextmanager
def cluster(directory: Path, pairs: tuple[Pair, Pair]) -> Iterator[Replicas]:
    store = LeaseStore()
    store.put("", 1)
    with keeping(store) as part, ExitStack() as stack:
        yield Replicas(directory, pairs, part, store, stack)


def ready(served: Served) -> bool:
    return served.readiness() == ""


def health(served: Served) -> int:
    """What gRPC's health service says of the accountant."""
    with grpc.insecure_channel(f"unix:{served.directory}/g.sock") as channel:
        request = health_pb2.HealthCheckRequest(service=SERVICE)
        return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=30).status)


def test_one_answers_and_after_its_death_the_other_with_all_that_it_had_let_grow(
    tmp_path: Path, pairs: tuple[Pair, Pair]
) -> None:
    with cluster(tmp_path, pairs) as site:
        first = site.start("a", 8, 6.0)
        eventually(lambda: ready(first))
        second = site.start("b", 8, 6.0)
        identity = site.store.holder()
        eventually(lambda: f"lease pinfold/queues is held by {identity}" in second.readiness())
        assert ready(first)

        assert first.send(REPORT) == "applied"
        for ask in (lambda: second.send(REPORT), lambda: second.get("/v1/queues")):
            with pytest.raises(QueueServerError, match=f"503 this replica does not answer.*held by {identity}"):
                ask()
        with (
            grpc.insecure_channel(f"unix:{second.directory}/g.sock") as channel,
            pytest.raises(grpc.RpcError, match=f"UNAVAILABLE(.|\n)*held by {identity}"),
        ):
            QueuesStub(channel).ListQueues(v1.ListQueuesRequest(), timeout=30)
        assert "pinfold_queue_answers 1\n" in first.client.get("/metrics")
        shown = second.client.get("/metrics")
        assert "pinfold_queue_answers 0\n" in shown
        assert "pinfold_queue_allocated" not in shown

        assert first.admits(upsize("p1", "4", "6"))
        assert not first.admits(upsize("p2", "4", "5"))
        unchecked = second.review(upsize("p2", "4", "5"))
        assert unchecked["allowed"], "fail-open"
        assert "without a check of its queues: lease pinfold/queues is held by" in unchecked["warnings"][0]
        site.apply(p1="6", p2="4")  # which is what the API server writes once all webhooks have admitted it

        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        eventually(lambda: ready(second))
        assert site.store.spec()["leaseTransitions"] == 2
        assert second.send(REPORT) == "applied"
        held = second.get("/v1/reservations")["reservations"]
        assert [(each["pod"], each["held"]["cpu"]) for each in held] == [("prod/p1", 2000)]
        refused = second.review(upsize("p2", "4", "5"))
        assert not refused["allowed"]
        assert "reserved by admitted resizes" in refused["status"]["message"]
        assert second.admits(upsize("p2", "4", "3"))


def test_an_orderly_end_hands_over_at_once(tmp_path: Path, pairs: tuple[Pair, Pair]) -> None:
    """The Lease would last an hour."""
    with cluster(tmp_path, pairs) as site:
        first = site.start("a", 3600, 1800.0)
        eventually(lambda: ready(first))
        eventually(lambda: health(first) == SERVING)
        second = site.start("b", 3600, 1800.0, failOpen=False)
        closed = second.review(upsize("p2", "4", "5"))
        assert (closed["allowed"], closed["status"]["code"]) == (False, 503)
        assert "cannot be judged: lease pinfold/queues is held by" in closed["status"]["message"]
        assert second.admits(upsize("p2", "4", "3")), "what does not grow needs no judgement"
        assert [health(each) for each in (first, second)] == [SERVING, NOT_SERVING]
        first.process.send_signal(signal.SIGTERM)
        eventually(lambda: ready(second))
        eventually(lambda: health(second) == SERVING)
        assert first.process.wait(30) == 0


def test_a_holder_that_cannot_renew_stops_answering_before_another_begins(
    tmp_path: Path, pairs: tuple[Pair, Pair]
) -> None:
    with cluster(tmp_path, pairs) as site:
        first = site.start("a", 4, 1.0)
        eventually(lambda: ready(first))
        second = site.start("b", 4, 1.0)
        cut_off = site.store.holder()

        def trouble(asked: Asked, to: Answer) -> bool:
            if asked.method == "PUT" and asked.body["spec"]["holderIdentity"] == cut_off:
                to.json({"kind": "Status", "message": "etcdserver: request timed out"}, 500)
                return True
            return False

        site.store.trouble = trouble
        eventually(lambda: not ready(first))
        assert site.store.holder() == cut_off, "nobody answers until it has run out"
        assert not ready(second)
        said = first.readiness()
        assert "was not renewed within 1 s" in said
        assert "request timed out" in said
        eventually(lambda: ready(second))
        assert not ready(first)
