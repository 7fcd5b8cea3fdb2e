"""The webhook as an API server meets it: over https on loopback, with recorded reviews, races and renewed certificates."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from agent.formats.queue_objects import decode_objects
from agent.queues.accountant import AccountantOptions
from agent.queues.ledger import LedgerOptions
from agent.queues.resize_admission import ResizeOptions
from agent.serve.accountant import AccountantService
from agent.serve.accountant_store import AccountantStore
from agent.serve.http import HTTPServer
from agent.serve.loop import ServingLoop
from agent.serve.queue_series import QUEUE_SERIES, REVIEWS
from agent.serve.series import Tally
from agent.serve.tls import CertificateError, ServerTLS
from agent.serve.webhook import PATH, WEBHOOK_LIMITS, ResizeWebhook
from tests.certificates import Pair, make_ca, make_pair
from tests.serve.accountants import (
    cluster,
    node,
    pod,
    pod_group,
    post,
    queue,
    report,
    review,
    service,
    trusting,
    upsize,
)
from tests.shared import SHARED

RECORDED = sorted((SHARED / "samples" / "admission").glob("*.review.json"))
LEDGER = AccountantOptions(ledger=LedgerOptions())


@pytest.fixture(scope="session")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_ca(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="session")
def server_pair(ca: Pair, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return make_pair(ca, tmp_path_factory.mktemp("server"), "server", "accountant")


@dataclass
class Hook:
    server: HTTPServer
    service: AccountantService
    tally: Tally
    ca: Pair

    def connect(self) -> http.client.HTTPSConnection:
        context = trusting(self.ca.certificate)
        return http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=30, context=context)

    def ask(self, body: bytes) -> dict[str, Any]:
        """The response of a review."""
        status, answer = post(self.connect(), f"{PATH}?timeout=5s", body)
        assert status == 200
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: dict[str, Any] = answer["response"]
        return response

    def allows(self, body: bytes) -> bool:
        return bool(self.ask(body)["allowed"])


Start = Callable[..., Hook]


@pytest.fixture
def start(loop: ServingLoop, ca: Pair, server_pair: Pair) -> Iterator[Start]:
    hooks: list[Hook] = []

    def start(found: AccountantService | None = None, *, fail_open: bool = True, pair: Pair = server_pair) -> Hook:
        tally, accounts = Tally(QUEUE_SERIES), found or service()
        webhook = ResizeWebhook(accounts, tally, fail_open=fail_open)
        tls = ServerTLS(pair.certificate, pair.key)
        posts = {PATH: webhook.posting()}
        server = HTTPServer(loop, "127.0.0.1", 0, {}, WEBHOOK_LIMITS, posts=posts, tls=tls)
        server.start()
        hooks.append(Hook(server, accounts, tally, ca))
        return hooks[-1]

    yield start
    for hook in hooks:
        hook.server.stop()


def reporting(options: AccountantOptions | None = None, **cores: float) -> AccountantService:
    found = service(options)
    found.take_report(report(1, cores))
    return found


def test_growth_is_admitted_up_to_the_limit_and_rejected_beyond(start: Start) -> None:
    hook = start(reporting(p1=4, p2=4))
    assert hook.ask(upsize("p1", "4", "6")) == {
        "uid": "review-p1",
        "allowed": True,
        "auditAnnotations": {"reason": "FITS", "queue": "leaf"},
    }
    response = hook.ask(upsize("p1", "4", "7"))
    assert not response["allowed"]
    assert response["status"]["code"] == 403
    message = response["status"]["message"]
    for part in (
        "pod prod/p1",
        "PodGroup pg",
        "queue leaf",
        "cpu",
        "allocated 8",
        "growth 3",
        "limit 10",
        "2 cores more",
    ):
        assert part in message


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(review(pod("p1", "9"), pod("p1", "1")), id="downsize"),
        pytest.param(review(pod("p1", "9"), pod("p1", "9")), id="nothing"),
        pytest.param(review(pod("p1", "9", group="none"), pod("p1", "99", group="none")), id="unknown pod group"),
        pytest.param(review(pod("p1", "9", group="stray"), pod("p1", "99", group="stray")), id="unknown queue"),
        pytest.param(review(pod("p1", "9", scheduler="x"), pod("p1", "99", scheduler="x")), id="other scheduler"),
        pytest.param(upsize("p1", "9", "99", subResource="status"), id="no resize"),
        pytest.param(upsize("p1", "9", "99", operation="CREATE"), id="no update"),
    ],
)
def test_what_is_not_ours_to_reject_is_admitted(start: Start, body: bytes) -> None:
    objects = decode_objects(
        [queue("dept"), queue("leaf", "dept", 9000), pod_group("pg", "leaf"), node("n1"), pod_group("stray", "gone")]
    )
    found = service(objects=objects)
    found.take_report(report(1, {"p1": 9}))
    assert start(found, fail_open=False).allows(body)


def two_containers(first: str, second: str, **limits: Any) -> dict[str, Any]:
    sizes = {"c": first, "d": second}
    containers = [{"name": name, "resources": {"requests": {"cpu": cpu}, **limits}} for name, cpu in sizes.items()]
    return pod("p1", "1", containers=containers)


def test_moves_between_containers_and_changes_of_limits_are_free(start: Start) -> None:
    hook = start(reporting(p1=10))
    assert hook.allows(review(two_containers("5", "5"), two_containers("9", "1")))
    assert hook.allows(review(two_containers("5", "5"), two_containers("5", "5", limits={"cpu": "20"})))
    assert not hook.allows(review(two_containers("5", "5"), two_containers("6", "5")))


def test_a_stale_infeasible_spec_is_no_growth_but_a_smaller_new_one_may_be(start: Start) -> None:
    hook = start(reporting(p1=2))

    def infeasible(cpu: str) -> dict[str, Any]:
        actual = {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "2"}}
        condition = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        status = {"phase": "Running", "conditions": [condition], "containerStatuses": [actual]}
        return {**pod("p1", cpu), "status": status}

    assert hook.allows(review(infeasible("50"), infeasible("50")))
    assert hook.allows(review(infeasible("50"), infeasible("10")))
    assert not hook.allows(review(infeasible("50"), infeasible("11")))


def test_growth_of_pod_level_requests_is_checked(start: Start) -> None:
    hook = start(reporting(p1=2))
    old, new = (pod("p1", "1", resources={"requests": {"cpu": size}}) for size in ("2", "11"))
    assert "growth 9" in hook.ask(review(old, new))["status"]["message"]


def test_strict_mode_lets_nothing_grow_below_a_bound(start: Start) -> None:
    strict = AccountantOptions(resize=ResizeOptions(block_upsize_on_bounded_queues=True))
    response = start(reporting(strict, p1=1)).ask(upsize("p1", "1", "2"))
    assert not response["allowed"]
    for part in ("blockUpsizeOnBoundedQueues", "queue leaf", "limit 10", "allocated 1", "growth 1"):
        assert part in response["status"]["message"]


def test_before_the_nodes_have_reported_growth_is_admitted_with_a_warning_or_waits(start: Start) -> None:
    response = start(service()).ask(upsize("p1", "1", "2"))
    assert response["allowed"]
    assert "not every node has reported" in response["warnings"][0]
    closed = start(service(), fail_open=False)
    response = closed.ask(upsize("p1", "1", "2"))
    assert (response["allowed"], response["status"]["code"]) == (False, 503)
    assert "not every node has reported" in response["status"]["message"]
    assert closed.allows(upsize("p1", "2", "1"))


def test_a_pod_that_cannot_be_read_is_admitted_or_rejected_by_the_same_choice(start: Start) -> None:
    body = review(pod("p1", "1"), pod("p1", "a lot"))
    response = start(reporting(p1=1)).ask(body)
    assert (response["allowed"], "a lot" in response["warnings"][0]) == (True, True)
    response = start(reporting(p1=1), fail_open=False).ask(body)
    assert (response["allowed"], response["status"]["code"]) == (False, 400)


def test_what_is_no_review_gets_an_http_error(start: Start) -> None:
    hook = start()
    assert post(hook.connect(), PATH, b"{}")[0] == 400
    assert post(hook.connect(), PATH, b"")[0] == 400
    assert post(hook.connect(), "/elsewhere", b"{}")[0] == 405
    assert hook.allows(upsize("p1", "2", "1"))


def test_reviews_are_counted_by_answer_and_reason(start: Start) -> None:
    hook = start(reporting(p1=9))
    hook.ask(upsize("p1", "9", "10"))
    hook.ask(upsize("p1", "9", "11"))
    counted = {
        key: count
        for series, values in hook.tally.counters()
        if series.name == REVIEWS
        for key, count in values.items()
    }
    assert {key: count for key, count in counted.items() if count} == {
        ("admitted", "FITS"): 1,
        ("rejected", "REJECTED"): 1,
    }


@pytest.mark.shared
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_reviews_of_another_scheduler_are_admitted_with_their_uid(start: Start, path: Path) -> None:
    document = json.loads(path.read_bytes())
    response = start(reporting(p1=10), fail_open=False).ask(path.read_bytes())
    assert (response["uid"], response["allowed"]) == (document["request"]["uid"], True)


@pytest.mark.shared
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_recorded_reviews_are_judged_once_their_pods_are_ours(start: Start, path: Path) -> None:
    """The recorded pods have the default scheduler and no pod group; with both given, growth alone decides."""
    document = json.loads(path.read_bytes())
    request = document["request"]
    cpu = []
    for name in ("oldObject", "object"):
        request[name]["spec"]["schedulerName"] = "kai-scheduler"
        request[name]["metadata"]["annotations"] = {"pod-group-name": "pg"}
        cpu.append(request[name]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    full = decode_objects([queue("team-a", cpu_limit=0), pod_group("pg", "team-a", "team-a"), node("n1")])
    found = service(objects=full)
    found.take_report(report(1, {}))
    grows = decode_quantity(cpu[1]) > decode_quantity(cpu[0])
    response = start(found, fail_open=False).ask(json.dumps(document).encode())
    assert response["allowed"] is not grows


def decode_quantity(text: str) -> float:
    return float(text.removesuffix("m")) / 1000 if text.endswith("m") else float(text)


def test_a_dry_run_reserves_nothing(start: Start) -> None:
    hook = start(reporting(LEDGER, p1=4, p2=4))
    assert hook.allows(upsize("p1", "4", "6", dryRun=True))
    assert not hook.service.view().capture.ledger.reservations
    assert hook.allows(upsize("p1", "4", "6"))
    assert not hook.allows(upsize("p2", "4", "5", dryRun=True))


@pytest.mark.parametrize("durable", [False, True])
def test_hundreds_of_upsizes_at_once_are_admitted_at_most_up_to_the_bound(
    start: Start, tmp_path: Path, *, durable: bool
) -> None:
    pods = {f"p{number}": 1.0 for number in range(300)}
    with AccountantStore(tmp_path) as store:
        found = service(LEDGER, store=store if durable else None, objects=cluster(limit=320_000))
        found.take_report(report(1, pods))
        hook = start(found)
        barrier, admitted, lock = threading.Barrier(30), list[str](), threading.Lock()

        def client(first: int) -> None:
            connection = hook.connect()
            connection.connect()
            barrier.wait()
            for number in range(first, first + 10):
                _, answer = post(connection, PATH, upsize(f"p{number}", "1", "2"))
                if answer["response"]["allowed"]:
                    with lock:
                        admitted.append(f"p{number}")

        threads = [threading.Thread(target=client, args=(first,)) for first in range(0, 300, 10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(admitted) == len(set(admitted)) == 20
        assert found.view().reserved["leaf"].cpu_millis == 20_000
        grown = {**pods, **dict.fromkeys(admitted, 2.0)}
        found.take_report(report(2, grown))
        assert not found.view().capture.ledger.reservations


def test_reservations_survive_a_restart_of_the_accountant(start: Start, tmp_path: Path) -> None:
    with AccountantStore(tmp_path) as store:
        found = service(LEDGER, store=store)
        found.take_report(report(1, {"p1": 4, "p2": 4}))
        assert start(found).allows(upsize("p1", "4", "6"))
    with AccountantStore(tmp_path) as store:
        again = start(service(LEDGER, store=store))
        response = again.ask(upsize("p2", "4", "5"))
        assert not response["allowed"]
        assert "reserved by admitted resizes 2" in response["status"]["message"]


def test_growth_that_cannot_be_recorded_is_not_admitted(start: Start, tmp_path: Path) -> None:
    with AccountantStore(tmp_path) as store:
        found = service(LEDGER, store=store)
        found.take_report(report(1, {"p1": 4}))
        hook = start(found)
        before = os.dup(store._descriptor)
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, store._descriptor)
        response = hook.ask(upsize("p1", "4", "6"))
        assert (response["allowed"], response["status"]["code"]) == (False, 500)
        os.dup2(before, store._descriptor)
        assert hook.allows(upsize("p1", "4", "6"))
        os.close(full)
        os.close(before)


def served_certificate(hook: Hook, ca: Pair) -> bytes:
    context = trusting(ca.certificate)
    connection = http.client.HTTPSConnection("127.0.0.1", hook.server.port, timeout=30, context=context)
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    found = connection.sock.getpeercert(binary_form=True)
    assert found is not None
    connection.close()
    return found


def test_a_renewed_certificate_is_served_to_the_next_client_and_a_broken_one_is_not(
    start: Start, ca: Pair, server_pair: Pair, tmp_path: Path
) -> None:
    used = Pair(tmp_path / "tls.crt", tmp_path / "tls.key")
    shutil.copy(server_pair.certificate, used.certificate)
    shutil.copy(server_pair.key, used.key)
    hook = start(pair=used)
    first, kept = served_certificate(hook, ca), hook.connect()
    assert post(kept, PATH, upsize("p1", "2", "1"))[0] == 200
    renewed = make_pair(ca, tmp_path, "renewed", "accountant")
    renewed.certificate.rename(used.certificate)
    assert served_certificate(hook, ca) == first, "half of a new pair is not used"
    renewed.key.rename(used.key)
    assert served_certificate(hook, ca) != first
    used.certificate.write_text("nonsense")
    assert served_certificate(hook, ca) != first
    assert post(kept, PATH, upsize("p1", "2", "1"))[0] == 200, "connections live on"


def test_files_that_are_no_certificate_are_refused_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "tls.crt"
    broken.write_text("nonsense")
    for path in (broken, tmp_path / "absent"):
        with pytest.raises(CertificateError, match=path.name) as refusal:
            ServerTLS(path, path).context()
        assert "PEM" in refusal.value.hint


def test_header_and_body_are_one_record(start: Start) -> None:
    """Two packets would cost 40 ms (Nagle's algorithm and delayed acknowledgements)."""
    connection = start(reporting(p1=1)).connect()
    connection.request("POST", PATH, upsize("p1", "1", "2"))
    head, _, body = connection.sock.recv(1 << 16).partition(b"\r\n\r\n")  # TLS hands out one record at a time
    assert head.startswith(b"HTTP/1.1 200")
    assert json.loads(body)["response"]["allowed"]


def test_a_body_that_does_not_arrive_is_not_waited_for(loop: ServingLoop, ca: Pair, server_pair: Pair) -> None:
    webhook = ResizeWebhook(service(), Tally(QUEUE_SERIES))
    tls = ServerTLS(server_pair.certificate, server_pair.key)
    limits = replace(WEBHOOK_LIMITS, body_seconds=0.2)
    server = HTTPServer(loop, "127.0.0.1", 0, {}, limits, posts={PATH: webhook.posting()}, tls=tls)
    server.start()
    hook = Hook(server, service(), Tally(QUEUE_SERIES), ca)
    connection = hook.connect()
    connection.putrequest("POST", PATH)
    connection.putheader("Content-Length", "100")
    connection.endheaders()
    assert connection.getresponse().status == 408
    connection = hook.connect()
    connection.putrequest("POST", PATH)
    connection.putheader("Content-Length", str(1 << 30))
    connection.endheaders()
    assert connection.getresponse().status == 413
    server.stop()
