"""Pods and the devices that a kubelet gives them: whose are still awaited, and whose have turned out to be far from their CPUs.

Devices stay the kubelet's and nobody is moved for them (design section 7): a pod waits a moment to be placed, in the shared pool,
and where its devices are told too late they are reported.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.model.cpuset import format_list
from agent.model.devices import DeviceNodes, NodeDevices
from agent.model.machine import Machine
from agent.model.numa import NodeMask
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.state import Grants, Mark, PodRecord, State, nodes_of
from agent.policy.eligibility import claims
from agent.policy.managers import Managers

DEVICES_AWAITED = "DevicesAwaited"  # of an unplaced pod: the kubelet has not told its devices yet
DEVICES_ELSEWHERE = "DevicesElsewhere"
_NATIVE = "kubernetes.io/"  # resource names of Kubernetes' own; devices have their vendor's domain


def awaited(managers: Managers, record: PodRecord, devices: NodeDevices, now_seconds: float) -> tuple[str, ...]:
    """The device resources for which a pod should wait before it is placed; none once it has waited long enough."""
    waited = now_seconds - record.admitted_seconds
    late = not 0 <= waited < devices.wait_seconds  # a clock that was set back ends the wait too
    if late or not devices.answering or not managers.aligned or not _is_placed(managers, record.pod):
        return ()
    told = devices.pods.get(record.pod.uid, {})
    missing = {
        resource
        for container in record.pod.containers
        for resource in _device_resources(container)
        if _may_be_here(devices, record.pod.uid, resource) and resource not in told.get(container.name, {})
    }
    return tuple(sorted(missing))


def _may_be_here(devices: NodeDevices, uid: str, resource: str) -> bool:
    """Whether the node may have such devices. What was told before the pod came is no answer: their plugin may be new."""
    if devices.allocatable is None or resource in devices.allocatable:
        return True
    return devices.asked is not None and uid not in devices.asked


def awaiting(resources: tuple[str, ...]) -> Mark:
    """Why a pod is not placed yet."""
    return Mark(DEVICES_AWAITED, f"waits for the kubelet to tell its devices: {', '.join(resources)}")


def is_awaiting(mark: Mark | None) -> bool:
    """Whether a pod is unplaced only until its devices are told."""
    return mark is not None and mark.reason == DEVICES_AWAITED


def _is_placed(managers: Managers, pod: Pod) -> bool:
    """Whether this pod asks for anything that has a place."""
    asked = claims(pod, managers.gates)
    cpus = managers.cpu is not None and bool(asked.cpus or asked.pod_cpus)
    return cpus or (managers.memory is not None and bool(asked.memory or asked.pod_memory))


def _device_resources(container: Container) -> Iterator[str]:
    """Extended resources. Ordinary init containers are not listed by PodResources: nothing will be told of theirs."""
    if container.kind is ContainerKind.INIT:
        return
    for resource, amount in container.resources.limits.items():
        if "/" in resource and not resource.startswith(_NATIVE) and amount.number > 0:
            yield resource


def misaligned(managers: Managers, state: State, devices: NodeDevices) -> Mapping[str, Mark]:
    """UID -> why: pods with a device that is near to none of the NUMA nodes of its container's CPUs, or without CPUs memory."""
    if not managers.aligned:
        return {}
    found: dict[str, Mark] = {}
    for uid, containers in devices.pods.items():
        record = state.pods.get(uid)
        if record is None or record.unplaced is not None:
            continue
        sentences = [
            f"container {name}: {text}"
            for name, held in sorted(containers.items())
            for text in _elsewhere(managers.machine, state.grants, uid, name, held)
        ]
        if sentences:
            found[uid] = Mark(DEVICES_ELSEWHERE, "; ".join(sentences))
    return found


def _elsewhere(machine: Machine, grants: Grants, uid: str, container: str, held: DeviceNodes) -> Iterator[str]:
    what, nodes = _place(machine, grants, uid, container)
    if not nodes:
        return
    for resource, masks in sorted(held.items()):
        far = [mask for mask in masks if mask & machine.numa_mask and not mask & nodes]
        if far:
            where = " and ".join(format_list(mask) for mask in sorted(set(far)))
            yield f"{len(far)} of {resource} on NUMA node {where}, its {what} on {format_list(nodes)}"


def _place(machine: Machine, grants: Grants, uid: str, container: str) -> tuple[str, NodeMask]:
    """What a container, or else its pod's bubble, holds for itself, and on which NUMA nodes."""
    cpus = grants.cpu.entries.get(uid, {}).get(container) or grants.cpu.pod_entries.get(uid)
    if cpus:
        return "CPUs", sum(1 << node for node, mask in machine.topology.numa_masks.items() if mask & cpus.mask)
    blocks = grants.memory.entries.get(uid, {}).get(container) or grants.memory.pod_entries.get(uid, ())
    return "memory", nodes_of(blocks)
