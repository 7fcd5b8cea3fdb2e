"""Which containers of a pod get exclusive CPUs and their own memory (KEP-3570, KEP-1769, KEP-5526)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.model.pod import Container, Pod, QOSClass
from agent.policy.cpu_static import exclusive_cpus
from agent.policy.feature_gates import FeatureGates
from agent.policy.memory_static import Request, container_request
from agent.policy.pod_resources import pod_level_resources_set
from agent.policy.qos import container_equivalent_guaranteed, pod_qos


@dataclass(frozen=True, slots=True)
class Claims:
    """What a pod asks of the resource managers.

    cpus: container -> exclusive CPUs, only containers that get some. memory: container -> resource -> bytes, only containers
    with memory of their own. pod_level: the pod sets resources for itself and the managers honour it. pod_cpus, pod_memory:
    then the size of its bubble in pod scope; 0 and {} where it gets none.
    """

    qos: QOSClass
    cpus: Mapping[str, int]
    memory: Mapping[str, Request]
    pod_level: bool = False
    pod_cpus: int = 0
    pod_memory: Mapping[str, int] | None = None


def claims(pod: Pod, gates: FeatureGates) -> Claims:
    """What this pod gets exclusively, by quality of service and by container.

    With pod-level resources and the managers gate off nothing is exclusive; with it on, only containers whose own cpu and
    memory requests are set and equal to their limits hold something for themselves.
    """
    qos = pod_qos(pod, pod_level_resources=gates.pod_level_resources)
    pod_level = pod_level_resources_set(pod)
    if qos is not QOSClass.GUARANTEED or (pod_level and not gates.pod_level_resource_managers):
        return Claims(qos, {}, {})
    eligible = [c for c in pod.containers if not pod_level or container_equivalent_guaranteed(c)]
    cpus = {container.name: count for container in eligible if (count := exclusive_cpus(container))}
    memory = {container.name: container_request(container) for container in eligible}
    if not pod_level or pod.resources is None:
        return Claims(qos, cpus, memory)
    whole = Container(pod.name, resources=pod.resources)  # the pod's own amounts follow the container's rules
    return Claims(qos, cpus, memory, True, exclusive_cpus(whole), container_request(whole))
