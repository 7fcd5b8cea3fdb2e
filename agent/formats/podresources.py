"""PodResources answers as message bytes, made once per change of the node and sent as they are.

Our order, where upstream's is random: ids ascending, memory entries by type, then nodes, then size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.cpuset import bits
from agent.model.pod import ContainerKind
from agent.model.podresources import ContainerView, PodResourcesView, PodView
from agent.model.state import Blocks, MemoryBlock
from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1alpha1_pb2 as v1alpha1


@dataclass(frozen=True, slots=True)
class Answers:
    """Every answer that the services can give, serialised.

    get: (namespace, name) -> answer; of two pods with one name the later one's, as in the kubelet.
    """

    list: bytes = b""
    list_v1alpha1: bytes = b""
    allocatable: bytes = b""
    get: Mapping[tuple[str, str], bytes] = field(default_factory=dict)


class AnswersEncoder:
    """Makes the answers of one view after the other. A change touches one pod or a few: the others are not serialised again.

    Only the pods of the newest view are remembered: a cache that lives longer than they do would grow with every pod that comes.
    """

    def __init__(self) -> None:
        self._pods: dict[PodView, tuple[bytes, bytes]] = {}

    def encode(self, view: PodResourcesView) -> Answers:
        """The answers that describe `view`."""
        known = self._pods
        # The answers of List and Get both hold PodResources as field 1, so List is all of Get's answers in a row.
        made = [(pod, known.get(pod) or (encode_get(pod), _list_element_v1alpha1(pod))) for pod in view.pods]
        self._pods = dict(made)
        return Answers(
            list=b"".join(chunk for _, (chunk, _) in made),
            list_v1alpha1=b"".join(chunk for _, (_, chunk) in made),
            allocatable=encode_allocatable(view),
            get={(pod.namespace, pod.name): chunk for pod, (chunk, _) in made},
        )


def encode_get(pod: PodView) -> bytes:
    """A v1 GetPodResourcesResponse; also one element of a ListPodResourcesResponse."""
    message = v1.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=[_container(container) for container in pod.containers],
        cpu_ids=pod.cpus,
        memory=_memory(pod.memory),
    )
    return v1.GetPodResourcesResponse(pod_resources=message).SerializeToString()


def encode_allocatable(view: PodResourcesView) -> bytes:
    """A v1 AllocatableResourcesResponse."""
    message = v1.AllocatableResourcesResponse(cpu_ids=view.allocatable_cpus, memory=_memory(view.allocatable_memory))
    message.MergeFromString(view.allocatable_devices)
    return message.SerializeToString()


def _list_element_v1alpha1(pod: PodView) -> bytes:
    """One pod of a v1alpha1 List: app containers only, and of them the names and devices (this version knows no more)."""
    apps = [container for container in pod.containers if container.kind is ContainerKind.APP]
    message = v1alpha1.PodResources(
        name=pod.name, namespace=pod.namespace, containers=[_container_v1alpha1(container) for container in apps]
    )
    return v1alpha1.ListPodResourcesResponse(pod_resources=[message]).SerializeToString()


def _container(container: ContainerView) -> v1.ContainerResources:
    message = v1.ContainerResources(name=container.name, cpu_ids=container.cpus, memory=_memory(container.memory))
    message.MergeFromString(container.passed.v1)
    return message


def _container_v1alpha1(container: ContainerView) -> v1alpha1.ContainerResources:
    message = v1alpha1.ContainerResources(name=container.name)
    message.MergeFromString(container.passed.v1alpha1)
    return message


def _memory(blocks: Blocks) -> list[v1.ContainerMemory]:
    return [
        v1.ContainerMemory(
            memory_type=block.type,
            size=block.size,
            topology=v1.TopologyInfo(nodes=[v1.NUMANode(ID=node) for node in bits(block.nodes)]),
        )
        for block in sorted(blocks, key=_order)
    ]


def _order(block: MemoryBlock) -> tuple[str, tuple[int, ...], int]:
    return block.type, tuple(bits(block.nodes)), block.size
