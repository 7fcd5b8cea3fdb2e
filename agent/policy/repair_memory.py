"""The memory part of a repair: a NUMA node's tables are its size, less reservation and hugepages, less what pods hold.

What pods hold is in their blocks, so tables can be counted anew. Totals differ a little after every boot; what matters is
whether all that was promised is still there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.model.cpuset import format_list
from agent.model.numa import node_mask
from agent.model.state import Blocks, Mark, MemoryState, nodes_of
from agent.policy.go_text import print_bytes
from agent.policy.memory_count import Count, charged_blocks, count
from agent.policy.memory_static import MachineState, MemoryManager, fresh_machine_state
from agent.policy.repair_plan import Change, Holders, Rule, Step


@dataclass(frozen=True, slots=True)
class MemoryRepair:
    """Like `RepairPlan`, for memory alone."""

    steps: tuple[Step, ...]
    safe: MemoryState
    whole: MemoryState
    marks: Mapping[str, Mark] = field(default_factory=dict)
    marks_after: Mapping[str, Mark] = field(default_factory=dict)


def repair_memory(manager: MemoryManager | None, memory: MemoryState, change: Change, holders: Holders) -> MemoryRepair:
    """manager: the Static policy as it is now, None with policy None."""
    if manager is None:
        return _policy_off(memory, change, holders)
    fresh = fresh_machine_state(manager)
    counted = count(fresh, memory)
    steps: list[Step] = []
    if change.was is not None and change.was.memory_policy == "None":
        text = "memoryManagerPolicy is Static now; pods that run already hold no memory"
        steps.append(Step(Rule.POLICY_CHANGED, True, text))
    if memory.machine:
        steps += _recounted(memory.machine, counted)
        steps += _nodes_changed(memory.machine, fresh, change)
    trimmed, gone_steps, gone_marks = _leave_gone_nodes(memory, fresh, holders)
    whole, short_steps, short_marks = _shorten(fresh, replace(trimmed, machine=counted.machine), change, holders)
    marks = {**short_marks, **gone_marks}
    return MemoryRepair(
        (*steps, *gone_steps, *short_steps),
        replace(memory, machine=counted.machine),
        whole,
        marks,
        # the memory stays away: the pods hold less than they were granted until they end
        {uid: Mark("MemoryShortened", f"{mark.message}: taken off its grant") for uid, mark in marks.items()},
    )


def _policy_off(memory: MemoryState, change: Change, holders: Holders) -> MemoryRepair:
    held = tuple(uid for uid in holders.order if charged_blocks(memory, uid))
    if held:
        pods = ", ".join(map(holders.name, held))
        text = f"memoryManagerPolicy is None now, but pods hold memory and keep it until they end: {pods}"
        return MemoryRepair((Step(Rule.POLICY_CHANGED, False, text, held),), memory, MemoryState())
    if change.was is not None and change.was.memory_policy != "None":
        step = Step(Rule.POLICY_CHANGED, True, "memoryManagerPolicy is None now; no pod holds memory")
        return MemoryRepair((step,), MemoryState(), MemoryState())
    return MemoryRepair((), MemoryState(), MemoryState())


def _recounted(old: MachineState, counted: Count) -> Iterator[Step]:
    """Tables that are not the sum of what pods hold, as after a write of theirs was lost."""
    for node, state in old.items():
        new = counted.machine.get(node)
        if new is None:
            continue
        faults = [
            f"{resource} {print_bytes(table.reserved)} reserved and {print_bytes(table.free)} free of "
            f"{print_bytes(table.allocatable)}, pods hold {print_bytes(held)}"
            for resource, table in state.memory.items()
            if (held := counted.reserved.get((node, resource), 0)) != table.reserved
            or (table.reserved + table.free != table.allocatable and table.reserved <= table.allocatable)
        ]
        if state.assignments != new.assignments:
            faults.append(f"{state.assignments} blocks counted, {new.assignments} there")
        if state.cells != new.cells:
            faults.append(f"grouped with {format_list(state.cells)}, blocks say {format_list(new.cells)}")
        if faults:
            yield Step(Rule.MEMORY_RECOUNTED, True, f"NUMA node {node}: {'; '.join(faults)}: counted anew")


def _nodes_changed(old: MachineState, fresh: MachineState, change: Change) -> Iterator[Step]:
    """Sizes and reservations that differ from when the state was written."""
    for node, state in fresh.items():
        if node not in old:
            yield Step(Rule.NUMA_NODE_ADDED, True, f"NUMA node {node} is new: its memory can be granted")
            continue
        tables = old[node].memory
        for resource in sorted({*tables, *state.memory}):
            before, after = tables.get(resource), state.memory.get(resource)
            was, now = (before.total if before else 0), (after.total if after else 0)
            if was != now:
                drift = resource == "memory" and abs(was - now) <= change.tolerance_bytes
                rule = Rule.MEMORY_DRIFT if drift else Rule.MEMORY_CHANGED
                sign = "more" if now > was else "less"
                text = f"NUMA node {node} has {now} bytes of {resource}, {abs(now - was)} {sign} than before"
                yield Step(rule, True, text)
            kept, keeps = (before.system_reserved if before else 0), (after.system_reserved if after else 0)
            if kept != keeps:
                text = f"NUMA node {node}: {print_bytes(keeps)} of {resource} are reserved, {print_bytes(kept)} were"
                yield Step(Rule.MEMORY_CHANGED, True, text)


def _leave_gone_nodes(
    memory: MemoryState, fresh: MachineState, holders: Holders
) -> tuple[MemoryState, list[Step], dict[str, Mark]]:
    """Blocks without the nodes that are not there any more; a block that lies on those alone is gone."""
    present = node_mask(fresh)
    steps, marks = [], {}
    for uid in holders.order:
        gone = nodes_of(charged_blocks(memory, uid)) & ~present
        if gone:
            text = f"pod {holders.name(uid)} holds memory of NUMA nodes {format_list(gone)}, which are gone"
            marks[uid] = Mark("NUMANodeGone", text)
            steps.append(Step(Rule.NUMA_NODE_GONE, False, text, (uid,)))
    idle = sorted(node for node in memory.machine if node not in fresh)
    if idle:
        text = f"NUMA nodes {format_list(node_mask(idle))} are gone: nothing more is granted there"
        steps.insert(0, Step(Rule.NUMA_NODE_GONE, True, text))
    if not marks:
        return memory, steps, marks

    def trim(blocks: Blocks) -> Blocks:
        return tuple(replace(block, nodes=block.nodes & present) for block in blocks if block.nodes & present)

    return _with_blocks(memory, dict.fromkeys(marks, trim)), steps, marks


def _shorten(
    fresh: MachineState, memory: MemoryState, change: Change, holders: Holders
) -> tuple[MemoryState, list[Step], dict[str, Mark]]:
    """Blocks shortened to what is there: on every short node those of the pods admitted last give way first."""
    given: dict[tuple[str, int, str], int] = {}
    while True:
        counted = count(fresh, memory)
        memory = replace(memory, machine=counted.machine)
        taken = _one_shorter(memory, counted, change, holders)
        if taken is None:
            break
        memory, key, size = taken
        given[key] = given.get(key, 0) + size
    steps: list[Step] = []
    marks: dict[str, Mark] = {}
    for (uid, node, resource), size in given.items():
        text = f"pod {holders.name(uid)} holds {size} bytes of {resource} on NUMA node {node} that are not there"
        marks.setdefault(uid, Mark("MemoryMissing", text))
        steps.append(Step(Rule.MEMORY_SHORT, False, text, (uid,)))
    return memory, steps, marks


def _one_shorter(
    memory: MemoryState, counted: Count, change: Change, holders: Holders
) -> tuple[MemoryState, tuple[str, int, str], int] | None:
    """The last pod's blocks on the first short node shortened; None where no node is short beyond the tolerance."""
    for (node, resource), missing in counted.shortages().items():
        if resource == "memory" and missing <= change.tolerance_bytes:
            continue
        for uid in reversed(holders.order):
            shorter, taken = _take_back(memory, uid, node, resource, missing)
            if taken:
                return shorter, (uid, node, resource), taken
    return None


def _take_back(memory: MemoryState, uid: str, node: int, resource: str, missing: int) -> tuple[MemoryState, int]:
    """At most `missing` bytes off this pod's blocks on the node; the bytes that came off."""
    left = missing

    def shorten(blocks: Blocks) -> Blocks:
        nonlocal left
        result = []
        for block in blocks:
            if block.type == resource and block.nodes >> node & 1:
                part = min(block.size, left)
                left -= part
                block = replace(block, size=block.size - part)
            result.append(block)
        return tuple(result)

    return _with_blocks(memory, {uid: shorten}), missing - left


def _with_blocks(memory: MemoryState, changes: Mapping[str, Callable[[Blocks], Blocks]]) -> MemoryState:
    """The charged blocks of these pods changed: a bubble's alone where there is one."""
    entries, bubbles = dict(memory.entries), dict(memory.pod_entries)
    for uid, change in changes.items():
        if uid in bubbles:
            bubbles[uid] = change(bubbles[uid])
        elif uid in entries:
            entries[uid] = {name: change(blocks) for name, blocks in entries[uid].items()}
    return MemoryState(memory.machine, entries, bubbles)
