"""A machine as JSON: the output of `pinfold topology -o json`, with one row per CPU, group and NUMA node.

CPU lists are in kernel syntax ("0-3,8") and groups hold online CPUs only. A `*_key` is the lowest online CPU of the group, so it
is unique over the machine; the names without `_key` are the kernel's own numbers, -1 included. null: the machine does not say.
`format` counts up when a field changes its meaning; new fields may come without notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from agent.model.cpuset import CPUSet, format_list
from agent.model.topology import CPU, Cache, Hybrid, NodeKind, NUMANode, Topology

JSON: TypeAlias = "str | int | bool | Sequence[JSON] | dict[str, JSON] | None"
FORMAT = 1


def topology_object(topology: Topology) -> dict[str, JSON]:
    """The machine as the object that `render_json` writes."""
    return {
        "format": FORMAT,
        "cpus": _lists(topology),
        "counts": _counts(topology),
        "llc": _llc(topology),
        "packages": [{"key": row.key, "id": row.id, "cpus": str(row.cpus)} for row in topology.packages],
        "cores": [str(core) for core in topology.cores],
        "numa": [_node(node) for node in topology.numa],
        "cpu": _cpu_rows(topology),
        "node_states": {name: format_list(nodes) for name, nodes in topology.node_states or ()},
        "hybrid": _hybrid(topology.hybrid),
        "notes": list(topology.notes),
    }


def render_json(topology: Topology) -> str:
    """`topology_object` as text, one line per row so that people can read it and diffs stay small."""
    return f"{_block(topology_object(topology), depth=0)}\n"


def _block(value: JSON, depth: int) -> str:
    """Objects and lists of objects are broken into lines down to the rows; whatever lies below stays on one line."""
    inner = " " * (depth + 1)
    if isinstance(value, dict) and value and depth < 2:
        lines = [f"{inner}{json.dumps(name)}: {_block(item, depth + 1)}" for name, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{' ' * depth}}}"
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        return "[\n" + ",\n".join(f"{inner}{json.dumps(item)}" for item in value) + f"\n{' ' * depth}]"
    return json.dumps(value)


def _lists(topology: Topology) -> dict[str, JSON]:
    lists = topology.lists
    return {
        "possible": _text(lists.possible),
        "present": _text(lists.present),
        "online": str(lists.online),
        "offline": str(lists.offline),
        "offline_file": _text(lists.offline_file),
        "directories": str(lists.directories),
    }


def _text(cpus: CPUSet | None) -> str | None:
    return None if cpus is None else str(cpus)


def _counts(topology: Topology) -> dict[str, JSON]:
    threads = topology.threads_per_core
    return {
        "online_cpus": len(topology.cpus),
        "packages": len(topology.packages),
        "numa_nodes": len(topology.numa),
        "numa_nodes_with_cpus": sum(1 for node in topology.numa if node.cpus),
        "numa_nodes_memory_only": sum(1 for node in topology.numa if node.kind is NodeKind.MEMORY_ONLY),
        "cores": len(topology.cores),
        "llc_groups": len(topology.llc),
        "threads_per_core": threads[0] if len(threads) == 1 else None,
        "threads_per_core_seen": list(threads),
        "dies": None if topology.dies is None else len(topology.dies),
        "clusters": None if topology.clusters is None else len(topology.clusters),
    }


def _llc(topology: Topology) -> dict[str, JSON]:
    return {
        "level": _one_or_all(sorted({cache.level for cache in topology.llc if cache.level is not None})),
        "type": _one_or_all(sorted({cache.type for cache in topology.llc if cache.type is not None})),
        "fallback": topology.llc_is_package,
        "groups": [_cache(cache) for cache in topology.llc],
    }


def _one_or_all(values: Sequence[JSON]) -> JSON:
    """null, the only value, or the list of the values where CPUs differ."""
    if len(values) < 2:
        return values[0] if values else None
    return list(values)


def _cache(cache: Cache) -> dict[str, JSON]:
    return {
        "key": cache.key,
        "cpus": str(cache.cpus),
        "level": cache.level,
        "size": None if cache.size_kib is None else f"{cache.size_kib}K",
        "id": cache.id,
    }


def _node(node: NUMANode) -> dict[str, JSON]:
    pages: dict[str, JSON] = {
        f"{size.size_kib}kB": {"nr": size.nr, "free": size.free, "surplus": size.surplus} for size in node.hugepages
    }
    return {
        "id": node.id,
        "kind": node.kind.value,
        "cpus": str(node.cpus),
        "memory_bytes": node.memory_bytes,
        "distances": None if node.distances is None else list(node.distances),
        "hugepages": pages,
        "local_cpus": str(node.local_cpus),
    }


def _cpu_rows(topology: Topology) -> list[JSON]:
    siblings = {cpu: str(core) for core in topology.cores for cpu in core}
    return [_cpu(cpu, siblings[cpu.id]) for cpu in topology.cpus]


def _cpu(cpu: CPU, siblings: str) -> dict[str, JSON]:
    return {
        "cpu": cpu.id,
        "package": cpu.package_id,
        "package_key": cpu.package,
        "core_id": cpu.core_id,
        "core_key": cpu.core,
        "siblings": siblings,
        "node": cpu.node,
        "llc_key": cpu.llc,
        "die": cpu.die_id,
        "die_key": cpu.die,
        "cluster": cpu.cluster_id,
        "cluster_key": cpu.cluster,
        "book": cpu.book_id,
        "drawer": cpu.drawer_id,
        "capacity": cpu.capacity,
    }


def _hybrid(hybrid: Hybrid | None) -> dict[str, JSON] | None:
    if hybrid is None:
        return None
    return {"capacities": list(hybrid.capacities), "pmu_groups": _groups(hybrid.pmu_groups)}


def _groups(groups: Iterable[tuple[str, CPUSet]]) -> dict[str, JSON]:
    return {name: str(cpus) for name, cpus in groups}
