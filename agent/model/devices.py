"""Devices of containers as a kubelet's PodResources tells them: of every device the NUMA nodes that it is near to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from agent.model.numa import NodeMask

# resource -> one mask per device, ascending; 0 where its plugin told no NUMA node
DeviceNodes: TypeAlias = Mapping[str, tuple[NodeMask, ...]]


@dataclass(frozen=True, slots=True)
class PodDevices:
    """What one pod was given. containers: name -> its devices. allocatable: all devices of the node, given or not."""

    containers: Mapping[str, DeviceNodes] = field(default_factory=dict)
    allocatable: DeviceNodes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What is known of the devices on this node. pods: by UID, those that have some.

    allocatable: all devices, given or not; None where they are not known. answering: whether who knows can be asked; while it
    cannot, nobody waits for it. wait_seconds: how long a pod that asks for devices waits to be placed until they are known.
    asked: the pods (UID) that were here when all this was told; None for all of them.
    """

    pods: Mapping[str, Mapping[str, DeviceNodes]] = field(default_factory=dict)
    allocatable: DeviceNodes | None = None
    answering: bool = False
    wait_seconds: float = 0.0
    asked: frozenset[str] | None = None

    def of(self, uid: str) -> PodDevices | None:
        """The devices of a pod; None where it has none, or they are not known yet."""
        containers = self.pods.get(uid)
        return None if containers is None else PodDevices(containers, self.allocatable or {})


NO_DEVICES = NodeDevices()
