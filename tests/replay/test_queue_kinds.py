"""Every recorded queue decision of the vectors beside the repository, both profiles."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.queues.options import Profile
from agent.replay.check import Tally, check
from agent.replay.context import Context
from agent.replay.kinds import handler
from agent.replay.runner import answer
from tests.shared import QUEUES, records

KINDS = ("fair_share", "reclaimable", "queue_order", "resize_admission", "capacity_policy")


@pytest.mark.shared
@pytest.mark.parametrize("profile", Profile)
@pytest.mark.parametrize("kind", KINDS)
def test_every_record_agrees(kind: str, profile: Profile) -> None:
    context, tally = Context(profile=profile), Tally()
    differences = [
        difference
        for record in records(QUEUES / f"{kind}.jsonl.gz")
        if (difference := check(record, answer(record, context), tally, profile))
    ]
    assert not differences[:5]
    assert tally.ok > 100
    assert not tally.known


@pytest.mark.shared
def test_where_upstream_has_several_answers_ours_is_one_of_them() -> None:
    decide = handler("fair_share")
    assert decide is not None
    for record in records(QUEUES / "fair_share_order_dependent.jsonl.gz"):
        ours = decide(record["input"], Context())["fairShare"]
        assert any(_close(ours, outcome.get("fairShare", outcome)) for outcome in record["outcomes"]), record["id"]


def _close(ours: Mapping[str, Mapping[str, float]], theirs: Mapping[str, Mapping[str, float]]) -> bool:
    return all(
        amount == pytest.approx(theirs[queue][resource], rel=1e-9, abs=1e-9)
        for queue, amounts in ours.items()
        for resource, amount in amounts.items()
    )


@pytest.mark.parametrize(
    ("kind", "record_input", "output"),
    [
        (
            "fair_share",
            {
                "total": {"gpu": 3},
                "kValue": 1.0,
                "queues": [
                    {"name": "a", "gpu": {"deserved": 1, "limit": -1, "overQuotaWeight": 1, "request": 3, "usage": 0}},
                    {
                        "name": "b",
                        "gpu": {"deserved": 1, "limit": -1, "overQuotaWeight": 1, "request": 0.5, "usage": 0},
                    },
                ],
            },
            {"fairShare": {"a": {"cpu": 0, "memory": 0, "gpu": 2.5}, "b": {"cpu": 0, "memory": 0, "gpu": 0.5}}},
        ),
        (
            "queue_order",
            {
                "total": {},
                "left": {"queue": {"name": "l", "priority": 1, "created": 2}, "job": None, "victims": []},
                "right": {"queue": {"name": "r", "priority": 2, "created": 1}, "job": None, "victims": []},
            },
            {
                "off": {"result": 1, "swapped": -1, "step": "priority"},
                "on": {"result": 1, "swapped": -1, "step": "inQuotaPriority"},
            },
        ),
        (
            "capacity_policy",
            {"queues": [], "job": {"queue": "gone", "preemptible": False, "tasks": [{"cpu": 5}]}},
            {"jobOverQueueCapacity": {"schedulable": True}, "nonPreemptibleOverQuota": {"schedulable": True}},
        ),
    ],
)
def test_a_small_record_of_each_form(kind: str, record_input: dict[str, object], output: dict[str, object]) -> None:
    assert answer({"kind": kind, "id": "x", "input": record_input}, Context())["output"] == output


def test_a_reclaimer_of_an_unknown_queue_is_an_error_that_names_it() -> None:
    record = {
        "queues": [],
        "reclaimer": {"queue": "gone", "preemptible": True, "resources": {}},
        "victims": [],
    }
    line = answer({"kind": "reclaimable", "id": "x", "input": record}, Context())
    assert "gone" in line["output"]["error"]


def test_an_unknown_profile_is_an_error() -> None:
    line = answer({"kind": "fair_share", "id": "x", "input": {"queues": [], "total": {}}}, Context(profile="1.0"))
    assert "1.0" in line["output"]["error"]
