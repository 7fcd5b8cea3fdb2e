"""The query API over gRPC: what HTTP answers, as messages; errors by code; who may connect."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from agent.formats.pods import decode_pod
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.proto import queues_v1_pb2 as v1
from agent.proto.queues_v1_pb2_grpc import QueuesStub
from agent.queues.accountant import AccountantOptions
from agent.queues.jobs import Job
from agent.queues.ledger import LedgerOptions
from agent.queues.options import QueueOptions
from agent.queues.what_if import MAX_BYTES
from agent.serve import queue_questions
from agent.serve.accountant import AccountantService
from agent.serve.grpc_tls import GRPCCertificates
from agent.serve.http import HTTPAddressError, HTTPServer
from agent.serve.loop import ServingLoop
from agent.serve.queue_api import QueueAPI
from agent.serve.queue_client import QueueClient, QueueServerError, ServerAddress
from agent.serve.queue_questions import QueueQuestions
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.queue_service import SERVICE, QueueService
from agent.serve.series import Tally
from agent.serve.sockets import SocketAccess
from tests.certificates import Pair, make_ca, make_pair
from tests.serve.accountants import cluster, node, pod, pod_group, queue, report, service

SECONDS = 30.0
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "queues" / "cluster.yaml"


@dataclass
class Site:
    """One accountant behind both transports. why: what `standby` says."""

    accounts: AccountantService
    http: QueueClient
    stub: QueuesStub
    channel: grpc.Channel
    served: QueueService
    why: list[str]


Start = Callable[[AccountantService], Site]


@pytest.fixture
def start(loop: ServingLoop, tmp_path: Path) -> Iterator[Start]:
    ends: list[Callable[[], None]] = []

    def start(accounts: AccountantService) -> Site:
        why = [""]
        questions = QueueQuestions(accounts, lambda: why[0])
        api = QueueAPI(questions, accounts, Tally(QUEUE_SERIES))
        posts = {**api.questions(), **api.intake()}
        server = HTTPServer(loop, "", 0, api.routes(), posts=posts, socket=SocketAccess(tmp_path / "h" / "http.sock"))
        server.start()
        served = QueueService(loop, questions, SocketAccess(tmp_path / "g" / "grpc.sock"))
        served.start()
        channel = grpc.insecure_channel(f"unix:{tmp_path}/g/grpc.sock")
        ends.extend((channel.close, served.stop, server.stop))
        client = QueueClient(ServerAddress(str(tmp_path / "h" / "http.sock")))
        return Site(accounts, client, QueuesStub(channel), channel, served, why)

    yield start
    for end in ends:
        end()


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != "time"}


def same(answer: Message, text: str) -> None:
    """The message is the JSON, and the JSON the message: nothing is lost or added either way."""
    document = without_time(json.loads(text))
    wanted = ParseDict(document, type(answer)())
    if "time" in answer.DESCRIPTOR.fields_by_name:
        assert answer.HasField("time")
        answer.ClearField("time")
    assert answer == wanted
    back = MessageToDict(answer, always_print_fields_with_no_presence=True)
    for key, value in document.items():
        assert value is None or key in back or value in ("", 0, False), key


def busy(options: AccountantOptions | None = None, objects: QueueObjects | None = None) -> AccountantService:
    """Growth under way, a silent and a missing node, a queue over its limit, pods of no queue."""
    found = service(
        options or AccountantOptions(ledger=LedgerOptions()),
        objects=objects
        or decode_objects(
            [
                queue("dept", cpu_limit=100_000),
                queue("leaf", "dept", 9_000, 4_000),
                queue("tight", "dept", 1_000),
                queue("bad", "nowhere"),
                pod_group("pg", "leaf"),
                pod_group("pg2", "tight"),
                node("n1"),
                node("n2"),
                pod("p1", "4") | {"kind": "Pod", "apiVersion": "v1"},
            ]
        ),
    )
    found.take_report(report(1, {"p1": 4.0, "p2": 1.5}))
    return found


def test_every_answer_is_the_one_that_http_gives(start: Start) -> None:
    site = start(busy())
    site.accounts.resize(decode_pod(pod("p1", "4")), decode_pod(pod("p1", "5")))
    stub, http = site.stub, site.http
    listed = stub.ListQueues(v1.ListQueuesRequest(), timeout=SECONDS)
    assert [each.name for each in listed.queues] == ["dept", "leaf", "tight"]
    assert (listed.queues[1].allocated.cpu, listed.queues[1].reserved.cpu, listed.queues[1].limit.gpu) == (
        5500,
        1000,
        -1,
    )
    assert "bad" in listed.problems[0]
    same(listed, http.get("/v1/queues"))
    one = stub.GetQueue(v1.GetQueueRequest(name="leaf"), timeout=SECONDS)
    assert [each.name for each in one.path] == ["leaf", "dept"]
    assert one.jobs[0].name == "prod/pg"
    assert {each.rule for each in one.fair_share} >= {"DESERVED", "OVER_QUOTA"}
    same(one, http.get("/v1/queue", name="leaf"))
    same(stub.GetFairShares(v1.GetFairSharesRequest(), timeout=SECONDS), http.get("/v1/fair-shares"))
    pending = stub.ListReservations(v1.ListReservationsRequest(), timeout=SECONDS)
    assert [(each.pod, each.held.cpu) for each in pending.reservations] == [("prod/p1", 1000)]
    assert pending.by_queue["dept"].cpu == 1000
    same(pending, http.get("/v1/reservations"))
    nodes = stub.ListNodes(v1.ListNodesRequest(), timeout=SECONDS)
    assert nodes.nodes["n1"].source == "report"
    same(nodes, http.get("/v1/nodes"))


@pytest.mark.parametrize("cpu", ["4", "5", "12", "3", "4500m"])
def test_a_what_if_resize_is_the_one_of_http(start: Start, cpu: str) -> None:
    site = start(busy())
    old, new = pod("p1", "4"), pod("p1", cpu)
    request = v1.CheckResizeRequest()
    request.old_pod.update(old)
    request.new_pod.update(new)
    answer = site.stub.CheckResize(request, timeout=SECONDS)
    same(answer, site.http.post("/v1/check-resize", {"oldPod": old, "newPod": new}))
    assert answer.allowed == (cpu != "12")
    if not answer.allowed:
        assert (answer.rejection.queue, answer.rejection.bound_kind) == ("leaf", "limit")
    named = site.stub.CheckResize(v1.CheckResizeRequest(pod="prod/p1", set={"c.cpu": cpu}), timeout=SECONDS)
    same(named, site.http.post("/v1/check-resize", {"pod": "prod/p1", "set": {"c.cpu": cpu}}))
    assert named == answer
    assert site.accounts.view().capture.ledger.reservations == {}


@pytest.mark.parametrize("flags", [{}, {"queuePriorityInQuotaReclaim": True}, {"forbidTakeBack": True}])
def test_what_if_reclaims_and_simulations_are_those_of_http(start: Start, flags: dict[str, bool]) -> None:
    objects = decode_objects(yaml.safe_load_all(EXAMPLE.read_text()))
    site = start(service(AccountantOptions(QueueOptions()), objects=objects))
    waiting = [job.name for job in site.accounts.jobs()]
    assert len(waiting) > 2
    questions: list[dict[str, Any]] = [
        *({"job": name} for name in waiting),
        {"queue": "vision", "preemptible": False, "resources": {"gpu": 1}},
        {"queue": "language", "resources": {"cpu": 1000.5, "memory": 2**40}},
    ]
    for question in questions:
        document: dict[str, Any] = {**question, **flags}
        answer = site.stub.Reclaim(ParseDict(document, v1.ReclaimRequest()), timeout=SECONDS)
        same(answer, site.http.post("/v1/reclaim", document))
    for document in ({**flags}, {"rounds": 3, **flags}):
        outcome = site.stub.Simulate(ParseDict(document, v1.SimulateRequest()), timeout=SECONDS)
        same(outcome, site.http.post("/v1/simulate", document))
        assert outcome.queues[0].name


def code_of(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def test_errors_have_a_code_and_name_what_is_wrong(start: Start) -> None:
    site = start(busy())
    stub = site.stub
    status = grpc.StatusCode
    code, text = code_of(lambda: stub.GetQueue(v1.GetQueueRequest(name="other"), timeout=SECONDS))
    assert (code, "no such queue: other" in text) == (status.NOT_FOUND, True)
    code, text = code_of(lambda: stub.Reclaim(v1.ReclaimRequest(job="prod/none"), timeout=SECONDS))
    assert (code, "no pod of prod/none" in text) == (status.NOT_FOUND, True)
    code, text = code_of(lambda: stub.Reclaim(v1.ReclaimRequest(queue="other"), timeout=SECONDS))
    assert (code, "queue other" in text) == (status.NOT_FOUND, True)
    code, text = code_of(lambda: stub.CheckResize(v1.CheckResizeRequest(), timeout=SECONDS))
    assert (code, "no such pod is known" in text) == (status.INVALID_ARGUMENT, True)
    code, text = code_of(lambda: stub.Simulate(v1.SimulateRequest(rounds=100_000), timeout=SECONDS))
    assert (code, "rounds: must be 1 to 1000" in text) == (status.INVALID_ARGUMENT, True)
    negative = v1.ReclaimRequest(queue="leaf", resources=v1.Quantities(cpu=-1))
    assert code_of(lambda: stub.Reclaim(negative, timeout=SECONDS))[0] == status.INVALID_ARGUMENT
    for odd in (float("nan"), float("inf")):
        asked = v1.ReclaimRequest(queue="leaf", resources=v1.Quantities(cpu=odd))
        code, text = code_of(partial(stub.Reclaim, asked, timeout=SECONDS))
        assert (code, "resources.cpu" in text) == (status.INVALID_ARGUMENT, True)


def test_what_is_no_message_or_too_large_is_refused(start: Start) -> None:
    site = start(busy())
    method = site.channel.unary_unary(f"/{SERVICE}/CheckResize", bytes, bytes)
    code, text = code_of(lambda: method(b"\x0a\xff", timeout=SECONDS))
    assert (code, text.startswith("not a CheckResizeRequest")) == (grpc.StatusCode.INVALID_ARGUMENT, True)
    assert code_of(lambda: method(bytes(MAX_BYTES + 1), timeout=SECONDS))[0] == grpc.StatusCode.RESOURCE_EXHAUSTED
    nested: dict[str, Any] = {}
    for _ in range(40):
        nested = {"a": nested}
    request = v1.CheckResizeRequest()
    request.old_pod.update({"metadata": nested})
    request.new_pod.update(pod("p1", "4"))
    assert code_of(lambda: site.stub.CheckResize(request, timeout=SECONDS))[0] == grpc.StatusCode.INVALID_ARGUMENT
    assert site.stub.GetQueue(v1.GetQueueRequest(name="leaf"), timeout=SECONDS).queue.name == "leaf"


def test_before_queues_were_read_nothing_is_answered_but_which_nodes_there_are(start: Start) -> None:
    site = start(AccountantService(AccountantOptions(), lambda: 0.0))
    site.accounts.take_report(report(1, {"p1": 4.0}))
    for call in (
        lambda: site.stub.ListQueues(v1.ListQueuesRequest(), timeout=SECONDS),
        lambda: site.stub.GetQueue(v1.GetQueueRequest(name="leaf"), timeout=SECONDS),
        lambda: site.stub.CheckResize(v1.CheckResizeRequest(), timeout=SECONDS),
        lambda: site.stub.Simulate(v1.SimulateRequest(), timeout=SECONDS),
    ):
        code, text = code_of(call)
        assert code == grpc.StatusCode.FAILED_PRECONDITION
        assert "queues and pod groups have not been read yet" in text
    with pytest.raises(QueueServerError, match="503 queues and pod groups have not been read yet"):
        site.http.get("/v1/queues")
    same(site.stub.ListNodes(v1.ListNodesRequest(), timeout=SECONDS), site.http.get("/v1/nodes"))


def test_a_replica_that_does_not_answer_says_so_on_both(start: Start) -> None:
    site = start(busy())
    site.why[0] = "lease pinfold/queues is held by b"
    code, text = code_of(lambda: site.stub.ListNodes(v1.ListNodesRequest(), timeout=SECONDS))
    assert code == grpc.StatusCode.UNAVAILABLE
    assert "held by b" in text
    for path in ("/v1/queues", "/v1/reservations", "/v1/nodes", "/"):
        with pytest.raises(
            QueueServerError, match="503 this replica does not answer: lease pinfold/queues is held by b"
        ):
            site.http.get(path)
    for path in ("/v1/reports", "/v1/release", "/v1/check-resize"):
        with pytest.raises(QueueServerError, match="503 this replica does not answer"):
            site.http.post(path, {"node": "n1"})
    site.why[0] = ""
    assert site.stub.ListNodes(v1.ListNodesRequest(), timeout=SECONDS).nodes


class Slow(AccountantService):
    """Its searches take as long as a test wants."""

    def __init__(self) -> None:
        super().__init__(AccountantOptions(), lambda: 0.0)
        self.take_objects(cluster())
        self.searching, self.go_on = threading.Event(), threading.Event()

    def jobs(self) -> list[Job]:
        self.searching.set()
        assert self.go_on.wait(SECONDS)
        return super().jobs()


def test_of_long_searches_one_goes_on_at_a_time_and_short_questions_pass_by(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_questions, "PATIENCE_SECONDS", 0.01)
    accounts = Slow()
    site = start(accounts)
    first = site.stub.Simulate.future(v1.SimulateRequest(), timeout=SECONDS)
    assert accounts.searching.wait(SECONDS)
    code, text = code_of(lambda: site.stub.Simulate(v1.SimulateRequest(), timeout=SECONDS))
    assert (code, "too many such questions at once" in text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, True)
    with pytest.raises(QueueServerError, match="503 too many such questions at once"):
        site.http.post("/v1/simulate", {})
    assert site.stub.GetFairShares(v1.GetFairSharesRequest(), timeout=SECONDS).fair_share
    accounts.go_on.set()
    assert not first.result().looped


def test_health_and_reflection_stand_beside_it(start: Start) -> None:
    site = start(busy())
    check = health_pb2_grpc.HealthStub(site.channel).Check
    serving = health_pb2.HealthCheckResponse
    for ready, status in ((False, serving.NOT_SERVING), (True, serving.SERVING), (False, serving.NOT_SERVING)):
        site.served.show(ready=ready)
        for name in ("", SERVICE):
            assert check(health_pb2.HealthCheckRequest(service=name), timeout=SECONDS).status == status
    stub = reflection_pb2_grpc.ServerReflectionStub(site.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (found,) = stub.ServerReflectionInfo(iter([request]), timeout=SECONDS)
    assert SERVICE in [each.name for each in found.list_services_response.service]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair, Path]:
    directory = tmp_path_factory.mktemp("tls")
    ca = make_ca(directory)
    return ca, make_pair(ca, directory, "client", "monitor"), directory


def ask(port: int, ca: Pair, client: Pair | None) -> int:
    """How many queues there are, over TLS."""
    key, chain = (None, None) if client is None else (client.key.read_bytes(), client.certificate.read_bytes())
    credentials = grpc.ssl_channel_credentials(ca.certificate.read_bytes(), key, chain)
    with grpc.secure_channel(f"localhost:{port}", credentials) as channel:
        return len(QueuesStub(channel).ListQueues(v1.ListQueuesRequest(), timeout=SECONDS).queues)


def test_on_an_address_clients_show_certificates_and_renewed_ones_are_used(
    loop: ServingLoop, pairs: tuple[Pair, Pair, Path], tmp_path: Path
) -> None:
    ca, client, _ = pairs
    pair, other_ca = make_pair(ca, tmp_path, "server", "accountant"), make_ca(tmp_path, "other")
    stranger = make_pair(other_ca, tmp_path, "stranger", "monitor")
    certificates = GRPCCertificates(pair.certificate, pair.key, ca.certificate)
    served = QueueService(loop, QueueQuestions(service(objects=cluster())), None, "127.0.0.1", 0, certificates)
    served.start()
    try:
        assert ask(served.port, ca, client) == 2
        for nobody in (None, stranger):
            assert code_of(partial(ask, served.port, ca, nobody))[0] == grpc.StatusCode.UNAVAILABLE
        # an incomplete renewal changes nothing, and is told
        good = pair.certificate.read_bytes()
        pair.certificate.write_bytes(stranger.certificate.read_bytes())
        assert ask(served.port, ca, client) == 2
        assert str(pair.certificate) in certificates.problem
        pair.certificate.write_bytes(good)
        renewed = make_pair(other_ca, tmp_path, "renewed", "accountant")
        pair.certificate.write_bytes(renewed.certificate.read_bytes())
        pair.key.write_bytes(renewed.key.read_bytes())
        assert ask(served.port, other_ca, client) == 2
        assert certificates.problem == ""
    finally:
        served.stop()


def test_beyond_loopback_it_does_not_listen_without_certificates(
    loop: ServingLoop, pairs: tuple[Pair, Pair, Path]
) -> None:
    _, pair, _ = pairs
    for tls in (None, GRPCCertificates(pair.certificate, pair.key)):
        served = QueueService(loop, QueueQuestions(service()), None, "0.0.0.0", 0, tls)
        with pytest.raises(HTTPAddressError, match="not a loopback address"):
            served.start()


def test_an_address_that_is_taken_is_an_error(loop: ServingLoop) -> None:
    first = QueueService(loop, QueueQuestions(service()))
    first.start()
    try:
        with pytest.raises(HTTPAddressError, match=f"127.0.0.1 port {first.port}"):
            QueueService(loop, QueueQuestions(service()), None, "127.0.0.1", first.port).start()
    finally:
        first.stop()
