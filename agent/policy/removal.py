"""What ends a grant: a pod that is gone, and an init container that has finished.

Source: kubelet cm/cpumanager/policy_static.go and cm/memorymanager/policy_static.go, RemoveContainer; KEP-693.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from agent.model.cpuset import CPUSet, union
from agent.model.pod import Pod
from agent.model.state import CPUState, Grants, MemoryState
from agent.policy import memory_static
from agent.policy.managers import Managers

_T = TypeVar("_T")


def holds(grants: Grants, uid: str) -> bool:
    """Whether this pod has any grant."""
    return (
        uid in grants.cpu.entries
        or uid in grants.cpu.pod_entries
        or uid in grants.memory.entries
        or uid in grants.memory.pod_entries
    )


def remove(managers: Managers, grants: Grants, uid: str) -> Grants:
    """The grants after this pod ended: its CPUs go back to the shared pool, its memory to the nodes."""
    if not holds(grants, uid):
        return grants
    cpu, memory = grants.cpu, grants.memory
    held = cpu.held_by(uid)
    others = (cpu.held_by(other) for other in {**cpu.entries, **cpu.pod_entries} if other != uid)
    if managers.cpu is not None:
        returned = (held & managers.cpu.managed) - union(others)  # a file with two owners of one CPU was taken over
    else:  # with policy none there is a shared pool only while pods still hold what static gave them
        returned = (held & managers.machine.topology.all) - union(others) if cpu.default else CPUSet()
    machine = memory.machine
    if uid in memory.pod_entries:
        machine = memory_static.release(machine, memory.pod_entries[uid])
    else:
        for blocks in memory.entries.get(uid, {}).values():
            machine = memory_static.release(machine, blocks)
    return Grants(
        CPUState(cpu.default | returned, _without(cpu.entries, uid), _without(cpu.pod_entries, uid)),
        MemoryState(machine, _without(memory.entries, uid), _without(memory.pod_entries, uid)),
    )


def container_started(grants: Grants, pod: Pod, name: str) -> Grants:
    """The grants once container `name` of the pod runs: earlier ordinary init containers no longer hold memory.

    Their CPU entries stay for the life of the pod, as in the kubelet. In a bubble the entry ends and the bubble keeps its bytes.
    """
    entries = grants.memory.entries.get(pod.uid)
    if entries is None:
        return grants
    finished = memory_static.finished_before(pod.containers, name)
    gone = [blocks for container, blocks in entries.items() if container in finished]
    if not gone:
        return grants
    machine = grants.memory.machine
    if pod.uid not in grants.memory.pod_entries:
        for blocks in gone:
            machine = memory_static.release(machine, blocks)
    left = {container: blocks for container, blocks in entries.items() if container not in finished}
    memory = replace(grants.memory, machine=machine, entries={**grants.memory.entries, pod.uid: left})
    return replace(grants, memory=memory)


def _without(entries: Mapping[str, _T], uid: str) -> Mapping[str, _T]:
    return {key: value for key, value in entries.items() if key != uid} if uid in entries else entries
