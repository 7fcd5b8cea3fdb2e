"""Records of kind `capacity_policy`: the allocate-time limit and quota checks of one job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.queues.capacity import CapacityAnswer, Task, job_over_capacity, non_preemptible_over_quota, requested_by
from agent.queues.options import Profile, QueueOptions
from agent.replay.context import Context, JSONObject
from agent.replay.queue_records import quantities, queue_shares


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """Both checks of one job."""
    shares = queue_shares(record_input["queues"])
    job = record_input["job"]
    tasks = [
        Task(quantities(task), task.get("gpuMemoryMiB") or 0, task.get("gpuDevices") or 0) for task in job["tasks"]
    ]
    requested = requested_by(tasks, record_input.get("maxNodeGPUMemoryMiB"))
    options = QueueOptions(profile=Profile.parse(context.profile))
    preemptible = job["preemptible"]
    over_capacity = job_over_capacity(shares, job["queue"], requested, preemptible=preemptible, options=options)
    over_quota = non_preemptible_over_quota(shares, job["queue"], requested, preemptible=preemptible, options=options)
    return {"jobOverQueueCapacity": _answer(over_capacity), "nonPreemptibleOverQuota": _answer(over_quota)}


def _answer(answer: CapacityAnswer) -> Mapping[str, Any]:
    if (step := answer.failed) is None:
        return {"schedulable": True}
    return {
        "schedulable": False,
        "reason": answer.reason,
        "queue": step.queue,
        "resource": step.resource.value if step.resource is not None else "",
        "message": answer.message,
    }
