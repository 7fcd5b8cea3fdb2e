"""Records of kind `resize_admission`: pods/resize admitted or rejected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.formats.pods import decode_pod
from agent.formats.queue_objects import decode_pod_group, decode_priority_class, decode_queue
from agent.queues.encode import number
from agent.queues.resize_admission import Rejection, ResizeOptions, decide_resize
from agent.queues.workloads import Directory
from agent.replay.context import Context, JSONObject


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """Upstream's rule in both profiles: pod-level requests do not count here."""
    options = record_input["options"]
    directory = Directory.of(
        map(decode_queue, record_input["queues"]),
        map(decode_pod_group, record_input["podGroups"]),
        map(decode_priority_class, record_input["priorityClasses"]),
    )
    answer = decide_resize(
        decode_pod(record_input["oldPod"]),
        decode_pod(record_input["newPod"]),
        directory,
        ResizeOptions(
            scheduler_name=options["schedulerName"],
            validate_quota=options["validateQuota"],
            block_upsize_on_bounded_queues=options["blockUpsizeOnBoundedQueues"],
            pod_level=False,
        ),
    )
    output: dict[str, Any] = {
        "allowed": answer.allowed,
        "delta": {name: str(amount) for name, amount in answer.delta.items()},
        "podAllocated": answer.pod_allocated,
    }
    if answer.preemptible is not None:
        output["preemptible"] = answer.preemptible
    if answer.rejection is not None:
        output["message"] = answer.message
        output["rejection"] = _rejection(answer.rejection)
    return output


def _rejection(rejection: Rejection) -> Mapping[str, Any]:
    return {
        "queue": rejection.queue,
        "resource": rejection.resource.value,
        "boundKind": rejection.bound_kind.value,
        "mode": rejection.mode.value,
        "allocatedKind": rejection.allocated_kind,
        "allocated": rejection.allocated,
        "delta": rejection.delta,
        "bound": number(rejection.bound),
    }
