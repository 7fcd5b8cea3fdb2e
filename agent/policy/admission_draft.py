"""One pod's grants in the making: what is left to take from, what has been taken, and the merges on the way.

A draft lives inside one call of `agent.policy.admission.admit`; a refusal drops it, and nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask
from agent.model.pod import Pod
from agent.model.state import Blocks, CPUState, Grants, MemoryState, NUMANodeState
from agent.policy import cpu_static
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.hint_family import Hint, ProviderHints
from agent.policy.hints import cpu_hints, memory_hints
from agent.policy.managers import Managers
from agent.policy.memory_placement import check_page_sizes
from agent.policy.misalignment import Situation, anchors, misalignment
from agent.policy.refusal import AllocationError, TopologyAffinityError
from agent.policy.topology_manager import merge
from agent.policy.verdict import MergeStep


@dataclass(slots=True)
class AdmissionDraft:
    """shared, machine: the shared pool and the memory that are left. bubble, pod_memory: of the pod as a whole.

    cpu_reuse, memory_reuse: of init containers that will have finished when the next container starts.
    """

    managers: Managers
    pod: Pod
    shared: CPUSet
    machine: Mapping[int, NUMANodeState]
    cpus: dict[str, CPUSet] = field(default_factory=dict)
    memory: dict[str, Blocks] = field(default_factory=dict)
    bubble: CPUSet = field(default_factory=CPUSet)
    pod_memory: Blocks = ()
    cpu_reuse: CPUSet = field(default_factory=CPUSet)
    memory_reuse: Mapping[NodeMask, Mapping[str, int]] = field(default_factory=dict)
    affinities: dict[str, Hint] = field(default_factory=dict)
    merges: list[MergeStep] = field(default_factory=list)

    def cpu_provider(self, count: int) -> ProviderHints:
        """Where `count` exclusive CPUs could come from now; None where none are asked or given."""
        manager = self.managers.cpu
        if manager is None or count == 0:
            return None
        free, options = self.shared - manager.reserved, manager.options
        hints = cpu_hints(manager.topology, free, self.cpu_reuse, count, align_by_socket=options.align_by_socket)
        return {"cpu": hints}

    def memory_provider(self, request: Mapping[str, int] | None) -> ProviderHints:
        """Where this memory (resource -> bytes) could come from now; None where none is asked or placed."""
        if self.managers.memory is None or request is None:
            return None
        check_page_sizes(self.machine, request)
        return memory_hints(self.machine, request, self.memory_reuse)

    def merge(self, container: str, providers: Sequence[ProviderHints], asked: Mapping[str, int], message: str) -> Hint:
        """The hint to allocate under. container: "" for the whole pod. message: begins the refusal.

        Raises TopologyAffinityError where the policy does not admit it.
        """
        managers = self.managers
        merged = merge(managers.machine.numa_mask, managers.machine.distances, managers.topology, providers)
        self.merges.append(MergeStep(container, tuple(providers), merged))
        if not merged.admit:
            reserved = managers.cpu.reserved if managers.cpu is not None else CPUSet()
            tied = anchors(self.pod.containers, self.cpus, self.cpu_reuse)
            now = Situation(asked, self.shared - reserved, self.cpu_reuse, self.machine, tied)
            why = misalignment(managers, merged, now)
            raise TopologyAffinityError(f"{message}{why.note}", hint=why.hint, rule=why.rule)
        return merged.best

    def pick_cpus(self, count: int, affinity: Hint, *, devices: bool) -> CPUSet:
        """The CPUs to take; they are not taken yet. devices: some that are fixed to NUMA nodes had a say in the affinity.

        Raises AllocationError.
        """
        assert self.managers.cpu is not None
        forced = affinity.affinity.bit_count() if affinity.affinity and devices else 0
        try:
            return cpu_static.allocate(
                self.managers.cpu, self.shared, count, affinity.affinity, self.cpu_reuse, min_numa_nodes=forced
            )
        except NotEnoughCPUs as error:
            raise AllocationError(str(error), hint=error.hint) from error

    def commit(self, grants: Grants) -> Grants:
        """The grants with what has been taken."""
        cpu, memory, uid = grants.cpu, grants.memory, self.pod.uid
        return Grants(
            CPUState(
                self.shared,
                {**cpu.entries, uid: self.cpus} if self.cpus else cpu.entries,
                {**cpu.pod_entries, uid: self.bubble} if self.bubble else cpu.pod_entries,
            ),
            MemoryState(
                self.machine,
                {**memory.entries, uid: self.memory} if self.memory else memory.entries,
                {**memory.pod_entries, uid: self.pod_memory} if self.pod_memory else memory.pod_entries,
            ),
        )
