"""What must hold of every answer, demanded by a record or not: nobody holds another's CPUs, nothing belongs to the gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agent.model.cpuset import CPUSet, union
from agent.replay.context import JSONObject


def unsafe_pick(record_input: JSONObject, output: JSONObject) -> str | None:
    """A pick of CPUs: the right size, and only CPUs that were available. An error is safe."""
    if output.get("error") is not None:
        return None
    cpus = CPUSet.parse(output["cpus"])
    if len(cpus) != record_input["n"] or not cpus <= CPUSet.parse(record_input["available"]):
        return f"unsafe: {cpus} is not {record_input['n']} of {record_input['available']}"
    return None


def unsafe_ops(record_input: JSONObject, outcomes: Sequence[JSONObject]) -> str | None:
    """A scenario: after every op no CPU has two owners, ended pods hold nothing, and running pods keep what they have."""
    running: set[str] = set()
    held: dict[str, CPUSet] = {}
    down = False
    for index, (op, outcome) in enumerate(zip(record_input["ops"], outcomes, strict=True)):
        fresh = ""
        match op["op"]:
            case "admit":
                if not outcome.get("admitted"):
                    continue
                fresh = op["pod"]["metadata"]["uid"]
                running.add(fresh)
            case "remove":
                running.discard(op["uid"])
            case "restart":
                running -= set(op.get("drop") or [])
                down = bool((outcome.get("boot") or {}).get("error"))
                policy = record_input["config"]["cpu_policy"]
                if (op.get("config") or {}).get("cpu_policy", policy) != policy:
                    held = {}  # another policy: what becomes of the grants is the plan's business
        state = outcome.get("state")
        if not state:
            if down:
                continue
            return f"ops[{index}]: unsafe: no state"
        owned = _owned(state)
        if found := _violation(state, owned, running):
            return f"ops[{index}]: unsafe: {found}"
        for uid in (running & set(held)) - {fresh}:
            if owned.get(uid, CPUSet()) != held[uid]:
                return f"ops[{index}]: unsafe: {uid} held {held[uid]}, now {owned.get(uid, CPUSet())}"
        held = {uid: owned.get(uid, CPUSet()) for uid in running}
    return None


def _owned(state: Mapping[str, Any]) -> dict[str, CPUSet]:
    entries, bubbles = state.get("cpu_entries") or {}, state.get("cpu_pod_entries") or {}
    return {
        uid: union(map(CPUSet.parse, [*(entries.get(uid) or {}).values(), bubbles.get(uid) or ""]))
        for uid in {*entries, *bubbles}
    }


def _violation(state: Mapping[str, Any], owned: Mapping[str, CPUSet], running: set[str]) -> str | None:
    holders = {*owned, *(state.get("memory_entries") or {}), *(state.get("memory_pod_entries") or {})}
    if gone := sorted(holders - running):
        return f"held by pods that are gone: {gone}"
    seen = CPUSet.parse(state.get("shared_cpus") or "")
    for uid, cpus in sorted(owned.items()):
        if cpus & seen:
            return f"{uid} shares CPUs {cpus & seen}"
        seen |= cpus
    return None
