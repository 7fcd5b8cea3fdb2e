"""Taking a node over from the kubelet: its state files as grants, checked one by one and against each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.formats.allocated_pods import PodAllocation, allocations, read_allocated_pods
from agent.formats.checkpoint import CheckpointError, Reading, Verdict
from agent.formats.cpu_checkpoint import ContainerKey, cpu_state, read_cpu_checkpoint
from agent.formats.kubelet_export import ALLOCATED_FILE, CPU_FILE, MEMORY_FILE
from agent.formats.memory_checkpoint import memory_state, read_memory_checkpoint
from agent.model.pod import Pod
from agent.model.state import CPUState, FirstGrant, Grants, MemoryState, PodPhase, PodRecord

_READERS = {CPU_FILE: read_cpu_checkpoint, MEMORY_FILE: read_memory_checkpoint, ALLOCATED_FILE: read_allocated_pods}
_SOURCE = "kubernetes.io/config.source"  # "file" for a static pod of the kubelet


@dataclass(frozen=True, slots=True)
class Imported:
    """What the files hold. cpu_policy, memory_policy: as in the files, "none" and "None" where the file is absent.

    notes: what is odd about the files, for people; nothing that forbids the import.
    """

    grants: Grants
    cpu_policy: str = "none"
    memory_policy: str = "None"
    allocated: Mapping[str, PodAllocation] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_files(
    files: Mapping[str, bytes], containers: Mapping[str, ContainerKey] | None = None, *, accept_unverified: bool = False
) -> Imported:
    """The content of `cpu_manager_state`, `memory_manager_state`, `allocated_pods_state`, whichever are there.

    containers: for a CPU file of V1. Raises CheckpointError for a file that is damaged or unreadable, for one without
    checksum unless accept_unverified, and where a value means nothing.
    """
    readings = {name: _reading(name, data, accept_unverified=accept_unverified) for name, data in files.items()}
    cpu = readings.get(CPU_FILE)
    memory = readings.get(MEMORY_FILE)
    allocated = readings.get(ALLOCATED_FILE)
    grants = Grants(
        cpu_state(cpu, containers) if cpu is not None else CPUState(),
        memory_state(memory) if memory is not None else MemoryState(),
    )
    cpu_policy = cpu.content()["policyName"] if cpu is not None else "none"
    memory_policy = memory.content()["policyName"] if memory is not None else "None"
    notes = [*_file_notes(readings), *pair_notes(grants, cpu_policy, memory_policy)]
    found = allocations(allocated) if allocated is not None else {}
    return Imported(grants, cpu_policy, memory_policy, found, tuple(notes))


def _reading(name: str, data: bytes, *, accept_unverified: bool) -> Reading:
    reading = _READERS[name](data)
    if reading.verdict in (Verdict.DAMAGED, Verdict.UNREADABLE):
        raise CheckpointError(
            f"{name}{f' (version {reading.version})' if reading.version else ''}: {reading.verdict}: {reading.why}",
            hint="nothing was imported; see: pinfold checkpoint verify; the running containers' cgroups may still prove it",
        )
    if reading.verdict is Verdict.UNVERIFIED and not accept_unverified:
        raise CheckpointError(
            f"{name}: carries no checksum", hint="look at it (pinfold checkpoint show), then give --accept-unverified"
        )
    return reading


def _file_notes(readings: Mapping[str, Reading]) -> Iterator[str]:
    for name, reading in readings.items():
        if reading.verdict is Verdict.UNVERIFIED:
            yield f"{name}: taken without a checksum"
        if reading.inline_differs:
            yield f"{name}: its fields for older kubelets say something else; `data` counts"


def pair_notes(grants: Grants, cpu_policy: str, memory_policy: str) -> Iterator[str]:
    """Where the CPU and the memory file do not look like one moment of one node."""
    if cpu_policy != "static" or memory_policy != "Static":
        return
    cpu = {**grants.cpu.entries, **grants.cpu.pod_entries}
    memory = {**grants.memory.entries, **grants.memory.pod_entries}
    for uid in cpu:
        if uid not in memory:
            yield f"pod {uid} holds CPUs but no memory: one of the two files is older"
    for uid, sets in grants.cpu.entries.items():
        for name in sets:
            if uid in memory and uid not in grants.memory.pod_entries and name not in grants.memory.entries[uid]:
                yield f"pod {uid}, container {name}: holds CPUs but no memory (as a finished init container does)"


def record_pods(imported: Imported, pods: Iterable[Pod]) -> tuple[dict[str, PodRecord], dict[str, str]]:
    """Records for those of the kubelet's pods that hold something, and the UIDs of static pods by "namespace/name".

    A static pod's name loses the node's name that the kubelet appends, so that its manifest is known again.
    """
    records: dict[str, PodRecord] = {}
    uids: dict[str, str] = {}
    grants = imported.grants
    held = {*grants.holders, *imported.allocated}
    for pod in sorted(pods, key=lambda pod: pod.creation_timestamp):  # admission follows creation
        if pod.uid not in held:
            continue
        static = pod.annotations.get(_SOURCE) == "file"
        if static and pod.node_name:
            pod = replace(pod, name=pod.name.removesuffix(f"-{pod.node_name.lower()}"))
        pod = _allocated(pod, imported.allocated.get(pod.uid))
        source = "manifests" if static else "apiserver"
        records[pod.uid] = PodRecord(pod, PodPhase.RUNNING, source=source, first=FirstGrant.of(grants, pod.uid))
        if static:
            uids[pod.namespaced_name] = pod.uid
    return records, uids


def _allocated(pod: Pod, allocation: PodAllocation | None) -> Pod:
    """The pod with its allocated resources in place of those it asks for."""
    if allocation is None:
        return pod
    containers = tuple(
        replace(each, resources=allocation.containers.get(each.name, each.resources)) for each in pod.containers
    )
    return replace(
        pod, containers=containers, resources=allocation.pod if allocation.pod is not None else pod.resources
    )
