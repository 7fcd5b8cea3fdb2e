"""What the device manager says of NUMA placement, the first hint provider, for devices that a kubelet has given already.

A kubelet beside pinfold gives devices before pinfold gives CPUs, so the hints are those that its device manager makes again for a
container that has its devices: a mask fits if every device is near to one of its nodes; preferred are masks with the fewest nodes
near to which so many devices of that resource exist at all, given or not.
Source: kubelet cm/devicemanager/topology_hints.go, GetTopologyHints and generateDeviceTopologyHints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from agent.model.devices import DeviceNodes, PodDevices
from agent.model.numa import NodeMask, node_ids, node_mask
from agent.policy.hint_family import CapacityHints, Need, ProviderHints, ResourceHints

_MOST_MASKS = 20_000  # sets of nodes looked at for devices that are near to several nodes; real machines need dozens


@dataclass(frozen=True, slots=True)
class DeviceHints:
    """What is said of a pod's devices. containers: name -> of that container alone. pod: of all of them together (scope pod)."""

    containers: Mapping[str, ProviderHints] = field(default_factory=dict)
    pod: ProviderHints = None


NO_HINTS = DeviceHints()


def device_hints(nodes: NodeMask, devices: PodDevices | None) -> DeviceHints:
    """The hints of a pod's devices. nodes: of the machine. devices: None where they are not known, which is no preference."""
    if devices is None:
        return NO_HINTS
    containers = {
        name: hints
        for name, held in devices.containers.items()
        if (hints := _hints(nodes, held, devices.allocatable)) is not None
    }
    return DeviceHints(containers, _hints(nodes, _together(devices.containers.values()), devices.allocatable))


def _together(containers: Iterable[DeviceNodes]) -> DeviceNodes:
    total: dict[str, tuple[NodeMask, ...]] = {}
    for held in containers:
        for resource, masks in held.items():
            total[resource] = (*total.get(resource, ()), *masks)
    return total


def _hints(nodes: NodeMask, held: DeviceNodes, allocatable: DeviceNodes) -> ProviderHints:
    said = {resource: _of_resource(nodes, masks, allocatable.get(resource, ())) for resource, masks in held.items()}
    return said if any(hints is not None for hints in said.values()) else None


def _of_resource(nodes: NodeMask, held: Sequence[NodeMask], existing: Sequence[NodeMask]) -> ResourceHints:
    """No preference where any of the devices is near to no node of this machine.

    The kubelet calls that impossible; but it has given the device, so that its pod runs and has to be placed somewhere.
    """
    near = [mask & nodes for mask in held]
    if not near or not all(near):
        return None
    every = [mask & nodes for mask in existing]
    size, exact = _fewest_nodes(nodes, every if len(every) >= len(near) else near, len(near))
    needs = tuple(Need(dict.fromkeys(node_ids(mask), 1), 1) for mask in sorted(set(near)))
    return CapacityHints(nodes, needs, size, exact=exact)


def _fewest_nodes(nodes: NodeMask, existing: Sequence[NodeMask], count: int) -> tuple[int, bool]:
    """The smallest number of nodes near to which `count` devices exist, and whether that is proven; else a lower bound."""
    per_node = {node: sum(mask >> node & 1 for mask in existing) for node in node_ids(nodes)}
    total = size = 0
    # exact where no device is near to two nodes, else a lower bound
    for amount in sorted(per_node.values(), reverse=True):
        if total >= count:
            break
        total, size = total + amount, size + 1
    if all(mask.bit_count() <= 1 for mask in existing):
        return size, True
    everywhere = nodes.bit_count()
    looked_at = 0
    while size < everywhere:
        looked_at += comb(everywhere, size)
        if looked_at > _MOST_MASKS:
            return size, False
        if any(_near(existing, node_mask(some)) >= count for some in combinations(node_ids(nodes), size)):
            return size, True
        size += 1
    return everywhere, True


def _near(existing: Sequence[NodeMask], mask: NodeMask) -> int:
    return sum(1 for nodes in existing if nodes & mask)
