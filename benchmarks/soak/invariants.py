"""What holds of every state whatever has happened."""

from __future__ import annotations

from collections.abc import Iterator

from agent.model.cpuset import CPUSet
from agent.model.state import State
from agent.policy.managers import Managers


def broken(state: State, managers: Managers) -> Iterator[str]:
    """One sentence for each law that this state breaks."""
    cpu, memory = state.grants.cpu, state.grants.memory
    seen = CPUSet()
    for uid in sorted({*cpu.entries, *cpu.pod_entries}):
        held = cpu.held_by(uid)
        if held & seen:
            yield f"CPUs {held & seen} of pod {uid} have two owners"
        seen |= held
    if seen & cpu.default:
        yield f"CPUs {seen & cpu.default} are exclusive and shared"
    online = managers.machine.topology.all
    if (lost := online - seen - cpu.default) and managers.cpu is not None:
        yield f"CPUs {lost} belong to nobody"
    if managers.cpu is not None and (taken := seen & managers.cpu.reserved):
        yield f"reserved CPUs {taken} are exclusive"
    for uid in sorted({*cpu.entries, *cpu.pod_entries, *memory.entries, *memory.pod_entries} - state.pods.keys()):
        yield f"pod {uid} holds something and is not here"
