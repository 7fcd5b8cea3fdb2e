"""What records of kinds `startup` and `admission` share: the configuration, and CPU sets and states in their form."""

from __future__ import annotations

from typing import Any

from agent.model.cpuset import CPUSet
from agent.model.machine import Machine
from agent.model.numa import node_ids
from agent.model.state import Blocks, Grants
from agent.policy.managers import ManagerConfig, Managers, StartError, start
from agent.replay.context import JSONObject


def decode_config(config: JSONObject) -> ManagerConfig:
    """`input.config` of a record."""
    node_reserved = config.get("node_reserved_memory")
    return ManagerConfig(
        cpu_policy=config["cpu_policy"],
        cpu_options=config.get("cpu_options") or {},
        reserved_cpus=CPUSet.parse(config.get("reserved_cpus") or ""),
        reserved_cpu_millis=config.get("reserved_cpu_millis"),
        memory_policy=config.get("memory_policy") or "None",
        reserved_memory={int(node): amounts for node, amounts in (config.get("reserved_memory") or {}).items()},
        node_reserved_memory=None if node_reserved is None else dict(node_reserved),
        topology_policy=config.get("topology_policy") or "none",
        topology_scope=config.get("topology_scope") or "container",
        topology_options=config.get("topology_options") or {},
        feature_gates=config.get("feature_gates") or {},
        kubelet_version=config.get("kubelet_version") or "1.36",
        min_shared_cpus=config.get("min_shared_cpus"),
    )


def start_or_error(machine: Machine, config: ManagerConfig) -> tuple[Managers | None, dict[str, Any]]:
    """The managers, or `{"stage", "error"}` as the records spell a refused start."""
    try:
        return start(machine, config), {}
    except StartError as error:
        return None, {"stage": error.stage, "error": str(error)}


def cpu_facts(managers: Managers) -> dict[str, Any]:
    """Reserved and allocatable CPUs as the records name them: the first two are absent with CPU policy none."""
    if managers.cpu is None:
        return {"allocatable_cpus": ""}
    return {
        "reserved_cpus": str(managers.cpu.reserved),
        "reserved_physical_cpus": str(managers.cpu.reserved_physical),
        "allocatable_cpus": str(managers.cpu.allocatable),
    }


def encode_grants(grants: Grants) -> dict[str, Any]:
    """`state` of a record."""
    return {
        "shared_cpus": str(grants.cpu.default),
        "cpu_entries": {uid: {c: str(s) for c, s in entry.items()} for uid, entry in grants.cpu.entries.items()},
        "cpu_pod_entries": {uid: str(cpus) for uid, cpus in grants.cpu.pod_entries.items()},
        "memory_entries": {
            uid: {container: triples(blocks) for container, blocks in entry.items()}
            for uid, entry in grants.memory.entries.items()
        },
        "memory_pod_entries": {uid: triples(blocks) for uid, blocks in grants.memory.pod_entries.items()},
        "machine_state": {
            str(node): {
                "assignments": state.assignments,
                "cells": list(node_ids(state.cells)),
                "memory": {
                    resource: {"allocatable": table.allocatable, "reserved": table.reserved, "free": table.free}
                    for resource, table in state.memory.items()
                },
            }
            for node, state in grants.memory.machine.items()
        },
    }


def triples(blocks: Blocks) -> list[list[Any]]:
    """Memory blocks as `[type, size, [nodes]]`."""
    return [[block.type, block.size, list(node_ids(block.nodes))] for block in blocks]
