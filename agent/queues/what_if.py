"""Questions to an accountant as decoded JSON: may this pod be resized, who would be reclaimed for this job.

Over gRPC they come as messages whose JSON form is the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.errors import AgentError, BadInputError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.formats.pods import decode_pod
from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.queue import MAX_AMOUNT, RESOURCES, ResourceQuantities
from agent.queues.jobs import Job
from agent.queues.options import QueueOptions

MAX_BYTES = 4 * 1024 * 1024
MAX_ROUNDS = 1000
DEFAULT_ROUNDS = 100

_MAX_NAME = 600
_MAX_SIZES = 1000

FindPod = Callable[[str], Pod | None]  # by "namespace/name"


class QuestionError(BadInputError):
    """A question that cannot be understood."""

    hint = "docs/queues.md lists the questions"


@dataclass(frozen=True, slots=True)
class ReclaimQuestion:
    """job: the name of a known one, or None and `made` is one made up for the question."""

    job: str
    made: Job | None
    options: QueueOptions


def parse_question(body: bytes) -> object:
    """The document that the JSON text of a question is. Raises QuestionError."""
    if len(body) > MAX_BYTES:
        raise QuestionError(f"{len(body)} bytes, at most {MAX_BYTES} are read")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise QuestionError(f"not JSON: {str(error)[:200]}") from error


def decode_resize_question(document: object, find: FindPod) -> tuple[Pod, Pod]:
    """{"oldPod": Pod, "newPod": Pod}, or {"pod": "namespace/name", "set": {"CONTAINER.cpu": "4"}} of a known pod.

    Raises QuestionError.
    """
    try:
        root = KubeField(document)
        if root.get("oldPod").present:
            return _pod(root.get("oldPod")), _pod(root.get("newPod"))
        named = root.get("pod")
        if (old := find(named.text(_MAX_NAME))) is None:
            raise named.error("no such pod is known; give oldPod and newPod")
        sizes = {target: amount.text(_MAX_NAME) for target, amount in root.get("set").entries(_MAX_SIZES)}
        return old, resized(old, sizes)
    except KubeFieldError as error:
        raise QuestionError(str(error), hint=error.hint) from error


def resized(pod: Pod, sizes: Mapping[str, str]) -> Pod:
    """The pod with other requests. sizes: by "CONTAINER.cpu" or "CONTAINER.memory", without CONTAINER pod-level.

    Raises AgentError.
    """
    for target, amount in sizes.items():
        container, _, resource = target.rpartition(".")
        if resource not in ("cpu", "memory"):
            raise QuestionError(f"{target!r} is not CONTAINER.cpu or CONTAINER.memory")
        pod = _with_request(pod, container, resource, Quantity.parse(amount))
    return pod


def _with_request(pod: Pod, container: str, resource: str, amount: Quantity) -> Pod:
    if not container:
        if pod.resources is None:
            raise BadInputError(f"pod {pod.namespaced_name} has no pod-level resources", hint="name a container")
        requests = {**pod.resources.requests, resource: amount}
        return replace(pod, resources=replace(pod.resources, requests=requests))
    if container not in [each.name for each in pod.containers]:
        names = ", ".join(each.name for each in pod.containers)
        raise BadInputError(f"pod {pod.namespaced_name} has no container {container}", hint=f"its containers: {names}")
    containers = tuple(
        replace(each, resources=replace(each.resources, requests={**each.resources.requests, resource: amount}))
        if each.name == container
        else each
        for each in pod.containers
    )
    return replace(pod, containers=containers)


def decode_reclaim_question(document: object, options: QueueOptions) -> ReclaimQuestion:
    """{"job": "namespace/podgroup"} or {"queue", "preemptible", "resources": {"cpu": millicores, ...}}.

    With "queuePriorityInQuotaReclaim" or "forbidTakeBack" (booleans) instead of what the accountant is set to.
    Raises QuestionError.
    """
    try:
        root = KubeField(document)
        options = _with_flags(root, options)
        if name := root.get("job").text(_MAX_NAME):
            return ReclaimQuestion(name, None, options)
        queue = root.get("queue")
        if not queue.text(_MAX_NAME):
            raise queue.error("required, or job")
        preemptible = root.get("preemptible").boolean()
        amounts = ResourceQuantities(*(_number(root.get("resources").get(each)) for each in RESOURCES))
        job = Job("what-if", queue.text(_MAX_NAME), preemptible is not False, amounts)
        return ReclaimQuestion(job.name, job, options)
    except KubeFieldError as error:
        raise QuestionError(str(error), hint=error.hint) from error


def decode_simulation_question(document: object, options: QueueOptions) -> tuple[int, QueueOptions]:
    """{"rounds": 100}, with the same flags as a reclaim question. Raises QuestionError."""
    try:
        root = KubeField(document)
        rounds = root.get("rounds").integer()
        if rounds is not None and not 1 <= rounds <= MAX_ROUNDS:
            raise root.get("rounds").error(f"must be 1 to {MAX_ROUNDS}")
        return rounds or DEFAULT_ROUNDS, _with_flags(root, options)
    except KubeFieldError as error:
        raise QuestionError(str(error), hint=error.hint) from error


def _with_flags(root: KubeField, options: QueueOptions) -> QueueOptions:
    flag, forbid = root.get("queuePriorityInQuotaReclaim").boolean(), root.get("forbidTakeBack").boolean()
    return replace(
        options,
        queue_priority_in_quota_reclaim=options.queue_priority_in_quota_reclaim if flag is None else flag,
        forbid_take_back=options.forbid_take_back if forbid is None else forbid,
    )


def _pod(field: KubeField) -> Pod:
    if not isinstance(field.value, dict):
        raise field.error("must be a pod")
    try:
        return decode_pod(field.value)
    except AgentError as error:
        raise field.error(str(error)) from error


def _number(field: KubeField) -> float:
    value = field.value
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < MAX_AMOUNT:
        raise field.error("must be a number of 0 or more: millicores, bytes, devices")
    return float(value)
