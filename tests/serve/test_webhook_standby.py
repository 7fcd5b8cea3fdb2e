"""The webhook of a replica that does not answer: it judges no growth, whatever its own accounts say, and says why."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from agent.queues.accountant import AccountantOptions
from agent.queues.ledger import LedgerOptions
from agent.serve.accountant import AccountantService
from agent.serve.http_messages import Request
from agent.serve.queue_series import QUEUE_SERIES, REVIEWS
from agent.serve.series import Tally
from agent.serve.webhook import PATH, ResizeWebhook
from tests.serve.accountants import pod, report, review, service, upsize

WHY = "lease pinfold/queues is held by b"


def accounts() -> AccountantService:
    """Of 10 cores 8 are in use."""
    found = service(AccountantOptions(ledger=LedgerOptions()))
    found.take_report(report(1, {"p1": 4.0, "p2": 4.0}))
    return found


def ask(
    found: AccountantService, body: bytes, standby: Callable[[], str], tally: Tally | None = None, *, fail_open: bool
) -> dict[str, Any]:
    hook = ResizeWebhook(found, tally or Tally(QUEUE_SERIES), fail_open=fail_open, standby=standby)
    answer = asyncio.run(hook.answer(Request(PATH, method="POST", body=body)))
    response: dict[str, Any] = json.loads(answer.body)["response"]
    return response


@pytest.mark.parametrize("after", ["5", "99"], ids=["would fit", "would not fit"])
def test_growth_is_not_judged_from_its_own_ledger(after: str) -> None:
    found, tally = accounts(), Tally(QUEUE_SERIES)
    opened = ask(found, upsize("p1", "4", after), lambda: WHY, tally, fail_open=True)
    assert opened["allowed"]
    assert opened["warnings"] == [f"pinfold: admitted without a check of its queues: {WHY}"]
    closed = ask(found, upsize("p1", "4", after), lambda: WHY, tally, fail_open=False)
    assert (closed["allowed"], closed["status"]["code"]) == (False, 503)
    assert closed["status"]["message"] == f"resize rejected: pod prod/p1: cannot be judged: {WHY}; try again later"
    assert found.view().capture.ledger.reservations == {}
    (reviews,) = [counts for series, counts in tally.counters() if series.name == REVIEWS]
    counts = {labels: count for labels, count in reviews.items() if count}
    assert counts == {("admitted", "STANDBY"): 1, ("rejected", "STANDBY"): 1}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(review(pod("p1", "4"), pod("p1", "1")), id="downsize"),
        pytest.param(upsize("p1", "4", "99", subResource="status"), id="no resize"),
        pytest.param(review(pod("p1", "4", scheduler="other"), pod("p1", "99", scheduler="other")), id="not KAI's"),
    ],
)
def test_what_needs_no_accounts_passes(body: bytes) -> None:
    response = ask(accounts(), body, lambda: WHY, fail_open=False)
    assert response["allowed"]
    assert "warnings" not in response


@pytest.mark.parametrize(
    "said", [pytest.param(["", WHY], id="lost while it decided"), pytest.param([WHY, ""], id="got while it decided")]
)
def test_a_decision_that_was_begun_or_ended_on_standby_is_none(said: list[str]) -> None:
    left = iter(said)
    response = ask(accounts(), upsize("p1", "4", "5"), lambda: next(left), fail_open=False)
    assert not response["allowed"]
    assert WHY in response["status"]["message"]
