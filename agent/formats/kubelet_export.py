"""Handing a node back to the kubelet: its state files from ours, and what they cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from agent.formats.allocated_pods import PodAllocation, write_allocated_pods
from agent.formats.cpu_checkpoint import write_cpu_checkpoint
from agent.formats.kubelet_forms import Forms
from agent.formats.memory_checkpoint import write_memory_checkpoint
from agent.model.cpuset import CPUSet, union
from agent.model.state import CPUState, MemoryState, NUMANodeState, ResizeState, State
from agent.policy.cpu_options import STRICT_RESERVATION
from agent.policy.go_text import parse_bool
from agent.policy.memory_count import count
from agent.policy.memory_static import MachineState

CPU_FILE, MEMORY_FILE, ALLOCATED_FILE = "cpu_manager_state", "memory_manager_state", "allocated_pods_state"


@dataclass(frozen=True, slots=True)
class Export:
    """files: name -> bytes. lost: what the files do not say. refused: why that kubelet will not start over them."""

    files: Mapping[str, bytes]
    lost: tuple[str, ...]
    refused: tuple[str, ...]


def export(state: State, forms: Forms) -> Export:
    """The kubelet's files for this state, in these forms."""
    cpu, memory = state.grants.cpu, state.grants.memory
    if not forms.bubbles:
        cpu, memory = _without_cpu_bubbles(cpu), _without_memory_bubbles(memory)
    files = {CPU_FILE: write_cpu_checkpoint(state.policy.cpu_policy, cpu, forms.cpu)}
    if forms.memory is not None:
        files[MEMORY_FILE] = write_memory_checkpoint(state.policy.memory_policy, memory, forms.memory)
    if forms.allocated_pods:
        files[ALLOCATED_FILE] = write_allocated_pods(
            {
                uid: PodAllocation({each.name: each.resources for each in record.pod.containers}, record.pod.resources)
                for uid, record in state.pods.items()
            }
        )
    return Export(files, tuple(_lost(state, forms)), tuple(_refused(state, cpu)))


def _without_cpu_bubbles(cpu: CPUState) -> CPUState:
    """CPUs of a bubble that no container holds belong to the shared pool then, or the kubelet would miss them."""
    kept = union(cpus for sets in cpu.entries.values() for cpus in sets.values())
    return CPUState(cpu.default | (union(cpu.pod_entries.values()) - kept), cpu.entries)


def _without_memory_bubbles(memory: MemoryState) -> MemoryState:
    if not memory.pod_entries:
        return memory
    left = replace(memory, pod_entries={})
    return replace(left, machine=count(_emptied(memory.machine), left).machine)


def _emptied(machine: MachineState) -> MachineState:
    return {
        node: NUMANodeState(
            0,
            1 << node,
            {kind: replace(table, reserved=0, free=table.allocatable) for kind, table in state.memory.items()},
        )
        for node, state in machine.items()
    }


def _lost(state: State, forms: Forms) -> Iterator[str]:
    names = {uid: record.pod.namespaced_name for uid, record in state.pods.items()}
    if not forms.bubbles:
        for uid in {**state.grants.cpu.pod_entries, **state.grants.memory.pod_entries}:
            yield f"pod {names.get(uid, uid)}: its bubble; that kubelet sees only what its containers hold"
    if forms.memory is None and state.grants.memory.entries:
        yield "all memory grants: that kubelet has no memory manager"
    for uid, record in state.pods.items():
        if record.resize.state is not ResizeState.NONE:
            yield f"pod {names[uid]}: its resize ({record.resize.state}) begins anew"
        if record.unplaced is not None:
            yield f"pod {names[uid]}: that it is unplaced"
        if record.degraded is not None:
            yield f"pod {names[uid]}: that it is degraded ({record.degraded.message})"
    if state.pods:
        yield "first-admission sets, stored hints and times of admission of all pods"
    if state.manifest_uids:
        yield "UIDs of manifests without one: the kubelet makes its own, so those pods are new to it"


def _refused(state: State, cpu: CPUState) -> Iterator[str]:
    """The kubelet's own checks at its start, as far as the state tells what it will find."""
    if state.policy.cpu_policy != "static":
        return
    held = union(cpus for sets in cpu.entries.values() for cpus in sets.values())
    if not cpu.default and held:
        yield "the shared pool is empty"
    if cpu.default & held:
        yield f"CPUs {cpu.default & held} are shared and with a pod"
    strict = parse_bool(state.policy.cpu_options.get(STRICT_RESERVATION, "false"))
    reserved = state.policy.reserved_cpus
    if not strict and not reserved <= cpu.default:
        yield f"reserved CPUs {reserved - cpu.default} are not in the shared pool"
    expected = state.policy.online - reserved if strict else state.policy.online
    known = cpu.default | held | union(cpu.pod_entries.values())
    if known != expected:
        yield f"CPUs {_differing(known, expected)} are in the files and not online, or the other way round"


def _differing(one: CPUSet, other: CPUSet) -> CPUSet:
    return (one - other) | (other - one)
