from __future__ import annotations

from typing import Any

from agent.formats.queue_objects import decode_objects
from agent.queues.options import Profile, QueueOptions
from agent.queues.snapshot import take_snapshot
from agent.queues.text import status_lines
from agent.queues.violations import violations
from tests.queues.build import amounts

UNBOUNDED = {resource: {"quota": -1, "limit": -1} for resource in ("cpu", "memory", "gpu")}


def queue_object(name: str, parent: str = "", status: dict[str, Any] | None = None, **resources: Any) -> dict[str, Any]:
    spec = {"parentQueue": parent, "resources": {**UNBOUNDED, **resources}}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def group_object(name: str, queue: str, min_member: int = 1) -> dict[str, Any]:
    spec = {"queue": queue, "minMember": min_member}
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": spec,
    }


def pod_object(name: str, group: str, cpu: str, phase: str = "Running") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": {"pod-group-name": group}}
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
        "status": {"phase": phase},
    }


NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "nvidia.com/gpu": "2"}},
}


def test_pods_are_charged_and_the_nodes_divided() -> None:
    documents = [
        NODE,
        queue_object("top"),
        queue_object("a", "top"),
        group_object("pg", "a", min_member=2),
        *(pod_object(f"p{number}", "pg", "1") for number in range(4)),
        pod_object("p9", "pg", "2", "Pending"),
        pod_object("stray", "gone", "1"),
    ]
    snapshot = take_snapshot(decode_objects(documents), QueueOptions())
    assert snapshot.total == amounts(cpu=8000, memory=8 * 2**30, gpu=2)
    assert snapshot.shares["top"].allocated.cpu == 4000
    assert snapshot.shares["a"].request.cpu == 6000
    assert snapshot.shares["a"].fair_share.cpu == 6000
    assert snapshot.unknown[""].pods == 1
    job = next(job for job in snapshot.jobs if job.name == "ns/pg")
    assert [piece.cpu for piece in job.running] == [1000, 1000, 2000]  # elastic pods first, then the gang as one
    assert job.pending.cpu == 2000


def test_without_pods_the_queues_status_counts() -> None:
    status = {
        "allocated": {"cpu": "3", "nvidia.com/gpu": "500m", "nvidia.com/mig-2g.10gb": "1"},
        "requested": {"cpu": "5"},
    }
    snapshot = take_snapshot(decode_objects([NODE, queue_object("a", status=status)]), QueueOptions())
    assert snapshot.from_status
    assert snapshot.shares["a"].allocated == amounts(cpu=3000, gpu=2.5)
    assert snapshot.shares["a"].fair_share.cpu == 5000


def test_the_page_shows_what_needs_attention() -> None:
    documents = [
        queue_object("a", cpu={"quota": 1000, "limit": 2000}),
        queue_object("lost", "nowhere"),
        group_object("pg", "a"),
        pod_object("p", "pg", "3"),
        pod_object("q", "gone", "1"),
    ]
    snapshot = take_snapshot(decode_objects(documents), QueueOptions(), amounts(cpu=8000))
    text = "\n".join(status_lines(snapshot, violations(snapshot.shares, Profile.V0_18)))
    assert "over: queue a: cpu allocated 3 cores, limit 2 cores" in text
    assert "uncharged: 1 pod of no queue" in text
    assert "refused: queue lost: parent nowhere does not exist" in text
    assert "####" in text
