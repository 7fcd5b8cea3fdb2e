"""The queue fields that several kinds of queue records share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agent.model.queue import DEFAULT_QUEUE_PRIORITY, RESOURCES, Queue, QueueShare, ResourceQuantities
from agent.replay.context import JSONObject


def quantities(record: Mapping[str, Any] | None) -> ResourceQuantities:
    """`{cpu, memory, gpu}`; absent is 0."""
    record = record or {}
    return ResourceQuantities(*(float(record.get(resource) or 0) for resource in RESOURCES))


def queue_share(record: JSONObject) -> QueueShare:
    """A queue with per-resource objects; a number that this kind of record does not carry is 0."""

    def column(key: str) -> ResourceQuantities:
        return ResourceQuantities(*(float((record.get(resource) or {}).get(key, 0)) for resource in RESOURCES))

    queue = Queue(
        name=record["name"],
        parent=record.get("parent") or "",
        priority=DEFAULT_QUEUE_PRIORITY if record.get("priority") is None else record["priority"],
        created=record.get("created") or 0,
        deserved=column("deserved"),
        limit=column("limit"),
        over_quota_weight=column("overQuotaWeight"),
    )
    return QueueShare(
        queue,
        allocated=column("allocated"),
        allocated_non_preemptible=column("allocatedNonPreemptible"),
        request=column("request"),
        usage=column("usage"),
        fair_share=column("fairShare"),
    )


def queue_shares(records: Iterable[JSONObject]) -> dict[str, QueueShare]:
    """`queue_share` by name."""
    return {record["name"]: queue_share(record) for record in records}
