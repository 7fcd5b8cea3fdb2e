"""A pod as the node sees it: containers, resources, QoS inputs and the parts of its status that decisions need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
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


class ContainerState(StrEnum):
    """The member of core/v1 ContainerState that is set; UNKNOWN where none is, which Kubernetes reads as waiting."""

    UNKNOWN = ""
    WAITING = "waiting"
    RUNNING = "running"
    TERMINATED = "terminated"


class StatusList(StrEnum):
    """The list of a pod's status that a container's status stands in."""

    APP = "containerStatuses"
    INIT = "initContainerStatuses"
    EPHEMERAL = "ephemeralContainerStatuses"


@dataclass(frozen=True, slots=True)
class ResourceRequirements:
    """core/v1 ResourceRequirements. As written: `agent.formats.pod_defaults` makes a limit without a request the request too."""

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
    """What a container's status says of its size and its life. None: the status does not carry the field.

    container_id: as in the status, with the runtime in front ("containerd://..."). exit_code: of a terminated container.
    """

    name: str
    allocated_resources: ResourceList | None = None
    resources: ResourceRequirements | None = None
    state: ContainerState = ContainerState.UNKNOWN
    started: bool | None = None
    ready: bool = False
    restart_count: int = 0
    container_id: str = ""
    exit_code: int | None = None
    listed: StatusList = StatusList.APP


@dataclass(frozen=True, slots=True)
class PodCondition:
    """A core/v1 PodCondition, as far as resize needs it."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodStatusResources:
    """`.status.resources` of a pod. limits None: not reported, which is not the same as none (see `policy.pod_resources`)."""

    requests: ResourceList = field(default_factory=dict)
    limits: ResourceList | None = None


@dataclass(frozen=True, slots=True)
class PodStatus:
    """The parts of core/v1 PodStatus that decisions read.

    container_statuses: app containers first, then init and ephemeral ones, each group in the status' order. reason, message:
    of the pod as a whole, set where it was refused or evicted.
    """

    phase: str = ""
    qos_class: str = ""
    conditions: tuple[PodCondition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    allocated_resources: ResourceList | None = None
    resources: PodStatusResources | None = None
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. containers: init and restartable init containers first, each group in spec order.

    uid: "" where a manifest gives none (the agent then gives one). resources: pod-level resources (`.spec.resources`,
    KEP-2837); None where the spec has no such object, which is not the same as an empty one. overhead: `.spec.overhead`.
    ephemeral_containers: names only, they have no resources. Timestamps: RFC 3339 as given, "" where absent.
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
    ephemeral_containers: tuple[str, ...] = ()
    priority_class_name: str = ""
    node_name: str = ""
    scheduler_name: str = ""
    restart_policy: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""

    @property
    def namespaced_name(self) -> str:
        """ "namespace/name", as Kubernetes prints it (types.NamespacedName)."""
        return f"{self.namespace}/{self.name}"

    def spec_paths(self) -> Iterator[tuple[str, Container]]:
        """The containers, each with its field path: "spec.initContainers[0]"."""
        indexes = {"initContainers": 0, "containers": 0}
        for container in self.containers:
            listed = "containers" if container.kind is ContainerKind.APP else "initContainers"
            yield f"spec.{listed}[{indexes[listed]}]", container
            indexes[listed] += 1

    @property
    def as_asked(self) -> Pod:
        """The pod without anything that has no influence on its place: labels, status, times, its node."""
        return replace(
            self,
            labels={},
            annotations={},
            status=PodStatus(),
            ephemeral_containers=(),
            node_name="",
            scheduler_name="",
            creation_timestamp="",
            deletion_timestamp="",
        )

    @property
    def terminating(self) -> bool:
        """Asked to stop. Its containers may still run, so it keeps what it holds."""
        return bool(self.deletion_timestamp)

    @property
    def terminal(self) -> bool:
        """Phase Succeeded or Failed: it will not run (again)."""
        return self.status.phase in ("Succeeded", "Failed")
