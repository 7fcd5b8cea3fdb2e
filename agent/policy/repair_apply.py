"""The state after a repair: its safe steps alone, or all of them.

`agent.policy.repair` says what must change; here it becomes the next state, with the marks of the pods concerned and, where
something was exchanged, with first-admission sets that follow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.model.cpuset import CPUSet
from agent.model.state import Blocks, FirstGrant, Grants, Mark, MemoryBlock, PodRecord, State
from agent.policy.repair_plan import Change, RepairPlan

# reasons of marks that say what waits: they go when nothing waits any more. CPUsMissing and MemoryShortened stay with the pod.
WAITING_MARKS = frozenset({"CPUsOffline", "CPUsShared", "CPUsReserved", "NUMANodeGone", "MemoryMissing"})


def with_safe_steps(state: State, plan: RepairPlan, change: Change) -> State:
    """The state with the safe steps made; pods that wait for the others are marked. The same object where nothing differs."""
    pods = _marked(state.pods, plan.marks)
    after = replace(state, grants=plan.safe, pods=pods, policy=plan.policy_until_applied(change))
    return state if after == state else replace(after, generation=state.generation + 1)


def with_all_steps(state: State, plan: RepairPlan, change: Change) -> State:
    """The state once all steps are made. What was exchanged in a pod's grant is exchanged in its first-admission set too."""
    pods = dict(_marked(state.pods, plan.marks_after))
    for uid in {uid for step in plan.waiting for uid in step.pods if uid in pods}:
        pods[uid] = replace(pods[uid], first=_first_after(pods[uid].first, uid, plan.safe, plan.whole))
    after = replace(state, grants=plan.whole, pods=pods, policy=change.now)
    return state if after == state else replace(after, generation=state.generation + 1)


def _marked(records: Mapping[str, PodRecord], marks: Mapping[str, Mark]) -> Mapping[str, PodRecord]:
    """Records with these marks in place of the ones that said what waits; other records stay the objects they are."""
    changed = dict(records)
    for uid, record in records.items():
        old = record.degraded
        mark = marks.get(uid, old if old is not None and old.reason not in WAITING_MARKS else None)
        if mark != old:
            changed[uid] = replace(record, degraded=mark)
    return changed


def _first_after(first: FirstGrant, uid: str, before: Grants, after: Grants) -> FirstGrant:
    old, new = FirstGrant.of(before, uid), FirstGrant.of(after, uid)
    return FirstGrant(
        cpus={
            name: swapped
            for name, cpus in first.cpus.items()
            if (swapped := _swapped(cpus, old.cpus.get(name, CPUSet()), new.cpus.get(name, CPUSet())))
        },
        memory={
            name: shortened
            for name, blocks in first.memory.items()
            if (shortened := _shortened(blocks, new.memory.get(name, ())))
        },
        pod_cpus=_swapped(first.pod_cpus, old.pod_cpus or CPUSet(), new.pod_cpus or CPUSet())
        if first.pod_cpus is not None
        else None,
        pod_memory=_shortened(first.pod_memory, new.pod_memory or ()) if first.pod_memory is not None else None,
    )


def _swapped(first: CPUSet, before: CPUSet, after: CPUSet) -> CPUSet:
    """A first set of CPUs after some of the grant were exchanged: as many of the new ones as it lost, and none beyond."""
    lost, gained = first - after, after - before
    return (first & after) | CPUSet.of(cpu for cpu, _ in zip(gained, lost, strict=False))


def _shortened(first: Blocks, after: Blocks) -> Blocks:
    """First blocks cut down to what the grant still has of them."""
    left = {(block.type, number): block for number, block in enumerate(after)}
    result = []
    for block in first:
        match = next((key for key, held in left.items() if key[0] == block.type and held.nodes & block.nodes), None)
        if match is not None:
            held = left.pop(match)
            result.append(MemoryBlock(block.type, min(block.size, held.size), held.nodes & block.nodes))
    return tuple(result)
