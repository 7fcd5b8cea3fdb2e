"""Pods of this node as a kubelet or an API server shows them -> what decisions need: accepted sizes, container ids, life.

Beside a kubelet a pod is admitted already, and a resize counts once the kubelet has accepted it (its status says so).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.formats.pods import JSONObject, decode_pod
from agent.model.pod import (
    Container,
    ContainerState,
    ContainerStatus,
    Pod,
    PodStatus,
    ResourceList,
    ResourceRequirements,
    StatusList,
)

MIRROR = "kubernetes.io/config.mirror"  # on an API server's copy of a static pod: the UID that the kubelet knows it by
_CONFIG_HASH = re.compile(r"[0-9a-f]{32}", re.ASCII)
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"  # the whole manifest again, and nobody decides by it
_MAX_KIND = 63
_CONTAINER_ID = re.compile(r"[a-z0-9+.-]+://([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod of this node. pod: with the sizes that the kubelet has accepted, without status.

    terminal: phase Succeeded or Failed. running: the last container, in the order in which they start, that runs by its status;
    "" where none does. instances: container id -> name. controller: kind of the owner that manages it, "" for none.
    """

    pod: Pod
    terminal: bool = False
    running: str = ""
    instances: Mapping[str, str] = field(default_factory=dict)
    controller: str = ""


def decode_node_pod(obj: JSONObject) -> NodePod:
    """Read a core/v1 Pod with its status. Raises PodError."""
    pod = decode_pod(obj)
    mirrored = pod.annotations.get(MIRROR, "")
    uid = mirrored if _CONFIG_HASH.fullmatch(mirrored) else pod.uid
    statuses = pod.status.container_statuses
    running = {each.name for each in statuses if each.state is ContainerState.RUNNING}
    return NodePod(
        accepted(replace(pod, uid=uid)),
        terminal=pod.terminal,
        running=next((each.name for each in reversed(pod.containers) if each.name in running), ""),
        instances={found: each.name for each in statuses if (found := container_id(each.container_id))},
        controller=_controller(obj),
    )


def _controller(obj: JSONObject) -> str:
    """The kind of the one owner with `controller: true` (metav1.GetControllerOf)."""
    metadata = obj.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for owner in owners if isinstance(owners, list) else ():
        kind = owner.get("kind") if isinstance(owner, dict) and owner.get("controller") is True else None
        if isinstance(kind, str):
            return kind[:_MAX_KIND]
    return ""


def container_id(text: str) -> str:
    """The runtime's id in a status' "containerd://ID"; "" where it has none yet or is something else."""
    match = _CONTAINER_ID.fullmatch(text)
    return match[1] if match else ""


def accepted(pod: Pod) -> Pod:
    """The pod with the sizes that its kubelet has allocated (KEP-1287), as far as its status tells; without the status.

    A container whose `allocatedResources` agree with its spec has the spec's sizes; one where they differ waits for its
    resize, and has the allocated requests with the limits that are in force.
    """
    statuses = {each.name: each for each in pod.status.container_statuses if each.listed is not StatusList.EPHEMERAL}
    containers = tuple(_accepted_container(each, statuses.get(each.name)) for each in pod.containers)
    return replace(
        pod,
        containers=containers,
        resources=_accepted_pod_level(pod),
        annotations={key: text for key, text in pod.annotations.items() if key != _LAST_APPLIED},
        status=PodStatus(),
    )


def _accepted_container(container: Container, status: ContainerStatus | None) -> Container:
    if status is None or status.allocated_resources is None:
        return container
    limits = status.resources.limits if status.resources is not None else None
    return replace(container, resources=_in_force(container.resources, status.allocated_resources, limits))


def _accepted_pod_level(pod: Pod) -> ResourceRequirements | None:
    if pod.resources is None or pod.status.allocated_resources is None:
        return pod.resources
    limits = pod.status.resources.limits if pod.status.resources is not None else None
    return _in_force(pod.resources, pod.status.allocated_resources, limits)


def _in_force(spec: ResourceRequirements, allocated: ResourceList, limits: ResourceList | None) -> ResourceRequirements:
    if not any(_differs(spec.requests, allocated)):
        return spec
    requests = {name: allocated.get(name, amount) for name, amount in spec.requests.items()}
    bounds = spec.limits if limits is None else {name: limits.get(name, amount) for name, amount in spec.limits.items()}
    return ResourceRequirements(requests, bounds)


def _differs(requests: ResourceList, allocated: ResourceList) -> Iterator[bool]:
    for name, amount in requests.items():
        yield name in allocated and allocated[name].number != amount.number
