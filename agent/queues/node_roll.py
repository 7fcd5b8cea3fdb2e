"""The roll of nodes: which there are by their objects and by their reports, what each has to give, when it was heard of last.

What runs on them is `agent.queues.accounting`, what they have reported in full `agent.queues.reported_nodes`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from agent.model.pod import ResourceList
from agent.model.queue import ClusterNode, ResourceQuantities
from agent.queues.snapshot import quantities_of


class NodeRoll:
    """Nodes by name. Time is an argument.

    listed: what the nodes with a Node object have to give. device_memory: of one GPU, in MiB, of those that say so.
    """

    def __init__(self) -> None:
        self.listed: Mapping[str, ResourceQuantities] = {}
        self.device_memory: Mapping[str, int] = {}
        self._reported: dict[str, ResourceQuantities] = {}  # what nodes have to give by their reports
        self._remembered: set[str] = set()  # nodes that have reported, be it before a restart
        self._heard: dict[str, float] = {}
        self._missing: frozenset[str] | None = None  # None: to be found out anew

    def list_all(self, before: Sequence[ClusterNode], nodes: Sequence[ClusterNode]) -> set[str]:
        """The Node objects as they are now, and as they were. The nodes whose GPUs have another memory now."""
        old, listed, had = {node.name: node for node in before}, self.listed, self.device_memory
        self.listed = {
            node.name: listed[node.name] if old.get(node.name) == node else quantities_of(node.allocatable)
            for node in nodes
        }
        self._missing = None
        self.device_memory = {node.name: node.gpu_memory_mib for node in nodes if node.gpu_memory_mib is not None}
        return {
            node for node in had.keys() | self.device_memory.keys() if had.get(node) != self.device_memory.get(node)
        }

    def report(self, node: str, allocatable: ResourceList) -> None:
        """A report says what the node has to give."""
        self._reported[node] = quantities_of(allocatable)

    def remember(self, node: str) -> None:
        """The node has reported for the first time."""
        self._remembered.add(node)
        self._missing = None

    def hear(self, node: str, now: float) -> None:
        """The node was heard of at this moment."""
        self._heard[node] = now

    def unhear(self, node: str) -> None:
        """What is known of the node was kept from before the start: it has not been heard of since."""
        del self._heard[node]

    def silent(self, now: float, seconds: float) -> Iterator[tuple[str, float]]:
        """The nodes that have said nothing for longer than that, and when they did last."""
        return ((node, heard) for node, heard in self._heard.items() if now - heard > seconds)

    def strike(self, node: str) -> bool:
        """The node is gone for good, but for its object where it has one. False where it has never reported."""
        remembered = node in self._remembered
        self._reported.pop(node, None)
        self._heard.pop(node, None)
        self._remembered.discard(node)
        self._missing = None
        return remembered

    def deleted(self, stale: Collection[str]) -> list[str]:
        """The stale nodes whose object is gone: deleted while nobody looked, or heard of once more after it."""
        return [node for node in stale if node not in self.listed] if self.listed else []

    def allocatable(self) -> Mapping[str, ResourceQuantities]:
        """What each node has to give: as its object says, else as it reports."""
        return {**self._reported, **self.listed}

    def look_again(self) -> None:
        """Other nodes are accounted for now, so the missing ones have to be found anew."""
        self._missing = None

    def missing(self, accounted: Callable[[], Collection[str]]) -> frozenset[str]:
        """Nodes that exist, or existed before the restart, and are not among those accounted for, which is asked when needed."""
        if self._missing is None:
            self._missing = frozenset((self.listed.keys() | self._remembered).difference(accounted()))
        return self._missing
