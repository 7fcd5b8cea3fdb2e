"""KAI-Scheduler's objects as JSON -> values: Queue (scheduling.run.ai/v2), PodGroup (v2alpha2), and PriorityClass.

Units change here: a Queue's memory is written in megabytes (10^6 bytes) and kept in bytes; a negative one is unlimited.
An omitted number is 0, which is a hard bound. Status amounts are ordinary Kubernetes quantities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from agent.errors import AgentError, BadInputError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.formats.pods import decode_pod
from agent.formats.resource_lists import decode_resources
from agent.model.pod import Pod
from agent.model.queue import (
    DEFAULT_QUEUE_PRIORITY,
    MAX_AMOUNT,
    RESOURCES,
    UNLIMITED,
    ClusterNode,
    PodGroup,
    Preemptibility,
    PriorityClass,
    Queue,
    QueueStatus,
    ResourceQuantities,
)

QUEUE_API = "scheduling.run.ai/v2"
POD_GROUP_API = "scheduling.run.ai/v2alpha2"
PRIORITY_CLASS_API = "scheduling.k8s.io/v1"
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"  # MiB of one GPU of the node
MEGABYTE = 1_000_000  # the unit of a Queue's memory numbers

_MAX_TEXT = 4096
_MAX_ITEMS = 1_000_000  # objects in one List


class QueueObjectError(BadInputError):
    """An object that cannot be read: names its kind, its name and the field."""

    def __init__(self, kind: str, name: str, error: KubeFieldError) -> None:
        super().__init__(f"{kind} {name or 'without a name'}: {error}", hint=error.hint)
        self.kind = kind
        self.name = name


@dataclass(frozen=True, slots=True)
class QueueObjects:
    """What a collection of objects held for queues. problems: the refused ones. Other kinds are passed over."""

    queues: tuple[Queue, ...] = ()
    pod_groups: tuple[PodGroup, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    pods: tuple[Pod, ...] = ()
    nodes: tuple[ClusterNode, ...] = ()
    problems: tuple[AgentError, ...] = ()


def decode_objects(documents: Iterable[object]) -> QueueObjects:
    """Read every Queue, PodGroup, PriorityClass, Pod and Node, also inside Lists. One bad object never stops the
    others.
    """
    found: list[Queue | PodGroup | PriorityClass | Pod | ClusterNode] = []
    problems: list[AgentError] = []
    for document in documents:
        for item in _items(document):
            try:
                value = _decode(item)
            except AgentError as error:
                problems.append(error)
                continue
            if value is not None:
                found.append(value)
    return QueueObjects(
        queues=tuple(each for each in found if isinstance(each, Queue)),
        pod_groups=tuple(each for each in found if isinstance(each, PodGroup)),
        priority_classes=tuple(each for each in found if isinstance(each, PriorityClass)),
        pods=tuple(each for each in found if isinstance(each, Pod)),
        nodes=tuple(each for each in found if isinstance(each, ClusterNode)),
        problems=tuple(problems),
    )


def _items(document: object) -> Iterator[Mapping[str, object]]:
    if not isinstance(document, Mapping):
        return
    if isinstance(items := document.get("items"), list):
        # Elements of a typed list ("QueueList") carry no kind of their own.
        inherited = {
            "apiVersion": document.get("apiVersion"),
            "kind": str(document.get("kind", "")).removesuffix("List"),
        }
        for item in items[:_MAX_ITEMS]:
            if isinstance(item, Mapping):
                yield {**inherited, **item} if inherited["kind"] else item
        return
    yield document


def _decode(document: Mapping[str, object]) -> Queue | PodGroup | PriorityClass | Pod | ClusterNode | None:
    match document.get("apiVersion"), document.get("kind"):
        case (str(version), "Queue") if version.startswith("scheduling.run.ai/"):
            return decode_queue(document)
        case (str(version), "PodGroup") if version.startswith("scheduling.run.ai/"):
            return decode_pod_group(document)
        case (str(version), "PriorityClass") if version.startswith("scheduling.k8s.io/"):
            return decode_priority_class(document)
        case ("v1", "Pod"):
            return decode_pod(document)
        case ("v1", "Node"):
            return decode_node(document)
        case _:
            return None


def decode_queue(document: Mapping[str, object]) -> Queue:
    """Raises QueueObjectError naming the queue and the field: a wrong type, a number that is none, another version."""
    try:
        root = _root(document, QUEUE_API)
        spec, resources = root.get("spec"), root.get("spec").get("resources")
        priority = spec.get("priority").integer()
        return Queue(
            name=_name(root),
            parent=spec.get("parentQueue").text(_MAX_TEXT),
            priority=DEFAULT_QUEUE_PRIORITY if priority is None else priority,
            created=_created(root.get("metadata").get("creationTimestamp")),
            deserved=_amounts(resources, "quota"),
            limit=_amounts(resources, "limit"),
            over_quota_weight=_weights(resources),
            has_resources=resources.present,
            display_name=spec.get("displayName").text(_MAX_TEXT),
            status=_queue_status(root.get("status")),
        )
    except KubeFieldError as error:
        raise QueueObjectError("Queue", _told_name(document), error) from error


def decode_pod_group(document: Mapping[str, object]) -> PodGroup:
    """Raises QueueObjectError. An unknown `preemptibility` leaves the answer to the priority, as upstream."""
    try:
        root = _root(document, POD_GROUP_API)
        spec = root.get("spec")
        preemptibility = spec.get("preemptibility").text(_MAX_TEXT)
        known = preemptibility in (Preemptibility.PREEMPTIBLE, Preemptibility.NON_PREEMPTIBLE)
        return PodGroup(
            namespace=root.get("metadata").get("namespace").text(_MAX_TEXT) or "default",
            name=_name(root),
            queue=spec.get("queue").text(_MAX_TEXT),
            priority_class=spec.get("priorityClassName").text(_MAX_TEXT),
            preemptibility=Preemptibility(preemptibility) if known else Preemptibility.UNSET,
            min_member=spec.get("minMember").integer() or 1,
        )
    except KubeFieldError as error:
        raise QueueObjectError("PodGroup", _told_name(document), error) from error


def decode_priority_class(document: Mapping[str, object]) -> PriorityClass:
    """Raises QueueObjectError."""
    try:
        root = KubeField(document)
        value = root.get("value").integer()
        if value is None:
            raise root.get("value").error("required")
        return PriorityClass(_name(root), value, bool(root.get("globalDefault").boolean()))
    except KubeFieldError as error:
        raise QueueObjectError("PriorityClass", _told_name(document), error) from error


def decode_node(document: Mapping[str, object]) -> ClusterNode:
    """Raises QueueObjectError. The GPU memory label counts where it is a number, as upstream."""
    try:
        root = KubeField(document)
        memory = root.get("metadata").get("labels").get(GPU_MEMORY_LABEL).value
        return ClusterNode(
            _name(root),
            decode_resources(root.get("status").get("allocatable")),
            int(memory)
            if isinstance(memory, str) and memory.isascii() and memory.isdigit() and len(memory) < 10
            else None,
        )
    except KubeFieldError as error:
        raise QueueObjectError("Node", _told_name(document), error) from error


def _root(document: Mapping[str, object], api_version: str) -> KubeField:
    root = KubeField(document)
    if (found := root.get("apiVersion").text(_MAX_TEXT)) not in ("", api_version):
        raise root.get("apiVersion").error(f"{found} is not read", hint=f"write {api_version}")
    return root


def _name(root: KubeField) -> str:
    field = root.get("metadata").get("name")
    if not (name := field.text(_MAX_TEXT)):
        raise field.error("required")
    return name


def _told_name(document: object) -> str:
    metadata = document.get("metadata") if isinstance(document, Mapping) else None
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name[:253] if isinstance(name, str) else ""


def _amounts(resources: KubeField, kind: str) -> ResourceQuantities:
    """Quota or limit of the three resources, in the scheduler's units."""
    cpu, memory, gpu = (_number(resources.get(resource).get(kind)) for resource in RESOURCES)
    return ResourceQuantities(cpu, max(UNLIMITED, memory * MEGABYTE), gpu)


def _weights(resources: KubeField) -> ResourceQuantities:
    amounts = []
    for resource in RESOURCES:
        field = resources.get(resource).get("overQuotaWeight")
        if (weight := _number(field)) < 0:
            raise field.error(f"{weight:g} is negative", hint="write 0 or more")
        amounts.append(weight)
    return ResourceQuantities(*amounts)


def _number(field: KubeField) -> float:
    value = field.value
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise field.error(f"must be a number, not {value!r:.60}", hint="write a plain number, -1 for unlimited")
    if not math.isfinite(value) or abs(value) >= MAX_AMOUNT:
        raise field.error(f"{value!r:.60} is not a usable number", hint="write a finite number, -1 for unlimited")
    return float(value)


def _created(field: KubeField) -> int:
    """Seconds since the epoch; 0 where absent."""
    if not (text := field.text(_MAX_TEXT)):
        return 0
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise field.error(f"{text[:60]!r} is not a time", hint="RFC 3339: 2026-08-01T12:00:00Z") from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _queue_status(status: KubeField) -> QueueStatus:
    return QueueStatus(
        allocated=decode_resources(status.get("allocated")),
        allocated_non_preemptible=decode_resources(status.get("allocatedNonPreemptible")),
        requested=decode_resources(status.get("requested")),
    )
