"""A pod as the node sees it: containers, resources, QoS inputs and the parts of its status that sizing needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from agent.model.quantity import Quantity

ResourceList = Mapping[str, Quantity]  # resource name ("cpu", "memory", "hugepages-2Mi", ...) -> amount


class QOSClass(StrEnum):
    """Kubernetes' quality-of-service classes (core/v1 PodQOSClass)."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class ContainerKind(StrEnum):
    """How long a container runs: to completion before the rest, beside the rest, or as the rest.

    SIDECAR is a restartable init container: an init container with restartPolicy Always (KEP-753).
    """

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True, slots=True)
class ResourceRequirements:
    """core/v1 ResourceRequirements, after defaulting: a limit without a request is the request too."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod's spec."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    resources: ResourceRequirements = field(default_factory=ResourceRequirements)


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """What a container's status says of its size. None: the status does not carry the field."""

    name: str
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


@dataclass(frozen=True, slots=True)
class PodCondition:
    """A core/v1 PodCondition, as far as resize needs it."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodStatus:
    """The parts of core/v1 PodStatus that decisions read. container_statuses holds init containers' statuses too."""

    phase: str = ""
    qos_class: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. containers: init and restartable init containers first, each group in spec order.

    resources: pod-level resources (`.spec.resources`, KEP-2837); None where the spec has no such object, which is not the
    same as an empty one. overhead: `.spec.overhead`.
    """

    uid: str
    name: str
    namespace: str = "default"
    containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: ResourceList = field(default_factory=dict)
    priority: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: PodStatus = field(default_factory=PodStatus)
    terminating: bool = False
