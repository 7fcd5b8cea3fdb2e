"""What was known of a pod's devices, as a recorded decision has it: NUMA nodes as lists, `[]` where a device has none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.formats.fields import FieldError, Fields, integer, mapping
from agent.model.devices import DeviceNodes, PodDevices
from agent.model.numa import MAX_NODES, NodeMask, node_ids, node_mask


def encode_devices(devices: PodDevices) -> dict[str, Any]:
    """`{"containers": {NAME: {RESOURCE: [[NODE, ...], ...]}}, "allocatable": {RESOURCE: [[NODE, ...], ...]}}`."""
    return {
        "containers": {name: _encode(held) for name, held in devices.containers.items()},
        "allocatable": _encode(devices.allocatable),
    }


def decode_devices(value: object, path: str) -> PodDevices:
    """The reverse. Raises FieldError."""
    fields = Fields(value, path)
    return PodDevices(fields.mapping("containers", _decode), fields.value("allocatable", _decode))


def _encode(devices: DeviceNodes) -> dict[str, list[list[int]]]:
    return {resource: [list(node_ids(mask)) for mask in masks] for resource, masks in devices.items()}


def _decode(value: object, path: str) -> Mapping[str, tuple[NodeMask, ...]]:
    return mapping(value, path, _masks)


def _masks(value: object, path: str) -> tuple[NodeMask, ...]:
    if not isinstance(value, list):
        raise FieldError(path, "a list of devices is expected")
    return tuple(_nodes(each, f"{path}[{index}]") for index, each in enumerate(value))


def _nodes(value: object, path: str) -> NodeMask:
    if not isinstance(value, list):
        raise FieldError(path, "a list of NUMA nodes is expected")
    nodes = [integer(each, f"{path}[{index}]") for index, each in enumerate(value)]
    if max(nodes, default=0) >= MAX_NODES:
        raise FieldError(path, f"a NUMA node above {MAX_NODES - 1}")
    return node_mask(nodes)
