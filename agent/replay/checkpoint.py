"""Records of kind `checkpoint`: a state file of the kubelet -> how far it can be trusted, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.errors import BadInputError
from agent.formats.cpu_checkpoint import read_cpu_checkpoint
from agent.formats.go_json import as_text
from agent.formats.memory_checkpoint import read_memory_checkpoint
from agent.replay.context import Context, JSONObject

READERS = {"cpu": read_cpu_checkpoint, "memory": read_memory_checkpoint}


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """`input` of a record of kind `checkpoint` -> {"verdict", "state"}; machine and configuration do not matter to a reader.

    Raises BadInputError for a manager that is neither cpu nor memory.
    """
    manager = record_input["manager"]
    if manager not in READERS:
        raise BadInputError(f"manager {manager!r} is neither cpu nor memory")
    reading = READERS[manager](as_text(record_input["file"]).encode("utf-8"))
    return {"verdict": reading.verdict, "state": _with_text_keys(reading.fields)}


def _with_text_keys(fields: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The fields with the NUMA ids of `machineState` as the texts that they are in JSON."""
    if fields is None or not fields.get("machineState"):
        return fields
    return {**fields, "machineState": {str(node): tables for node, tables in fields["machineState"].items()}}
