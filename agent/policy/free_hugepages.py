"""Hugepages that are really free, held against what a pod would get: the memory manager counts promises, the kernel pages.

Pods that are not Guaranteed, and anything else on the node, take hugepages that no table knows of
(kubernetes/kubernetes#134395, KEP-5759). Reading sysfs is the caller's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.pod import Pod
from agent.model.resources import is_hugepages
from agent.model.state import Grants
from agent.policy.memory_count import charged_blocks
from agent.policy.pod_resources import SizingOptions, pod_requests
from agent.policy.refusal import AllocationError

HUGEPAGES_IN_USE = "HugepagesInUse"  # of an admission: fewer are really free than the pod was given


class FreeHugepagesRule(StrEnum):
    """`node.freeHugepages`: what becomes of a pod for which too few are really free."""

    IGNORE = "ignore"
    WARN = "warn"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class FreeHugepages:
    """What the kernel says at this moment. free: NUMA id -> resource ("hugepages-2Mi") -> bytes."""

    rule: FreeHugepagesRule
    free: Mapping[int, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class MissingHugepages:
    """Bytes of one page size that a pod is given on these NUMA nodes, and that are free there."""

    resource: str
    nodes: NodeMask
    asked: int
    free: int

    def __str__(self) -> str:
        where = ", ".join(map(str, node_ids(self.nodes)))
        return f"{self.resource}: requested={self.asked}, really free={self.free} on NUMA nodes {where}"


class HugepagesInUse(AllocationError):  # noqa: N818 - the answer is no; nothing broke
    """The pages exist and are promised to nobody, yet somebody has them."""

    def __init__(self, missing: tuple[MissingHugepages, ...]) -> None:
        super().__init__(
            f"not enough free hugepages, {'; '.join(map(str, missing))}",
            hint="something takes hugepages that no Guaranteed pod was given: see free_hugepages and nr_hugepages below "
            "/sys/devices/system/node; or set node.freeHugepages to warn",
        )


def missing_hugepages(grants: Grants, pod: Pod, free: Mapping[int, Mapping[str, int]]) -> tuple[MissingHugepages, ...]:
    """Where the pod's hugepages are not really free. grants: those after its admission.

    Pages that were promised to other pods and are not in use yet count as free, as the kernel cannot tell them apart. A pod
    without memory blocks of its own is held against all nodes together. Nodes the kernel says nothing about miss nothing.
    """
    return tuple(
        MissingHugepages(resource, nodes, asked, there)
        for resource, nodes, asked in _asked(grants, pod, node_mask(free))
        if nodes and asked > (there := sum(free[node].get(resource, 0) for node in node_ids(nodes)))
    )


def check_free_hugepages(grants: Grants, pod: Pod, hugepages: FreeHugepages) -> None:
    """Raises HugepagesInUse where fewer are free than the pod is given."""
    missing = missing_hugepages(grants, pod, hugepages.free)
    if missing:
        raise HugepagesInUse(missing)


def _asked(grants: Grants, pod: Pod, known: NodeMask) -> Iterator[tuple[str, NodeMask, int]]:
    sizes: dict[tuple[str, NodeMask], int] = {}
    for block in charged_blocks(grants.memory, pod.uid):
        if is_hugepages(block.type) and not block.nodes & ~known:
            sizes[block.type, block.nodes] = sizes.get((block.type, block.nodes), 0) + block.size
    if not charged_blocks(grants.memory, pod.uid):
        requests = pod_requests(pod, SizingOptions()).items()
        sizes = {(name, known): amount.value() for name, amount in requests if is_hugepages(name)}
    for (resource, nodes), size in sorted(sizes.items()):
        yield resource, nodes, size


def asks_for_hugepages(pod: Pod) -> bool:
    """Whether the pod asks for any, so that it is worth looking at what is free."""
    return any(is_hugepages(name) and amount for name, amount in pod_requests(pod, SizingOptions()).items())
