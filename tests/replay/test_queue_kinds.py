"""Every recorded queue decision of the vectors beside the repository, both profiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def resize_record(cpu: str, *, group: bool = True, preemptible: bool = True) -> dict[str, Any]:
    """A pod of one core in a queue that holds 2 of its 4 cores, 1 of them not preemptible of a quota of 2, and wants `cpu`."""

    def pod(amount: str) -> dict[str, Any]:
        annotations = {"pod-group-name": "pg"} if group else {}
        containers = [{"name": "c", "resources": {"requests": {"cpu": amount}}}]
        scheduled = [{"type": "PodScheduled", "status": "True"}]
        return {
            "metadata": {"name": "p", "namespace": "ns", "annotations": annotations},
            "spec": {"schedulerName": "kai-scheduler", "nodeName": "n", "containers": containers},
            "status": {"phase": "Running", "conditions": scheduled},
        }

    queue = {
        "metadata": {"name": "leaf"},
        "spec": {"resources": {"cpu": {"quota": 2000, "limit": 4000}, "memory": {"quota": -1, "limit": -1}}},
        "status": {"allocated": {"cpu": "2"}, "allocatedNonPreemptible": {"cpu": "1"}},
    }
    spec = {"queue": "leaf", "preemptibility": "preemptible" if preemptible else "non-preemptible"}
    return {
        "options": {"schedulerName": "kai-scheduler", "validateQuota": True, "blockUpsizeOnBoundedQueues": False},
        "queues": [queue],
        "podGroups": [{"metadata": {"name": "pg", "namespace": "ns"}, "spec": spec}],
        "priorityClasses": [],
        "oldPod": pod("1"),
        "newPod": pod(cpu),
    }


@pytest.mark.parametrize(
    ("record_input", "output"),
    [
        (resize_record("3"), {"allowed": True, "delta": {"cpu": "2"}, "podAllocated": True, "preemptible": True}),
        (resize_record("1"), {"allowed": True, "delta": {}, "podAllocated": True, "preemptible": True}),
        (resize_record("9", group=False), {"allowed": True, "delta": {"cpu": "8"}, "podAllocated": True}),
        (
            resize_record("3500m"),
            {
                "allowed": False,
                "rejection": {
                    "queue": "leaf", "resource": "cpu", "boundKind": "limit", "mode": "capacity",
                    "allocatedKind": "Allocated", "allocated": 2000, "delta": 2500, "bound": 4000,
                },
            },
        ),
        (
            resize_record("3", preemptible=False),
            {
                "allowed": False,
                "preemptible": False,
                "rejection": {
                    "queue": "leaf", "resource": "cpu", "boundKind": "quota", "mode": "capacity",
                    "allocatedKind": "AllocatedNonPreemptible", "allocated": 1000, "delta": 2000, "bound": 2000,
                },
            },
        ),
    ],
)  # fmt: skip
def test_a_resize_is_answered_with_the_first_bound_it_passes(
    record_input: dict[str, Any], output: dict[str, Any]
) -> None:
    answered = answer({"kind": "resize_admission", "id": "x", "input": record_input}, Context())["output"]
    assert {key: answered.get(key) for key in output} == output
    grouped = "pod-group-name" in record_input["newPod"]["metadata"]["annotations"]
    assert ("preemptible" in answered) is grouped  # nobody knows it of a pod without a group
    assert ("message" in answered) is ("rejection" in answered) is (not answered["allowed"])


def gpus(name: str, deserved: float, allocated: float, priority: int = 100) -> dict[str, Any]:
    amounts = {"deserved": deserved, "limit": -1, "allocated": allocated, "fairShare": deserved}
    return {"name": name, "priority": priority, "gpu": amounts}


def test_a_reclaim_is_answered_for_both_values_of_the_flag() -> None:
    record_input: dict[str, Any] = {
        "queues": [gpus("poor", 4, 1), gpus("rich", 4, 7), gpus("under", 4, 3)],
        "reclaimer": {"queue": "poor", "preemptible": True, "resources": {"gpu": 2}},
        "victims": [{"queue": "rich", "resources": [{"gpu": 2}]}, {"queue": "under", "resources": [{"gpu": 1}]}],
    }
    answered = answer({"kind": "reclaimable", "id": "x", "input": record_input}, Context())["output"]
    assert answered["canReclaimResources"] is True
    assert answered["leveled"] == [
        {"victim": "rich", "reclaimerSide": "poor", "victimSide": "rich"},
        {"victim": "under", "reclaimerSide": "poor", "victimSide": "under"},
    ]
    for flag in ("off", "on"):
        assert answered[flag]["filterVictim"] == {"rich": True, "under": False}
        assert answered[flag]["reclaimable"] is False  # not while a queue under its quota is among the victims
    without = {**record_input, "victims": record_input["victims"][:1]}
    assert (
        answer({"kind": "reclaimable", "id": "x", "input": without}, Context())["output"]["on"]["reclaimable"] is True
    )
