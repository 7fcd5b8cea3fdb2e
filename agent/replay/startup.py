"""Kind `startup`: does the node's configuration start on a fresh state directory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.policy.restore import fresh
from agent.replay.context import Context, JSONObject
from agent.replay.node import cpu_facts, decode_config, start_or_error


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`{"stage", "error"}`, or the reserved, allocatable and shared CPUs of the empty node."""
    managers, error = start_or_error(context.machine(record_input["topology"]), decode_config(record_input["config"]))
    if managers is None:
        return error
    return {**cpu_facts(managers), "default_cpus": str(fresh(managers).cpu.default)}
