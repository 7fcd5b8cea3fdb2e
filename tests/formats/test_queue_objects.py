from __future__ import annotations

from typing import Any

import pytest

from agent.formats.queue_objects import QueueObjectError, decode_objects, decode_pod_group, decode_queue
from agent.model.queue import PodGroup, Preemptibility, PriorityClass, ResourceQuantities


def obj(kind: str, name: object = "a", api: str = "scheduling.run.ai/v2", **more: object) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, **more}


def test_a_queue_is_read_in_the_schedulers_units() -> None:
    cpu = {"quota": 1500, "limit": -1, "overQuotaWeight": 2}
    spec = {
        "parentQueue": "top",
        "priority": 7,
        "displayName": "A",
        "resources": {"cpu": cpu, "memory": {"quota": 8589.934591, "limit": -7}, "gpu": {"quota": 0.5}},
    }
    status = {"allocated": {"cpu": "1500m", "memory": "1Gi"}}
    document = obj("Queue", spec=spec, status=status)
    document["metadata"]["creationTimestamp"] = "1970-01-01T00:01:00Z"
    queue = decode_queue(document)
    assert (queue.name, queue.parent, queue.priority, queue.created, queue.display_name) == ("a", "top", 7, 60, "A")
    assert queue.deserved == ResourceQuantities(1500.0, 8589.934591 * 1e6, 0.5)
    assert queue.limit == ResourceQuantities(-1.0, -1.0, 0.0)  # any negative memory is unlimited; an omitted limit is 0
    assert queue.over_quota_weight == ResourceQuantities(2.0, 0.0, 0.0)
    assert queue.has_resources
    assert queue.status.allocated["memory"].value() == 2**30


def test_a_queue_without_resources_says_so_and_has_default_priority() -> None:
    queue = decode_queue(obj("Queue"))
    assert not queue.has_resources
    assert queue.priority == 100
    assert decode_queue(obj("Queue", spec={"resources": {}})).has_resources


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (obj("Queue", ""), "metadata.name"),
        (obj("Queue", api="scheduling.run.ai/v3"), "apiVersion"),
        (obj("Queue", spec={"resources": {"cpu": {"quota": "lots"}}}), "spec.resources.cpu.quota"),
        (obj("Queue", spec={"resources": {"cpu": {"limit": float("nan")}}}), "spec.resources.cpu.limit"),
        (obj("Queue", spec={"resources": {"gpu": {"limit": 1e300}}}), "spec.resources.gpu.limit"),
        (obj("Queue", spec={"resources": {"gpu": {"overQuotaWeight": -1}}}), "spec.resources.gpu.overQuotaWeight"),
        (obj("Queue", spec={"resources": {"gpu": {"quota": True}}}), "spec.resources.gpu.quota"),
        (obj("Queue", spec={"priority": "high"}), "spec.priority"),
        (obj("Queue", spec=[]), "spec"),
        (obj("Queue", status={"allocated": {"cpu": "many"}}), "status.allocated"),
        ({**obj("Queue"), "metadata": {"name": "a", "creationTimestamp": "yesterday"}}, "metadata.creationTimestamp"),
    ],
)  # fmt: skip
def test_a_wrong_queue_is_refused_by_name_and_field(document: dict[str, Any], told: str) -> None:
    with pytest.raises(QueueObjectError) as caught:
        decode_queue(document)
    assert told in str(caught.value)
    assert caught.value.hint
    assert ("Queue a" in str(caught.value)) == bool(document["metadata"]["name"])


def test_an_unknown_preemptibility_leaves_it_to_the_priority() -> None:
    spec = {"queue": "q", "preemptibility": "semi-preemptible", "priorityClassName": "train"}
    document = obj("PodGroup", api="scheduling.run.ai/v2alpha2", spec=spec)
    assert decode_pod_group(document) == PodGroup("default", "a", "q", "train", Preemptibility.UNSET)


def test_one_bad_object_never_stops_the_others() -> None:
    documents: list[object] = [
        obj("Queue", "good"),
        obj("Queue", "bad", spec={"resources": 3}),
        {"kind": "QueueList", "apiVersion": "scheduling.run.ai/v2", "items": [{"metadata": {"name": "listed"}}, 5]},
        {"kind": "List", "apiVersion": "v1", "items": [obj("PodGroup", "pg", "scheduling.run.ai/v2alpha2")]},
        {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "pc"}, "value": 5},
        {"kind": "PriorityClass", "apiVersion": "scheduling.k8s.io/v1", "metadata": {"name": "no-value"}},
        {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": {"containers": []}},
        {"kind": "Queue", "apiVersion": "scheduling.volcano.sh/v1beta1", "metadata": {"name": "another scheduler's"}},
        "no object",
        None,
    ]
    found = decode_objects(documents)
    assert [each.name for each in found.queues] == ["good", "listed"]
    assert [each.name for each in found.pod_groups] == ["pg"]
    assert found.priority_classes == (PriorityClass("pc", 5),)
    assert [each.name for each in found.pods] == ["p"]
    assert len(found.problems) == 2
    assert "bad" in str(found.problems[0])
    assert "no-value" in str(found.problems[1])
