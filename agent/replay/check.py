"""Does an answer say what the record wants? The rules of comparison of design section 12.

Only keys of `want` count, except in maps whose keys are data; messages and errors count by their beginning; hints and memory
blocks are sets; null, absent and empty are the same for what grants hold; floats count to 1e-9, integers exactly.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agent.errors import AgentError
from agent.model.quantity import Quantity
from agent.replay.check_safety import unsafe_ops, unsafe_pick
from agent.replay.context import JSONObject
from agent.replay.known import known_difference
from agent.replay.runner import BAD_RECORD

_FLOAT_TOLERANCE = 1e-9
_BY_PREFIX = frozenset({"message", "error", "new_error"})
_AS_SET = frozenset({"hints", "memory", "pod_memory"})
_INFORMATION = frozenset({"stage"})
# maps whose keys are data: an extra key there is a wrong answer
_CLOSED = frozenset(
    {
        "aggregate_container_requests",
        "aggregate_container_limits",
        "pod_requests",
        "pod_limits",
        "container_equivalent_guaranteed",
        "fairShare",
        "filterVictim",
        "cpu",
        "cpu_entries",
        "cpu_pod_entries",
        "memory_entries",
        "memory_pod_entries",
        "machine_state",
        "entries",
        "podEntries",
        "machineState",
        "delta",
        "memory",  # of a machine state: resource -> table
        "memoryMap",
        "hints",  # of the memory manager: resource -> hints
        "inside",
        "memory_entries_of_pod",
    }
)
# maps of maps whose inner keys are data too: containers of a pod, resources of a queue
_CLOSED_INSIDE = frozenset({"cpu_entries", "memory_entries", "entries", "fairShare"})


@dataclass(slots=True)
class Tally:
    """How many records agreed, differed, and differed for a known reason."""

    ok: int = 0
    differ: int = 0
    known: int = 0


def check(record: object, line: JSONObject, tally: Tally, profile: str = "0.18") -> str | None:
    """Compare one answer with its record and count it. The readable difference, or None where there is none."""
    try:
        difference = _difference(record, line, profile)
        known = difference is not None and _is_known(record, line)
    except (AgentError, *BAD_RECORD) as error:  # a `want` that no answer could be
        difference, known = f"the record's want cannot be compared: {type(error).__name__}: {error}", False
    if difference is None:
        tally.ok += 1
    elif known:
        tally.known += 1
    else:
        tally.differ += 1
        return difference
    return None


def _is_known(record: object, line: JSONObject) -> bool:
    output = line.get("output")
    return isinstance(record, Mapping) and isinstance(output, Mapping) and known_difference(record, output) is not None


def _difference(record: object, line: JSONObject, profile: str) -> str | None:
    if not isinstance(record, Mapping) or "output" not in line:
        return str(line.get("error"))
    if "want" not in record:
        return "the record has no want to compare with"
    want, output, kind = record["want"], line["output"], record.get("kind")
    if profile == "main" and isinstance(want, Mapping):
        want = {**want, **(record.get("want_later") or {})}
    if want is None:
        return _safety(record, output)
    errors = record.get("alternative_errors")
    if errors:
        said = output.get("error") or output.get("new_error") or ""
        return None if any(said.startswith(text) for text in errors) else f"error {said!r}, wanted one of {errors}"
    if kind == "admission":
        return _admission(record, output)
    if kind == "capacity_policy":  # its message is information
        want = {rule: {k: v for k, v in answer.items() if k != "message"} for rule, answer in want.items()}
    if kind == "resize_admission":
        want = {k: v for k, v in want.items() if k not in ("message", "oldSpec", "newSpec", "effectiveOld")}
    if kind == "fair_share":  # computed in floats there and here, and written without a point where they are whole
        want = {**want, "fairShare": {queue: _as_floats(shares) for queue, shares in want["fairShare"].items()}}
    if kind == "startup" and "error" not in want and output.get("error"):
        return f"error {output['error']!r}, wanted a start"
    if kind == "take_cpus" and "error" in want and output.get("cpus"):
        return f"cpus {output['cpus']}, wanted error {want['error']!r}"
    return compare(output, want)


def _safety(record: JSONObject, output: JSONObject) -> str | None:
    match record.get("kind"):
        case "take_cpus":
            return unsafe_pick(record["input"], output)
        case "admission":
            ops = output.get("ops") or []
            if len(ops) != len(record["input"]["ops"]):
                return f"{len(ops)} outcomes for {len(record['input']['ops'])} ops"
            return unsafe_ops(record["input"], ops)
    return None


def _admission(record: JSONObject, output: JSONObject) -> str | None:
    """`init`, the first `parity_until` ops, and that everything after them is safe."""
    want, ops = record["want"], output.get("ops") or []
    if len(ops) != len(record["input"]["ops"]):
        return output.get("error") or f"{len(ops)} outcomes for {len(record['input']['ops'])} ops"
    if difference := compare(output.get("init"), want["init"], "init"):
        return difference
    for index in range(record.get("parity_until", len(ops))):
        wanted = want["ops"][index]
        where = f"ops[{index}]"
        if (ops[index].get("boot") or {}).get("error"):
            return f"{where}: does not come up: {ops[index]['boot']['error']}"
        if difference := compare(ops[index], wanted, where):
            return difference
    if record["input"].keys() & {"before", "follows"}:
        return None  # begins on a node in use: the ops alone do not tell who may hold something
    return unsafe_ops(record["input"], ops)


def compare(have: Any, want: Any, where: str = "", key: str = "") -> str | None:
    """The first difference between an answer and what is wanted, with its place; None where there is none."""
    difference = f"{where or 'output'}: {_short(have)}, wanted {_short(want)}"
    if key in _AS_SET and (isinstance(want, list) or want is None):
        return None if _as_set(have) == _as_set(want) else difference
    match want:
        case Mapping():
            if isinstance(want.get("q"), str) and isinstance(have, Mapping):  # not a queue of this name
                return None if _same_quantity(have, want) else difference
            return _compare_maps(have, want, where, key, difference)
        case list():
            if not want and not have:
                return None
            if not isinstance(have, list) or len(have) != len(want):
                return difference
            pairs = enumerate(zip(have, want, strict=True))
            return next((d for i, (a, b) in pairs if (d := compare(a, b, f"{where}[{i}]"))), None)
        case bool() | None:
            return None if have is want or (want is None and have in ([], {})) else difference
        case str():
            if key in _BY_PREFIX:
                return None if isinstance(have, str) and have.startswith(want) else difference
            return None if have == want else difference
        case _:
            if isinstance(have, bool) or not isinstance(have, int | float):
                return difference
            if isinstance(have, int) and isinstance(want, int):  # bytes, CPUs, counts: exactly
                return None if have == want else difference
            return None if abs(have - want) <= _FLOAT_TOLERANCE * max(1.0, abs(want)) else difference


def _compare_maps(have: Any, want: JSONObject, where: str, key: str, difference: str) -> str | None:
    if not want and not have:
        return None
    if not isinstance(have, Mapping):
        return difference
    if key == "delta":
        return None if _amounts(have) == _amounts(want) else difference
    if key in _CLOSED and (extra := {k for k, v in have.items() if v} - set(want)):
        return f"{where}: {sorted(extra)} not wanted"
    for name, wanted in want.items():
        if name in _INFORMATION:
            continue
        # blocks of a pod's containers are keyed by container name: they are sets there too
        inner = "memory" if key in ("memory_entries_of_pod", "memory_pod_entries") else name
        if key == "memory_entries":
            inner = "memory_entries_of_pod"
        elif key in _CLOSED_INSIDE:
            inner = "inside"
        elif key in ("memory", "memoryMap"):
            inner = "table"
        elif key == "hints":  # of the memory manager: a list for each resource
            inner = "hints"
        if found := compare(have.get(name), wanted, f"{where}.{name}" if where else name, inner):
            return found
    return None


def _same_quantity(have: JSONObject, want: JSONObject) -> bool:
    """A quantity: its number counts, not its spelling."""
    try:
        same = Quantity.parse(have.get("q", "")).number == Quantity.parse(want["q"]).number
    except AgentError:
        return False
    return same and all(have.get(k) == v for k, v in want.items() if k != "q")


def _amounts(quantities: JSONObject) -> dict[str, Any]:
    parsed = {name: Quantity.parse(text).number for name, text in quantities.items()}
    return {name: number for name, number in parsed.items() if number}


def _as_floats(shares: JSONObject) -> JSONObject:
    return {resource: float(amount) for resource, amount in shares.items()}


def _as_set(items: Any) -> list[str]:
    rows = []
    for item in items or []:
        if isinstance(item, Mapping) and "size" in item:
            item = [item.get("type"), item.get("size"), item.get("numa")]
        elif isinstance(item, Mapping) and isinstance(item.get("nodes"), list):
            item = {**item, "nodes": sorted(item["nodes"])}
        rows.append(json.dumps(item, sort_keys=True))
    return sorted(rows)


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 160 else text[:157] + "..."
