"""Metrics that are kept from one scrape to the next: always what one who has kept nothing would write."""

from __future__ import annotations

from typing import Any

import pytest

from agent.formats.pods import decode_pod
from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.queues.accountant import AccountantOptions
from agent.queues.ledger import LedgerOptions
from agent.serve.accountant import AccountantService
from agent.serve.queue_gauges import QueueGauges
from agent.serve.queue_metrics import QueueMetrics
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.series import Tally
from tests.serve.accountants import Clock, node, pod, pod_group, queue, report, service

TREE = [queue("dept"), queue("leaf", "dept", 8000, 4000), queue("other", "dept")]


def objects(*queues: dict[str, Any]) -> QueueObjects:
    return decode_objects([*(queues or TREE), pod_group("pg", "leaf"), node("n1"), node("n2")])


def display_name(document: dict[str, Any], name: str) -> dict[str, Any]:
    return {**document, "spec": {**document["spec"], "displayName": name}}


class Scraped:
    """An accountant with a ledger, and metrics that live as long as it does."""

    def __init__(self) -> None:
        self.clock = Clock()
        options = AccountantOptions(ledger=LedgerOptions(), silent_seconds=10)
        self.service: AccountantService = service(options, clock=self.clock, objects=objects())
        self.tally = Tally(QUEUE_SERIES)
        self.metrics = QueueMetrics(self.service, self.tally)

    def text(self) -> str:
        kept = self.metrics.text().decode()
        assert kept == QueueMetrics(self.service, self.tally).text().decode()
        return kept


@pytest.fixture
def scraped() -> Scraped:
    """Both nodes have reported, and were scraped."""
    found = Scraped()
    for name in ("n1", "n2"):
        found.service.take_report(report(1, {"p1": 2.0} if name == "n1" else {}, node_name=name))
    found.text()
    return found


def test_reports_are_seen(scraped: Scraped) -> None:
    assert 'pinfold_queue_allocated{queue="leaf",resource="cpu"} 2\n' in scraped.text()
    scraped.service.take_report(report(2, {"p1": 3.5}))
    text = scraped.text()
    assert 'pinfold_queue_allocated{queue="leaf",resource="cpu"} 3.5\n' in text
    assert 'pinfold_queue_allocated{queue="dept",resource="cpu"} 3.5\n' in text


def test_a_reservation_is_seen_and_its_end(scraped: Scraped) -> None:
    old, new = decode_pod(pod("p1", "2")), decode_pod(pod("p1", "3"))
    assert scraped.service.resize(old, new).answer.allowed
    assert 'pinfold_queue_reserved{queue="dept",resource="cpu"} 1\n' in scraped.text()
    scraped.service.take_report(report(2, {"p1": 3.0}))
    assert 'pinfold_queue_reserved{queue="dept",resource="cpu"} 0\n' in scraped.text()


def test_silence_is_seen_and_its_end(scraped: Scraped) -> None:
    assert "pinfold_queue_stale{" not in scraped.text()
    scraped.clock.now += 11
    scraped.service.tick()
    assert 'pinfold_queue_stale{queue="dept",resource="cpu"} 2\n' in scraped.text()
    scraped.service.take_report(report(2, {"p1": 2.0}))
    assert "pinfold_queue_stale{" not in scraped.text()


def test_queues_that_come_and_go_are_seen(scraped: Scraped) -> None:
    scraped.service.take_objects(objects(*TREE, queue("new", "dept")))
    assert 'pinfold_queue_limit{queue="new",resource="cpu"} -1\n' in scraped.text()
    scraped.service.take_objects(objects(*TREE[:2]))
    text = scraped.text()
    assert 'queue="new"' not in text
    assert 'queue="other"' not in text


def test_another_display_name_limit_or_parent_is_seen(scraped: Scraped) -> None:
    scraped.service.take_objects(objects(TREE[0], display_name(queue("leaf", "dept", 9000), "Leaves"), TREE[2]))
    text = scraped.text()
    assert 'queue_info{queue_name="leaf",queue_metadata_name="leaf",queue_display_name="Leaves"} 1\n' in text
    assert 'queue_display_name="leaf"' not in text
    assert 'pinfold_queue_limit{queue="leaf",resource="cpu"} 9\n' in text
    scraped.service.take_objects(objects(TREE[0], queue("leaf", "other"), TREE[2]))
    assert 'pinfold_queue_allocated{queue="other",resource="cpu"} 2\n' in scraped.text()


def test_families_of_what_has_not_changed_are_not_written_again(scraped: Scraped) -> None:
    gauges = QueueGauges()
    before = gauges.text(scraped.service.view())
    scraped.service.take_report(report(2, {"p1": 3.0}))
    after = gauges.text(scraped.service.view())
    anew = [text.split()[2].decode() for text, old in zip(after, before, strict=True) if text is not old]
    assert "pinfold_queue_allocated" in anew
    assert not {"queue_info", "pinfold_queue_limit", "pinfold_queue_quota", "pinfold_queue_stale"} & set(anew)
