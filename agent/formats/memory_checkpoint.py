"""`memory_manager_state` in every version: V1, V2 (and pods), V3 (the same as a string beside V1).

Byte by byte: checkpoints/FORMATS.md. Source: kubelet cm/memorymanager/state/checkpoint.go and state.go; KEP-1769, KEP-5526.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from agent.formats.checkpoint import (
    CheckpointError,
    Form,
    Reading,
    Verdict,
    data_matches,
    matching_form,
    read_data,
    read_object,
    seal,
    with_data,
)
from agent.formats.go_json import GoJSONError, decode, encode
from agent.formats.go_types import (
    CHECKSUM,
    INT,
    STRING,
    UINT64,
    GoField,
    GoFields,
    GoMap,
    GoPointer,
    GoSlice,
    GoString,
    GoStruct,
)
from agent.model.numa import MAX_NODES, NodeMask, node_ids, node_mask
from agent.model.state import Blocks, MemoryBlock, MemoryState, MemoryTable, NUMANodeState


class MemoryVersion(StrEnum):
    """The versions that can be written. V3_INTERIM: the V3 of 1.37 before its release, with checksum 0."""

    V1 = "v1"
    V2 = "v2"
    V3 = "v3"
    V3_INTERIM = "v3-interim"


_INTS = GoSlice("[]int", INT)
_RESOURCE = GoString("v1.ResourceName")
_TABLE = GoStruct(
    "state.MemoryTable",
    (
        GoField("TotalMemSize", "total", UINT64),
        GoField("SystemReserved", "systemReserved", UINT64),
        GoField("Allocatable", "allocatable", UINT64),
        GoField("Reserved", "reserved", UINT64),
        GoField("Free", "free", UINT64),
    ),
)
_NODE = GoStruct(
    "state.NUMANodeState",
    (
        GoField("NumberOfAssignments", "numberOfAssignments", INT),
        GoField("MemoryMap", "memoryMap", GoMap("map[v1.ResourceName]*state.MemoryTable", GoPointer(_TABLE))),
        GoField("Cells", "cells", _INTS),
    ),
)
_BLOCK = GoStruct(
    "state.Block",
    (
        GoField("NUMAAffinity", "numaAffinity", _INTS),
        GoField("Type", "type", _RESOURCE),
        GoField("Size", "size", UINT64),
    ),
)
_BLOCKS = GoSlice("[]state.Block", _BLOCK)
_POD_ENTRY = GoStruct("state.PodEntry", (GoField("MemoryBlocks", "memoryBlocks", _BLOCKS, omit_empty=True),))

_HEAD = (
    GoField("PolicyName", "policyName", STRING),
    GoField("MachineState", "machineState", GoMap("state.NUMANodeMap", GoPointer(_NODE), int_keys=True)),
    GoField(
        "Entries",
        "entries",
        GoMap("state.ContainerMemoryAssignments", GoMap("map[string][]state.Block", _BLOCKS)),
        omit_empty=True,
    ),
)
_PODS = GoField("PodEntries", "podEntries", GoMap("state.PodMemoryAssignments", _POD_ENTRY), omit_empty=True)
_CHECKSUM = GoField("Checksum", "checksum", CHECKSUM)
_TAIL = (GoField("Data", "data", STRING), GoField("DataChecksum", "dataChecksum", CHECKSUM))

_NAME = "state.MemoryManagerCheckpoint"
_V1 = Form("v1", GoStruct(_NAME, (*_HEAD, _CHECKSUM)), (_NAME, f"{_NAME}V1"))
_V2 = Form("v2", GoStruct(_NAME, (*_HEAD, _PODS, _CHECKSUM)), (_NAME, f"{_NAME}V2"))
_DATA = GoStruct("state.MemoryManagerCheckpointData", (*_HEAD, _PODS))
_FILE = GoStruct(_NAME, (*_HEAD, _PODS, _CHECKSUM, *_TAIL))
_V3 = GoStruct(_NAME, (*_HEAD, _CHECKSUM, *_TAIL))

_EMPTY: Mapping[str, Any] = {"policyName": "", "machineState": {}, "entries": {}, "podEntries": {}}
_EMPTY_FILE: Mapping[str, Any] = {**_EMPTY, "checksum": 0, "data": "", "dataChecksum": 0}


def read_memory_checkpoint(data: bytes) -> Reading:
    """What a `memory_manager_state` says and how far it can be trusted. Raises nothing: trouble is a verdict."""
    try:
        fields = decode(_FILE, read_object(data), dict(_EMPTY_FILE))
    except GoJSONError as error:
        return Reading(Verdict.UNREADABLE, why=str(error))
    matched = matching_form((_V1, _V2), fields) if fields["checksum"] else None
    data_ok = data_matches(fields)
    version = "v3" if fields["data"] else "v2" if fields["podEntries"] else matched.version if matched else "v1"
    if fields["checksum"] and matched is None:
        return Reading(Verdict.DAMAGED, version, why=f"checksum {fields['checksum']} does not match the content")
    if data_ok is False:
        return Reading(Verdict.DAMAGED, version, why=f"dataChecksum {fields['dataChecksum']} does not match data")
    newest: Mapping[str, Any] = {name: fields[name] for name in _EMPTY}
    if fields["data"]:
        try:
            newest = read_data(_DATA, fields["data"], dict(_EMPTY))
        except GoJSONError as error:
            return Reading(Verdict.UNREADABLE, why=str(error))
    verdict = Verdict.VALID if matched or data_ok else Verdict.UNVERIFIED
    differs = any(
        (newest[name] or None) != (fields[name] or None) for name in ("policyName", "machineState", "entries")
    )
    return Reading(verdict, version, newest, inline_differs=differs)


def memory_state(reading: Reading) -> MemoryState:
    """The content as a value.

    Raises CheckpointError where there is no content, a table is null or a NUMA node's id is absurd.
    """
    fields = reading.content()
    return MemoryState(
        machine={_node_id(node): _decode_node(node, state) for node, state in (fields["machineState"] or {}).items()},
        entries={
            uid: {name: _decode_blocks(blocks) for name, blocks in (held or {}).items()}
            for uid, held in (fields["entries"] or {}).items()
        },
        pod_entries={uid: _decode_blocks(pod["memoryBlocks"]) for uid, pod in (fields["podEntries"] or {}).items()},
    )


def _node_id(node: int) -> int:
    if not 0 <= node < MAX_NODES:
        raise CheckpointError(f"NUMA node {node} is not between 0 and {MAX_NODES - 1}")
    return node


def _mask(nodes: Iterable[int] | None) -> NodeMask:
    return node_mask(_node_id(node) for node in nodes or ())


def _decode_node(node: int, state: Mapping[str, Any] | None) -> NUMANodeState:
    if state is None or None in (state["memoryMap"] or {}).values():
        raise CheckpointError(f"machineState of NUMA node {node} is null or has a null table")
    tables = {
        kind: MemoryTable(
            total=table["total"],
            system_reserved=table["systemReserved"],
            allocatable=table["allocatable"],
            reserved=table["reserved"],
            free=table["free"],
        )
        for kind, table in (state["memoryMap"] or {}).items()
    }
    return NUMANodeState(state["numberOfAssignments"], _mask(state["cells"]), tables)


def _decode_blocks(blocks: Iterable[Mapping[str, Any]] | None) -> Blocks:
    return tuple(MemoryBlock(block["type"], block["size"], _mask(block["numaAffinity"])) for block in blocks or ())


def write_memory_checkpoint(policy: str, state: MemoryState, version: MemoryVersion) -> bytes:
    """The file that a kubelet of this version would have written, checksum included.

    policy: "Static" or "None". Bubbles exist from V2 on; before, they are left out.
    """
    content: GoFields = {
        "policyName": policy,
        "machineState": {node: _encode_node(tables) for node, tables in state.machine.items()},
        "entries": {
            uid: {name: _encode_blocks(blocks) for name, blocks in held.items()} for uid, held in state.entries.items()
        },
        "podEntries": {uid: {"memoryBlocks": _encode_blocks(blocks)} for uid, blocks in state.pod_entries.items()},
    }
    match version:
        case MemoryVersion.V1:
            return encode(_V1.type, seal(_V1, content)).encode()
        case MemoryVersion.V2:
            return encode(_V2.type, seal(_V2, content)).encode()
        case MemoryVersion.V3:
            return encode(_V3, with_data(_DATA, seal(_V1, content))).encode()
        case MemoryVersion.V3_INTERIM:
            return encode(_V3, with_data(_DATA, {**content, "checksum": 0})).encode()


def _encode_node(state: NUMANodeState) -> GoFields:
    return {
        "numberOfAssignments": state.assignments,
        "memoryMap": {
            kind: {
                "total": table.total,
                "systemReserved": table.system_reserved,
                "allocatable": table.allocatable,
                "reserved": table.reserved,
                "free": table.free,
            }
            for kind, table in state.memory.items()
        },
        "cells": list(node_ids(state.cells)),
    }


def _encode_blocks(blocks: Blocks) -> list[GoFields]:
    return [{"numaAffinity": list(node_ids(block.nodes)), "type": block.type, "size": block.size} for block in blocks]
