"""Grants over a restart: what a running pod holds it keeps, whatever has changed around it.

The kubelet refuses to start where reserved CPUs, options, policies or memory differ from its file; here the pools are fitted
round what is held. Which of these changes an operator must confirm first is `agent.policy.repair`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.cpuset import CPUSet
from agent.model.state import CPUState, Grants, MemoryState, MemoryTable, NUMANodeState
from agent.policy.cpu_static import CPUManager
from agent.policy.managers import Managers
from agent.policy.memory_count import count
from agent.policy.memory_static import MemoryManager, fresh_machine_state


def fresh(managers: Managers) -> Grants:
    """The grants of a node that has given nothing away."""
    cpu = CPUState(managers.cpu.managed) if managers.cpu is not None else CPUState()
    memory = MemoryState(fresh_machine_state(managers.memory)) if managers.memory is not None else MemoryState()
    return Grants(cpu, memory)


def refit(managers: Managers, grants: Grants) -> Grants:
    """The same holdings under these managers: the shared pool and the memory tables are fitted round them.

    The shared pool is every managed CPU that nobody holds: new CPUs join it, newly reserved ones leave it under strict
    reservation. Memory tables take the new totals and reservations; what is reserved stays, free never goes below zero.
    A manager that is off has no pool and no tables, yet running pods keep what they hold until they end: where it is on again
    its tables are counted anew from their blocks.
    """
    return Grants(_refit_cpu(managers.cpu, grants.cpu), _refit_memory(managers.memory, grants.memory))


def _refit_cpu(manager: CPUManager | None, cpu: CPUState) -> CPUState:
    if manager is None:
        return CPUState(CPUSet(), cpu.entries, cpu.pod_entries)
    return CPUState(manager.managed - cpu.held, cpu.entries, cpu.pod_entries)


def _refit_memory(manager: MemoryManager | None, memory: MemoryState) -> MemoryState:
    if manager is None:
        return MemoryState({}, memory.entries, memory.pod_entries)
    machine: dict[int, NUMANodeState] = fresh_machine_state(manager)
    if not memory.machine:
        return MemoryState(count(machine, memory).machine, memory.entries, memory.pod_entries)
    for node, old in memory.machine.items():
        new = machine.get(node)
        if new is not None:
            machine[node] = NUMANodeState(old.assignments, old.cells, _refit_tables(old, new.memory))
    return MemoryState(machine, memory.entries, memory.pod_entries)


def _refit_tables(old: NUMANodeState, new: Mapping[str, MemoryTable]) -> Mapping[str, MemoryTable]:
    tables = dict(new)
    for resource, table in new.items():
        reserved = old.memory[resource].reserved if resource in old.memory else 0
        free = max(table.allocatable - reserved, 0)
        tables[resource] = MemoryTable(table.total, table.system_reserved, table.allocatable, reserved, free)
    return tables
