"""The accountant's API over real connections: what it answers, who may change something, and the page."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.formats.pods import decode_pod
from agent.formats.queue_objects import decode_objects
from agent.queues.accountant import AccountantOptions
from agent.queues.ledger import LedgerOptions
from agent.queues.node_report_format import encode_report
from agent.serve.accountant import AccountantService
from agent.serve.accountant_store import AccountantStore
from agent.serve.http import HTTPServer
from agent.serve.loop import ServingLoop
from agent.serve.queue_api import QueueAPI
from agent.serve.queue_client import QueueClient, QueueQuestionError, QueueServerError, ServerAddress
from agent.serve.queue_metrics import QueueMetrics
from agent.serve.queue_questions import QueueQuestions
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.series import Tally
from agent.serve.sockets import SocketAccess
from agent.serve.tls import ServerTLS
from tests.certificates import Pair, make_ca, make_pair
from tests.queues.node_reports import changes
from tests.serve.accountants import node, pod, pod_group, post, queue, report, service, trusting


class Site:
    """One accountant behind a unix socket, where everything is allowed."""

    def __init__(self, loop: ServingLoop, path: Path, found: AccountantService) -> None:
        self.service, self.tally, self.path = found, Tally(QUEUE_SERIES), path
        self.api = QueueAPI(QueueQuestions(found), found, self.tally)
        posts = {**self.api.questions(), **self.api.intake()}
        self.server = HTTPServer(loop, "", 0, self.api.routes(), posts=posts, socket=SocketAccess(path))
        self.server.start()
        self.client = QueueClient(ServerAddress(str(path)))

    def get(self, path: str, **query: str) -> Any:
        return json.loads(self.client.get(path, **query))

    def post(self, path: str, document: Any) -> Any:
        return json.loads(self.client.post(path, document))

    def send(self, body: bytes) -> str:
        taken: str = self.post("/v1/reports", json.loads(body))["taken"]
        return taken


@pytest.fixture
def site(loop: ServingLoop, tmp_path: Path) -> Iterator[Site]:
    found = Site(loop, tmp_path / "run" / "queues.sock", service(AccountantOptions(ledger=LedgerOptions())))
    yield found
    found.server.stop()


def share(site: Site, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(each for each in site.get("/v1/queues")["queues"] if each["name"] == name)
    return found


def test_a_report_is_acknowledged_and_counts_at_once(site: Site) -> None:
    first = report(1, {"p1": 2.0, "p2": 1.0})
    second = report(2, {"p1": 3.0})
    assert site.post("/v1/reports", json.loads(encode_report(first))) == {
        "taken": "applied",
        "epoch": str(first.stamp[0]),
        "generation": 1,
    }
    assert share(site, "dept")["allocated"]["cpu"] == 3000
    assert site.send(encode_report(changes(first, second))) == "applied"
    assert share(site, "dept")["allocated"]["cpu"] == 3000
    assert site.get("/v1/nodes")["nodes"]["n1"]["generation"] == 2


def test_what_was_sent_before_is_not_counted_twice_and_a_gap_asks_for_everything(site: Site) -> None:
    first, second, third = (report(number, {"p1": float(number)}) for number in (1, 2, 3))
    assert site.send(encode_report(changes(first, second))) == "gap"
    assert site.send(encode_report(first)) == "applied"
    assert site.send(encode_report(changes(second, third))) == "gap"
    assert site.send(encode_report(third)) == "applied"
    for late in (first, changes(first, second), third):
        assert site.send(encode_report(late)) == "old"
    assert share(site, "leaf")["allocated"]["cpu"] == 3000


def test_reports_go_on_after_a_restart_of_the_accountant(loop: ServingLoop, tmp_path: Path) -> None:
    sent = [report(number, {"p1": float(number)}) for number in (1, 2, 3)]
    with AccountantStore(tmp_path / "state") as store:
        site = Site(loop, tmp_path / "q.sock", service(store=store))
        assert site.send(encode_report(sent[0])) == "applied"
        site.server.stop()
    with AccountantStore(tmp_path / "state") as store:
        site = Site(loop, tmp_path / "q.sock", service(store=store))
        assert site.get("/v1/queues")["staleNodes"] == ["n1"]
        assert share(site, "leaf")["allocated"]["cpu"] == 1000
        assert share(site, "leaf")["stale"]["cpu"] == 1000
        assert site.send(encode_report(changes(sent[0], sent[1]))) == "applied"
        assert site.get("/v1/queues")["staleNodes"] == []
        site.server.stop()


def test_a_node_is_released_by_an_operator(site: Site) -> None:
    site.send(encode_report(report(1, {"p1": 2.0})))
    assert site.post("/v1/release", {"node": "n1"}) == {"released": "n1"}
    assert share(site, "leaf")["allocated"]["cpu"] == 0
    with pytest.raises(QueueQuestionError, match="no such node: n9"):
        site.post("/v1/release", {"node": "n9"})


def test_one_queue_comes_with_its_path_its_derivation_and_its_jobs(site: Site) -> None:
    site.send(encode_report(report(1, {"p1": 2.0})))
    found = site.get("/v1/queue", name="leaf")
    assert [each["name"] for each in found["path"]] == ["leaf", "dept"]
    assert found["jobs"][0]["name"] == "prod/pg"
    assert {step["queue"] for step in found["fairShare"]} == {"dept", "leaf"}
    assert site.get("/v1/fair-shares")["fairShare"]["leaf"]["cpu"] == 2000
    with pytest.raises(QueueQuestionError, match="no such queue"):
        site.get("/v1/queue", name="other")


def test_a_what_if_resize_answers_without_reserving(site: Site) -> None:
    site.send(encode_report(report(1, {"p1": 4.0})))
    question = {"oldPod": pod("p1", "4"), "newPod": pod("p1", "20")}
    answer = site.post("/v1/check-resize", question)
    assert (answer["allowed"], answer["rejection"]["room"], answer["unready"]) == (False, 6000, None)
    assert site.post("/v1/check-resize", {**question, "newPod": pod("p1", "9")})["allowed"]
    assert site.get("/v1/reservations")["reservations"] == []


def test_pending_reservations_are_shown(site: Site) -> None:
    site.send(encode_report(report(1, {"p1": 4.0})))
    site.service.resize(decode_pod(pod("p1", "4")), decode_pod(pod("p1", "6")))
    found = site.get("/v1/reservations")
    assert [(each["pod"], each["held"]["cpu"]) for each in found["reservations"]] == [("prod/p1", 2000)]
    assert found["byQueue"]["dept"]["cpu"] == 2000
    assert share(site, "leaf")["reserved"]["cpu"] == 2000


def test_a_what_if_reclaim_says_who_would_give(loop: ServingLoop, tmp_path: Path) -> None:
    objects = decode_objects(
        [queue("mine", cpu_quota=40_000), queue("theirs", cpu_quota=10_000), pod_group("pg", "theirs"), node("n1")]
    )
    site = Site(loop, tmp_path / "q.sock", service(objects=objects))
    site.send(encode_report(report(1, {"p1": 30.0, "p2": 30.0})))
    asked = {"queue": "mine", "preemptible": True, "resources": {"cpu": 20_000}}
    answer = site.post("/v1/reclaim", asked)
    assert answer["possible"] is False, "a made-up request is in no queue's request, so it has no fair share yet"
    assert answer["canReclaim"]["allowed"] is False
    with pytest.raises(QueueQuestionError, match="no pod of prod/none"):
        site.post("/v1/reclaim", {"job": "prod/none"})
    with pytest.raises(QueueQuestionError, match="queue other does not exist"):
        site.post("/v1/reclaim", {"queue": "other"})
    site.server.stop()


def test_a_simulation_goes_on_from_what_runs(site: Site) -> None:
    site.send(encode_report(report(1, {"p1": 4.0})))
    outcome = site.post("/v1/simulate", {"rounds": 5})
    assert (outcome["looped"], outcome["events"], outcome["waiting"]) == (False, [], {})


@pytest.mark.parametrize(
    ("path", "document", "why"),
    [
        ("/v1/simulate", {"rounds": 0}, "rounds: must be 1 to"),
        ("/v1/reports", {"schema": 9}, "schema: 9 is not read"),
        ("/v1/check-resize", {"pod": "prod/p1"}, "no such pod is known"),
        ("/v1/check-resize", {"oldPod": 7}, "oldPod: must be a pod"),
        ("/v1/check-resize", [], "must be an object"),
        ("/v1/reclaim", {}, "queue: required"),
        ("/v1/reclaim", {"queue": "leaf", "resources": {"cpu": -1}}, "resources.cpu"),
        ("/v1/release", [], "must be an object"),
    ],
)
def test_a_wrong_question_is_answered_by_field(site: Site, path: str, document: Any, why: str) -> None:
    with pytest.raises(QueueQuestionError, match=why):
        site.post(path, document)


def test_no_server_is_an_error_of_the_environment(tmp_path: Path) -> None:
    for target in (str(tmp_path / "none.sock"), "http://127.0.0.1:1", "ftp://here"):
        with pytest.raises(QueueServerError, match=r"none\.sock|127\.0\.0\.1|give http"):
            QueueClient(ServerAddress(target)).get("/v1/queues")


def test_the_page_shows_the_tree_and_escapes_what_others_wrote(loop: ServingLoop, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    named = queue("leaf", "dept", 1000)
    named["spec"]["displayName"] = evil
    objects = decode_objects([queue("dept"), named, pod_group("pg", "leaf"), node("n1"), queue(evil, "nowhere")])
    site = Site(loop, tmp_path / "q.sock", service(objects=objects))
    site.send(encode_report(report(1, {"p1": 2.0})))
    page = site.client.get("/")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for part in (
        "over: queue leaf: cpu allocated 2 cores, limit 1 core",
        "2 · quota",
        "every node accounted for",
        '<i class="held over"',
    ):
        assert part in page
    site.server.stop()


def test_text_is_what_the_command_shows(site: Site) -> None:
    site.send(encode_report(report(1, {"p1": 2.0})))
    assert "QUEUE" in site.client.get("/v1/queues", output="text")
    both = site.get("/v1/queues", output="both")
    assert both["answer"]["complete"] is True
    assert "leaf" in both["text"]


def metrics(found: AccountantService) -> dict[str, float]:
    text = QueueMetrics(found, Tally(QUEUE_SERIES)).text().decode()
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_metrics_have_kais_names_and_ours(loop: ServingLoop) -> None:
    found = service(
        objects=decode_objects(
            [queue("dept"), queue("leaf", "dept", 1000, 4000), pod_group("pg", "leaf"), node("n1"), node("n2")]
        )
    )
    found.take_report(report(1, {"p1": 2.0}))
    shown = metrics(found)
    labels = '{queue_name="leaf",queue_metadata_name="leaf",queue_display_name="leaf"}'
    assert shown[f"queue_info{labels}"] == 1
    assert shown[f"queue_quota_cpu_cores{labels}"] == 4
    assert shown[f"queue_quota_memory_bytes{labels}"] == -1
    assert shown[f"queue_allocated_cpu_cores{labels}"] == 2
    assert {
        f"queue_{name}{labels}" for name in ("deserved_gpus", "allocated_gpus", "allocated_memory_bytes")
    } <= shown.keys()
    assert shown['pinfold_queue_allocated{queue="dept",resource="cpu"}'] == 2
    assert shown['pinfold_queue_limit{queue="leaf",resource="cpu"}'] == 1
    assert shown['pinfold_queue_over_bound{queue="leaf",resource="cpu",bound="limit"}'] == 1
    assert shown['pinfold_queue_nodes{state="missing"}'] == 1
    assert shown["pinfold_queue_in_sync"] == 0


def test_beyond_a_socket_reports_need_a_certificate_of_their_node(loop: ServingLoop, tmp_path: Path) -> None:
    ca = make_ca(tmp_path)
    server_pair = make_pair(ca, tmp_path, "server", "accountant")
    own = make_pair(ca, tmp_path, "n1", "system:node:n1")
    collector = make_pair(ca, tmp_path, "collector", "reports")
    stranger = make_pair(make_ca(tmp_path, "other"), tmp_path, "stranger", "system:node:n1")
    found = service()
    api = QueueAPI(QueueQuestions(found), found, Tally(QUEUE_SERIES))
    tls = ServerTLS(server_pair.certificate, server_pair.key, ca.certificate)
    posts = {**api.questions(), **api.intake()}
    server = HTTPServer(loop, "127.0.0.1", 0, api.routes(), posts=posts, tls=tls, open_paths=("/metrics",))
    server.start()

    def send(pair: Pair | None, path: str, body: bytes) -> int:
        client = None if pair is None else (pair.certificate, pair.key)
        context = trusting(ca.certificate, client)
        return post(http.client.HTTPSConnection("127.0.0.1", server.port, timeout=20, context=context), path, body)[0]

    mine, other = encode_report(report(1, {})), encode_report(report(1, {}, node_name="n2"))
    assert send(None, "/v1/reports", mine) == 403
    assert send(own, "/v1/reports", mine) == 200
    assert send(own, "/v1/reports", other) == 403
    assert send(collector, "/v1/reports", other) == 200
    assert send(own, "/v1/release", b'{"node": "n2"}') == 403
    assert send(collector, "/v1/release", b'{"node": "n2"}') == 200
    with pytest.raises(OSError, match=r"alert|reset|EOF|closed"):
        send(stranger, "/v1/reports", mine)
    server.stop()
