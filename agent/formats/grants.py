"""`Grants` as JSON values inside our own state file: sets in kernel list format, sizes in bytes. Not the kubelet's files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.formats.fields import FieldError, Fields, integer, mapping, numbered, text
from agent.model.cpuset import CPUListError, CPUSet, format_list
from agent.model.numa import NodeMask
from agent.model.state import Blocks, CPUState, Grants, MemoryBlock, MemoryState, MemoryTable, NUMANodeState

_TABLE = frozenset({"total", "system_reserved", "allocatable", "reserved", "free"})
_NODE = frozenset({"assignments", "cells", "memory"})
_BLOCK = frozenset({"type", "size", "nodes"})
_CPU = frozenset({"default", "entries", "pod_entries"})
_MEMORY = frozenset({"machine", "entries", "pod_entries"})


def encode_sets(sets: Mapping[str, CPUSet]) -> dict[str, str]:
    """container -> set as text."""
    return {name: str(cpus) for name, cpus in sets.items()}


def encode_blocks(blocks: Blocks) -> list[dict[str, Any]]:
    """Blocks in their order."""
    return [{"type": block.type, "size": block.size, "nodes": format_list(block.nodes)} for block in blocks]


def encode_grants(grants: Grants) -> dict[str, Any]:
    """The fields `cpu` and `memory` of the state file."""
    cpu, memory = grants.cpu, grants.memory
    return {
        "cpu": {
            "default": str(cpu.default),
            "entries": {uid: encode_sets(sets) for uid, sets in cpu.entries.items()},
            "pod_entries": encode_sets(cpu.pod_entries),
        },
        "memory": {
            "machine": {str(node): _encode_node(state) for node, state in memory.machine.items()},
            "entries": {
                uid: {name: encode_blocks(blocks) for name, blocks in held.items()}
                for uid, held in memory.entries.items()
            },
            "pod_entries": {uid: encode_blocks(blocks) for uid, blocks in memory.pod_entries.items()},
        },
    }


def _encode_node(state: NUMANodeState) -> dict[str, Any]:
    return {
        "assignments": state.assignments,
        "cells": format_list(state.cells),
        "memory": {
            kind: {
                "total": table.total,
                "system_reserved": table.system_reserved,
                "allocatable": table.allocatable,
                "reserved": table.reserved,
                "free": table.free,
            }
            for kind, table in state.memory.items()
        },
    }


def decode_set(value: object, path: str) -> CPUSet:
    """A CPU set in kernel list format. Raises FieldError."""
    try:
        return CPUSet.parse(text(value, path))
    except CPUListError as error:
        raise FieldError(path, str(error)) from error


def decode_nodes(value: object, path: str) -> NodeMask:
    """A set of NUMA nodes in kernel list format. Raises FieldError."""
    return decode_set(value, path).mask


def decode_sets(value: object, path: str) -> dict[str, CPUSet]:
    """container -> set. Raises FieldError."""
    return mapping(value, path, decode_set)


def decode_blocks(value: object, path: str) -> Blocks:
    """A list of blocks. Raises FieldError."""
    if not isinstance(value, list):
        raise FieldError(path, "a list is expected")
    return tuple(_decode_block(item, f"{path}[{index}]") for index, item in enumerate(value))


def _decode_block(value: object, path: str) -> MemoryBlock:
    fields = Fields(value, path)
    fields.only(_BLOCK)
    return MemoryBlock(fields.text("type"), fields.integer("size"), fields.value("nodes", decode_nodes))


def decode_grants(cpu: object, memory: object) -> Grants:
    """What `encode_grants` wrote. Raises FieldError, naming the field."""
    cpus, mem = Fields(cpu, "cpu"), Fields(memory, "memory")
    cpus.only(_CPU)
    mem.only(_MEMORY)
    return Grants(
        cpu=CPUState(
            default=cpus.value("default", decode_set),
            entries=cpus.mapping("entries", decode_sets),
            pod_entries=cpus.mapping("pod_entries", decode_set),
        ),
        memory=MemoryState(
            machine=mem.value("machine", lambda value, path: numbered(value, path, _decode_node)),
            entries=mem.mapping("entries", lambda value, path: mapping(value, path, decode_blocks)),
            pod_entries=mem.mapping("pod_entries", decode_blocks),
        ),
    )


def _decode_node(value: object, path: str) -> NUMANodeState:
    fields = Fields(value, path)
    fields.only(_NODE)
    return NUMANodeState(
        assignments=fields.integer("assignments"),
        cells=fields.value("cells", decode_nodes),
        memory=fields.mapping("memory", _decode_table),
    )


def _decode_table(value: object, path: str) -> MemoryTable:
    fields = Fields(value, path)
    fields.only(_TABLE)
    return MemoryTable(**{name: fields.value(name, integer) for name in _TABLE})
