"""Queues as KAI-Scheduler knows them: quota, limit and weight, what is charged to them, and their pod groups.

Amounts are in the scheduler's units: CPU in millicores, memory in bytes, GPU in devices (fractions allowed), all floats
as upstream. Objects as written (memory in megabytes) are `agent.formats.queue_objects`; rules are `agent.queues`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from agent.model.pod import ResourceList

UNLIMITED = -1.0  # in `deserved` and `limit`; exactly this number, other negative ones are numbers

MAX_AMOUNT = 2.0**63  # what a Kubernetes quantity can hold; from there on a number in a queue is a mistake
DEFAULT_QUEUE_PRIORITY = 100
QUEUE_LABEL = "kai.scheduler/queue"  # of a pod; the default of upstream's configurable key
POD_GROUP_ANNOTATION = "pod-group-name"  # of a pod


class ResourceName(StrEnum):
    """The three resources that queues account for."""

    CPU = "cpu"
    MEMORY = "memory"
    GPU = "gpu"


RESOURCES = tuple(ResourceName)  # iterating over an Enum class is slow; this is asked for all the time


class ResourceQuantities(NamedTuple):
    """One amount per resource, in the order of RESOURCES: millicores, bytes, devices."""

    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0


ZERO = ResourceQuantities()


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """`Queue.status` as KAI's queue controller writes it: Kubernetes amounts (CPUs, bytes), children included."""

    allocated: ResourceList = field(default_factory=dict)
    allocated_non_preemptible: ResourceList = field(default_factory=dict)
    requested: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue. parent: "" at the top. priority: higher is more important. created: seconds since the epoch.

    deserved: the quota. has_resources: False where the object has no `spec.resources`; such a queue has quota and limit
    0 for the scheduler, but the resize check skips it.
    """

    name: str
    parent: str = ""
    priority: int = DEFAULT_QUEUE_PRIORITY
    created: int = 0
    deserved: ResourceQuantities = ZERO
    limit: ResourceQuantities = ZERO
    over_quota_weight: ResourceQuantities = ZERO
    has_resources: bool = True
    display_name: str = ""
    status: QueueStatus = field(default_factory=QueueStatus)


@dataclass(frozen=True, slots=True)
class QueueShare:
    """A queue with what is charged to it and what it is due (upstream's QueueAttributes). Descendants are included.

    request: allocated and pending together. usage: historical use as a fraction of the cluster's capacity.
    """

    queue: Queue
    allocated: ResourceQuantities = ZERO
    allocated_non_preemptible: ResourceQuantities = ZERO
    request: ResourceQuantities = ZERO
    usage: ResourceQuantities = ZERO
    fair_share: ResourceQuantities = ZERO


QueueShares = Mapping[str, QueueShare]  # by queue name


class Preemptibility(StrEnum):
    """`PodGroup.spec.preemptibility`; UNSET leaves it to the priority."""

    PREEMPTIBLE = "preemptible"
    NON_PREEMPTIBLE = "non-preemptible"
    UNSET = ""


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A gang of pods: the unit that belongs to a queue. queue: "" where the object names none."""

    namespace: str
    name: str
    queue: str = ""
    priority_class: str = ""
    preemptibility: Preemptibility = Preemptibility.UNSET
    min_member: int = 1


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """scheduling.k8s.io/v1 PriorityClass, as far as preemptibility needs it."""

    name: str
    value: int
    global_default: bool = False


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node as far as queues need it: what it has to divide, and the memory of each of its GPUs (None: not told)."""

    name: str
    allocatable: ResourceList = field(default_factory=dict)
    gpu_memory_mib: int | None = None
