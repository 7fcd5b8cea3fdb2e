"""Records of kind `take_cpus`: one call of the CPU-picking algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.model.cpuset import CPUSet
from agent.policy.cpu_assignment import NotEnoughCPUs, PickOptions, take_cpus
from agent.replay.context import Context, JSONObject


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`cpus`, or `error` where the request cannot be satisfied. `min_numa_nodes` may be given beside the recorded fields."""
    options = PickOptions(
        distribute_across_numa=record_input["algo"] == "distributed",
        spread_cores=record_input.get("sort") == "spread",
        prefer_uncore=bool(record_input.get("prefer_uncore")),
        cpu_group_size=record_input.get("cpu_group_size") or 1,
    )
    try:
        cpus = take_cpus(
            context.machine(record_input["topology"]).topology,
            CPUSet.parse(record_input["available"]),
            record_input["n"],
            options,
            min_numa_nodes=record_input.get("min_numa_nodes") or 0,
        )
    except NotEnoughCPUs as error:
        return {"error": str(error)}
    return {"cpus": str(cpus)}
