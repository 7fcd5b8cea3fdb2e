"""Records of kind `topology_hints`: what the managers say of NUMA placement, and what the topology manager makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask, node_ids, node_mask
from agent.model.state import MemoryTable, NUMANodeState
from agent.policy.hint_family import Hint, ProviderHints, ResourceHints
from agent.policy.hints import cpu_hints, enumerate_hints, memory_hints
from agent.policy.topology_manager import merge
from agent.policy.topology_options import TopologyOptionError, TopologyScope, validate_topology_options
from agent.replay.context import Context, JSONObject


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """Answer one of the calls `cpu_hints`, `memory_hints` and `merge`. Raises BadInputError for any other."""
    match record_input["call"]:
        case "cpu_hints":
            return {"hints": _encode(_cpu_hints(record_input, context))}
        case "memory_hints":
            return {"hints": {resource: _encode(hints) for resource, hints in _memory_hints(record_input).items()}}
        case "merge":
            return _merge(record_input)
        case call:
            raise BadInputError(f"unknown call {call!r}: it is one of cpu_hints, memory_hints, merge")


def _cpu_hints(record: JSONObject, context: Context) -> ResourceHints:
    return cpu_hints(
        context.machine(record["topology"]).topology,
        CPUSet.parse(record["available"]),
        CPUSet.parse(record["reusable"]),
        record["n"],
        align_by_socket=record["align_by_socket"],
    )


def _memory_hints(record: JSONObject) -> Mapping[str, ResourceHints]:
    return memory_hints(
        {int(node): _node_state(state) for node, state in record["machine_state"].items()},
        record["request"],
        {CPUSet.parse(nodes).mask: amounts for nodes, amounts in (record.get("reusable") or {}).items()},
    )


def _node_state(record: JSONObject) -> NUMANodeState:
    tables = {
        resource: MemoryTable(
            total=table["total"],
            system_reserved=table["systemReserved"],
            allocatable=table["allocatable"],
            reserved=table["reserved"],
            free=table["free"],
        )
        for resource, table in record["memoryMap"].items()
    }
    return NUMANodeState(record["numberOfAssignments"], node_mask(record["cells"]), tables)


def _merge(record: JSONObject) -> Mapping[str, Any]:
    numa_nodes: NodeMask = node_mask(record["numa_nodes"])
    distances = {int(node): tuple(row) for node, row in (record.get("distances") or {}).items()}
    try:
        policy = validate_topology_options(
            record["policy"], TopologyScope.CONTAINER, record.get("options") or {}, numa_nodes, distances
        )
    except TopologyOptionError as error:
        return {"new_error": str(error)}
    merged = merge(numa_nodes, distances, policy, [_decode_provider(provider) for provider in record["providers"]])
    return {"best": _encode_hint(merged.best), "admit": merged.admit, "exact": merged.exact}


def _decode_provider(provider: JSONObject | None) -> ProviderHints:
    if provider is None:
        return None
    return {
        resource: None if hints is None else tuple(_decode_hint(hint) for hint in hints)
        for resource, hints in provider.items()
    }


def _decode_hint(hint: JSONObject) -> Hint:
    return Hint(None if hint["nodes"] is None else node_mask(hint["nodes"]), hint["preferred"])


def _encode(hints: ResourceHints) -> list[dict[str, Any]]:
    return [_encode_hint(hint) for hint in enumerate_hints(hints)]


def _encode_hint(hint: Hint) -> dict[str, Any]:
    return {"nodes": None if hint.affinity is None else list(node_ids(hint.affinity)), "preferred": hint.preferred}
