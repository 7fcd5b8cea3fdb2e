"""Records of kind `take_cpus`: one call of the CPU-picking algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet
from agent.policy.cpu_assignment import NotEnoughCPUs, PickOptions, take_cpus
from agent.replay.context import Context, JSONObject


def _is(record_input: JSONObject, field: str, word: str, other: str) -> bool:
    """Whether a field holds `word`; absent and `other` are no. Raises BadInputError for anything else."""
    value = record_input.get(field, other)
    if value not in (word, other):
        raise BadInputError(f"{field} {value!r} is neither {word!r} nor {other!r}")
    return bool(value == word)


def _count(record_input: JSONObject, field: str, least: int) -> int:
    value = record_input.get(field)
    if value is None and field != "n":
        return least
    if type(value) is not int or value < least:
        raise BadInputError(f"{field} {value!r} is not a whole number from {least} on")
    return value


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`cpus`, or `error` where the request cannot be satisfied. `min_numa_nodes` may be given beside the recorded fields.

    Raises BadInputError for a field with a value that it cannot have.
    """
    options = PickOptions(
        distribute_across_numa=_is(record_input, "algo", "distributed", "packed"),
        spread_cores=_is(record_input, "sort", "spread", "packed"),
        prefer_uncore=bool(record_input.get("prefer_uncore")),
        cpu_group_size=_count(record_input, "cpu_group_size", 1),
    )
    try:
        cpus = take_cpus(
            context.machine(record_input["topology"]).topology,
            CPUSet.parse(record_input["available"]),
            _count(record_input, "n", 0),
            options,
            min_numa_nodes=_count(record_input, "min_numa_nodes", 0),
        )
    except NotEnoughCPUs as error:
        return {"error": str(error)}
    return {"cpus": str(cpus)}
