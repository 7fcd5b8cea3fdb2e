"""The grants of a pod while they are being resized, and the hints that are merged for what grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask
from agent.model.pod import ContainerKind, Pod
from agent.model.state import Blocks, FirstGrant, Grants, NUMANodeState, nodes_of
from agent.policy import memory_static
from agent.policy.admission import NO_LOCALITY, UNALIGNED
from agent.policy.cpu_growth import grow, shrink
from agent.policy.cpu_static import check_physical_cpus
from agent.policy.eligibility import Claims
from agent.policy.hint_family import Hint, ProviderHints
from agent.policy.hints import cpu_hints
from agent.policy.managers import Managers
from agent.policy.memory_growth import growth_hints, replace_blocks, staying_hints
from agent.policy.refusal import TopologyAffinityError
from agent.policy.topology_manager import merge


@dataclass(slots=True)
class ResizeDraft:
    """One attempt in progress; lives inside one call. floor: what the pod can never lose. asked: its claims at the new size.

    bubble, pod_memory: None where it has none.
    """

    managers: Managers
    pod: Pod
    asked: Claims
    floor: FirstGrant
    shared: CPUSet
    machine: Mapping[int, NUMANodeState]
    cpus: dict[str, CPUSet]
    memory: dict[str, Blocks]
    bubble: CPUSet | None
    pod_memory: Blocks | None
    affinities: dict[str, Hint] = field(default_factory=dict)

    @classmethod
    def of(cls, managers: Managers, grants: Grants, floor: FirstGrant, asked: Claims, pod: Pod) -> Self:
        uid = pod.uid
        return cls(
            managers,
            pod,
            asked,
            floor,
            grants.cpu.default,
            grants.memory.machine,
            dict(grants.cpu.entries.get(uid, {})),
            dict(grants.memory.entries.get(uid, {})),
            grants.cpu.pod_entries.get(uid),
            grants.memory.pod_entries.get(uid),
        )

    @property
    def idle(self) -> CPUSet:
        """CPUs that only finished init containers of the pod hold: what admission calls reusable."""
        kinds = {container.name: container.kind for container in self.pod.containers}
        init = [cpus for name, cpus in self.cpus.items() if kinds.get(name) is ContainerKind.INIT]
        others = [cpus for name, cpus in self.cpus.items() if kinds.get(name) is not ContainerKind.INIT]
        return union(init) - union(others)

    # --- CPUs ---

    @property
    def keeps_cpus(self) -> bool:
        """Whether its CPUs stay as they are: with the policy `none` nobody can choose others."""
        return self.managers.cpu is None

    def shrunk(self, held: CPUSet, first: CPUSet, total: int) -> CPUSet:
        """A smaller set; what it loses is not given back yet."""
        assert self.managers.cpu is not None
        return shrink(self.managers.cpu, held, first, total)

    def give_back(self, cpus: CPUSet) -> None:
        """CPUs that nobody in the pod holds any more return to the shared pool."""
        assert self.managers.cpu is not None
        kept = union([*self.cpus.values(), self.bubble or CPUSet()])
        self.shared |= (cpus - kept) & self.managers.cpu.managed

    def grown(self, held: CPUSet, total: int, affinity: Hint) -> CPUSet:
        """A larger set out of the shared pool and the pod's idle CPUs. Raises NotEnoughCPUs, SMTAlignmentError."""
        assert self.managers.cpu is not None
        free = self.shared | self.idle
        check_physical_cpus(self.managers.cpu, free, total - len(held))
        result = grow(self.managers.cpu, free, held, total - len(held), affinity.affinity)
        self.shared -= result
        return result

    # --- memory ---

    def resize_blocks(self, blocks: Blocks, first: Blocks, wanted: Mapping[str, int], affinity: Hint | None) -> Blocks:
        """Other blocks for these, affinity None for a shrink; the tables follow. Raises AllocationError."""
        without = memory_static.release(self.machine, blocks)
        result, self.machine = replace_blocks(without, wanted, nodes_of(blocks), nodes_of(first), affinity)
        return result

    # --- hints ---

    def merged(self, cpus: ProviderHints, memory: ProviderHints) -> Hint:
        """The hint for what grows; with topology policy `none` there is none. Raises TopologyAffinityError."""
        managers = self.managers
        if not managers.aligned:
            return UNALIGNED
        merged = merge(managers.machine.numa_mask, managers.machine.distances, managers.topology, [None, cpus, memory])
        if not merged.admit:
            raise TopologyAffinityError(NO_LOCALITY)
        return merged.best

    def cpu_provider(self, held: CPUSet, total: int) -> ProviderHints:
        """Where `total` CPUs can be that contain those held; for a set that stays, where it is."""
        manager = self.managers.cpu
        if manager is None or not held:
            return None
        free = (self.shared | self.idle) - manager.reserved - held if total > len(held) else CPUSet()
        hints = cpu_hints(manager.topology, free, held, total, align_by_socket=manager.options.align_by_socket)
        return {"cpu": hints}

    def memory_provider(
        self, blocks: Sequence[Blocks], wanted: Mapping[str, int], *, grows: bool, nodes: NodeMask
    ) -> ProviderHints:
        """Where the wanted memory can be that contains the nodes held. blocks: what is held now."""
        if self.managers.memory is None or not wanted:
            return None
        machine = self.machine
        for each in blocks:
            machine = memory_static.release(machine, each)
        return (growth_hints if grows else staying_hints)(machine, wanted, nodes)
