"""Admission step by step as the kubelet's managers do it, on mutable tables, hints and CPUs by plain enumeration.

What `agent.policy.admission` is compared with. It leaves nothing behind where it refuses; devices, uneven cores and fractions
of a byte are not modelled.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask, node_ids
from agent.model.pod import Container, ContainerKind, Pod, QOSClass, ResourceList
from agent.model.state import NUMANodeState
from agent.policy.hint_family import Hint
from agent.policy.managers import Managers
from agent.policy.memory_static import fresh_machine_state
from agent.policy.qos import container_equivalent_guaranteed, pod_qos
from agent.policy.topology_options import TopologyPolicyName, TopologyScope
from tests.policy import reference_merge
from tests.policy.reference_take_cpus import reference_take_cpus

Amounts = dict[str, int]
ANY = Hint(None, False)


class Refused(Exception):  # noqa: N818 - not an error
    """The pod is refused for this reason."""


@dataclass
class Tables:
    """What is given away: (pod, container) -> CPUs; (pod, container) -> resource -> [bytes, NUMA nodes]."""

    shared: set[int]
    machine: dict[int, NUMANodeState]
    cpus: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    bubbles: dict[str, set[int]] = field(default_factory=dict)
    memory: dict[tuple[str, str], dict[str, tuple[int, NodeMask]]] = field(default_factory=dict)
    pod_memory: dict[str, dict[str, tuple[int, NodeMask]]] = field(default_factory=dict)


class ReferenceNode:
    """One node and its pods."""

    def __init__(self, managers: Managers) -> None:
        self.rules = managers
        shared = set(managers.cpu.managed) if managers.cpu else set()
        self.tables = Tables(shared, fresh_machine_state(managers.memory) if managers.memory else {})
        self.reusable_cpus: set[int] = set()
        self.reusable_memory: dict[NodeMask, Amounts] = {}

    # --- one pod ---

    def admit(self, pod: Pod) -> str:
        """The reason of a refusal, "" where the pod is admitted."""
        before = copy.deepcopy(self.tables)
        self.reusable_cpus, self.reusable_memory = set(), {}
        try:
            self._admit(pod)
            left = len(self.tables.shared)
            if left < len(before.shared) and left < self.rules.min_shared_cpus:
                raise Refused("UnexpectedAdmissionError")
        except Refused as refused:
            self.tables = before
            return str(refused)
        return ""

    def remove(self, pod: Pod) -> None:
        tables = self.tables
        for key in [key for key in tables.cpus if key[0] == pod.uid]:
            self._return_cpus(tables.cpus.pop(key))
        self._return_cpus(tables.bubbles.pop(pod.uid, set()))
        charged = tables.pod_memory.pop(pod.uid, None)
        for key in [key for key in tables.memory if key[0] == pod.uid]:
            blocks = tables.memory.pop(key)
            if charged is None:
                self._return_memory(blocks)
        self._return_memory(charged or {})

    def start(self, pod: Pod, name: str) -> None:
        """A container starts: the memory of the ordinary init containers before it is over."""
        for container in pod.containers:
            if container.name == name:
                return
            if container.kind is ContainerKind.INIT:
                blocks = self.tables.memory.pop((pod.uid, container.name), {})
                if pod.uid not in self.tables.pod_memory:
                    self._return_memory(blocks)

    def _admit(self, pod: Pod) -> None:
        aligned = self.rules.topology.name is not TopologyPolicyName.NONE
        by_pod = aligned and self.rules.topology.scope is TopologyScope.POD
        if by_pod and self._has_bubble(pod):
            self._admit_bubble(pod)
            return
        hint = ANY
        if by_pod:
            cpus = peak([(c.kind, {"cpu": self._cpus(pod, c)}) for c in pod.containers]).get("cpu", 0)
            request = peak([(c.kind, self._memory(pod, c)) for c in pod.containers])
            hint = self._merged(cpus, request if self._guaranteed(pod) else None)
        for container in pod.containers:
            if aligned and not by_pod:
                request = self._memory(pod, container)
                hint = self._merged(self._cpus(pod, container), request)
            self._allocate(pod, container, hint)

    def _allocate(self, pod: Pod, container: Container, hint: Hint) -> None:
        cpus = self._cpus(pod, container)
        if cpus:
            self._check_cores(cpus)
            given = self._take(cpus, hint)
            self.tables.cpus[pod.uid, container.name] = given
            self.tables.shared -= given
            init = container.kind is ContainerKind.INIT
            self.reusable_cpus = self.reusable_cpus | given if init else self.reusable_cpus - given
        request = self._memory(pod, container)
        if request:
            mask = self._memory_nodes(request, hint)
            for resource, size in sorted(request.items()):
                spare = self.reusable_memory.get(mask, {}).get(resource, 0)
                self._charge(resource, max(size - spare, 0), mask)
            self.tables.memory[pod.uid, container.name] = {name: (size, mask) for name, size in request.items()}
            self._reuse_memory(pod, container, request, mask)

    def _reuse_memory(self, pod: Pod, container: Container, request: Amounts, mask: NodeMask) -> None:
        spare = self.reusable_memory.setdefault(mask, {})
        for resource, size in request.items():
            had = spare.get(resource, 0)
            spare[resource] = max(had, size) if container.kind is ContainerKind.INIT else max(had - size, 0)
            left = size
            for earlier in pod.containers:
                if earlier is container:
                    break
                held = self.tables.memory.get((pod.uid, earlier.name), {})
                if earlier.kind is ContainerKind.INIT and resource in held and held[resource][1] == mask:
                    part = min(left, held[resource][0])
                    held[resource] = (held[resource][0] - part, mask)
                    left -= part

    # --- what a pod asks for ---

    def _guaranteed(self, pod: Pod) -> bool:
        gates = self.rules.gates
        if pod_qos(pod, pod_level_resources=gates.pod_level_resources) is not QOSClass.GUARANTEED:
            return False
        return not has_budget(pod) or gates.pod_level_resource_managers

    def _has_bubble(self, pod: Pod) -> bool:
        return self._guaranteed(pod) and has_budget(pod)

    def _owns(self, pod: Pod, container: Container) -> bool:
        return self._guaranteed(pod) and (not has_budget(pod) or container_equivalent_guaranteed(container))

    def _cpus(self, pod: Pod, container: Container) -> int:
        owns = self.rules.cpu is not None and self._owns(pod, container)
        return whole(container.resources.requests) if owns else 0

    def _memory(self, pod: Pod, container: Container) -> Amounts:
        owns = self.rules.memory is not None and self._owns(pod, container)
        return memory_of(container.resources.requests) if owns else {}

    # --- hints ---

    def _merged(self, cpus: int, request: Amounts | None, *, impossible: Iterable[str] = ()) -> Hint:
        rules = self.rules
        cpu: dict[str, reference_merge.Hints | None] = {}
        if "cpu" in impossible:
            cpu = {"cpu": ()}
        elif cpus and rules.cpu:
            free = CPUSet.of(self.tables.shared) - rules.cpu.reserved
            reusable = CPUSet.of(self.reusable_cpus)
            by_socket = rules.cpu.options.align_by_socket
            cpu = {"cpu": reference_merge.cpu_hints(rules.cpu.topology, free, reusable, cpus, by_socket)}
        memory: Mapping[str, reference_merge.Hints | None] = {}
        if rules.memory and request:
            memory = reference_merge.memory_hints(self.tables.machine, request, self.reusable_memory)
            if set(request) & set(impossible):
                memory = dict.fromkeys(request, ())
        machine = rules.machine
        hint, admit = reference_merge.merge(machine.numa_mask, machine.distances, rules.topology, [cpu, memory])
        if not admit:
            raise Refused("TopologyAffinityError")
        return hint

    # --- CPUs ---

    def _check_cores(self, cpus: int) -> None:
        manager = self.rules.cpu
        if manager is None or not manager.options.full_pcpus_only:
            return
        if cpus % manager.topology.cpus_per_core or cpus > len(self.tables.shared - set(manager.reserved_physical)):
            raise Refused("SMTAlignmentError")

    def _take(self, cpus: int, hint: Hint) -> set[int]:
        manager = self.rules.cpu
        assert manager
        topology = manager.topology
        candidates = (self.tables.shared - set(manager.reserved)) | self.reusable_cpus
        given: set[int] = set()
        if hint.affinity is not None:
            nodes = set(node_ids(hint.affinity))
            if manager.options.align_by_socket:
                sockets = {cpu.socket for cpu in topology.cpus if cpu.numa in nodes}
                nodes = {cpu.numa for cpu in topology.cpus if cpu.socket in sockets}
            near = {cpu.id for cpu in topology.cpus if cpu.numa in nodes} & candidates
            given = self._pick(near, min(cpus, len(near)))
        return given | self._pick(candidates - given, cpus - len(given))

    def _pick(self, candidates: set[int], cpus: int) -> set[int]:
        assert self.rules.cpu
        if cpus > len(candidates):
            raise Refused("UnexpectedAdmissionError")
        return set(reference_take_cpus(self.rules.cpu.topology, CPUSet.of(candidates), cpus, self.rules.cpu.pick))

    def _return_cpus(self, cpus: set[int]) -> None:
        assert self.rules.cpu or not cpus
        if self.rules.cpu:
            self.tables.shared |= cpus & set(self.rules.cpu.managed)

    # --- memory ---

    def _memory_nodes(self, request: Amounts, hint: Hint) -> NodeMask:
        machine = self.tables.machine
        hints = next(iter(reference_merge.memory_hints(machine, request, self.reusable_memory).values()), ())
        if hint.affinity is None:
            hint = self._best(hints, 0, hint)
        mask = hint.affinity or 0
        free = {name: sum(machine[node].memory[name].free for node in node_ids(mask)) for name in request}
        if any(free[name] < size for name, size in request.items()):
            mask = self._best(hints, mask, hint).affinity or 0
        if mask.bit_count() > 1 and any(
            machine[node].assignments and machine[node].cells != mask for node in node_ids(mask)
        ):
            raise Refused("UnexpectedAdmissionError")
        return mask

    def _best(self, hints: reference_merge.Hints, containing: NodeMask, instead_of: Hint) -> Hint:
        best = reference_merge.best_memory_hint(hints, containing)
        if best is None or (instead_of.preferred and not best.preferred):
            raise Refused("UnexpectedAdmissionError")
        return best

    def _charge(self, resource: str, size: int, mask: NodeMask) -> None:
        for node in node_ids(mask):
            state = self.tables.machine[node]
            table = state.memory[resource]
            part = min(size, table.free)
            size -= part
            table = replace(table, reserved=table.reserved + part, free=table.free - part)
            self.tables.machine[node] = NUMANodeState(state.assignments + 1, mask, {**state.memory, resource: table})

    def _return_memory(self, blocks: Mapping[str, tuple[int, NodeMask]]) -> None:
        for resource, (block, mask) in blocks.items():
            size = block
            for node in node_ids(mask):
                state = self.tables.machine[node]
                table = state.memory[resource]
                part = min(size, table.reserved)
                size -= part
                table = replace(table, reserved=table.reserved - part, free=table.free + part)
                blocks_left = state.assignments - 1
                cells = state.cells if blocks_left else 1 << node
                self.tables.machine[node] = NUMANodeState(blocks_left, cells, {**state.memory, resource: table})

    # --- bubbles ---

    def _admit_bubble(self, pod: Pod) -> None:
        assert pod.resources
        budget = whole(pod.resources.requests) if self.rules.cpu else 0
        memory = memory_of(pod.resources.requests) if self.rules.memory else {}
        slices = {c.name: {"cpu": self._cpus(pod, c)} for c in pod.containers if self._cpus(pod, c)}
        blocks = {c.name: self._memory(pod, c) for c in pod.containers if self._memory(pod, c)}
        empty = ["cpu"] if budget and no_pool(pod, "cpu", slices, budget) else []
        empty += [name for name, size in memory.items() if no_pool(pod, name, blocks, size)]
        hint = self._merged(budget, memory, impossible=empty)
        if budget:
            if "cpu" in empty:
                raise Refused("EmptyPodSharedPoolError")
            self._check_cores(budget)
            bubble = self._take(budget, hint)
            self.tables.shared -= bubble
            self.tables.bubbles[pod.uid] = bubble
            self._slice_cpus(pod, slices, bubble)
        if memory:
            if empty:
                raise Refused("EmptyPodSharedPoolError")
            mask = self._memory_nodes(memory, hint)
            for resource, size in memory.items():
                self._charge(resource, size, mask)
            self.tables.pod_memory[pod.uid] = {resource: (size, mask) for resource, size in memory.items()}
            self._slice_memory(pod, blocks, memory, mask)

    def _slice_cpus(self, pod: Pod, slices: Mapping[str, Amounts], bubble: set[int]) -> None:
        left = set(bubble)
        for container in pod.containers:
            if container.name in slices:
                given = self._pick(left, slices[container.name]["cpu"])
                self.tables.cpus[pod.uid, container.name] = given
                if container.kind is not ContainerKind.INIT:
                    left = left - given
            elif container.kind is ContainerKind.INIT:
                self.tables.cpus[pod.uid, container.name] = left
        for container in pod.containers:
            self.tables.cpus.setdefault((pod.uid, container.name), left)

    def _slice_memory(self, pod: Pod, blocks: Mapping[str, Amounts], budget: Amounts, mask: NodeMask) -> None:
        left = dict(budget)
        rows: dict[str, Amounts] = {}
        for container in pod.containers:
            if container.name in blocks:
                rows[container.name] = dict(blocks[container.name])
                if container.kind is not ContainerKind.INIT:
                    left = {name: size - blocks[container.name].get(name, 0) for name, size in left.items()}
            elif container.kind is ContainerKind.INIT:
                rows[container.name] = dict(left)
        for container in pod.containers:
            amounts = rows.get(container.name, left)
            self.tables.memory[pod.uid, container.name] = {name: (size, mask) for name, size in amounts.items()}


def has_budget(pod: Pod) -> bool:
    return pod.resources is not None and bool({**pod.resources.requests, **pod.resources.limits})


def whole(requests: ResourceList) -> int:
    amount = requests["cpu"].number if "cpu" in requests else 0
    return int(amount) if amount == int(amount) else 0


def memory_of(requests: ResourceList) -> Amounts:
    return {name: int(q.number) for name, q in requests.items() if name == "memory" or name.startswith("hugepages-")}


def peak(containers: list[tuple[ContainerKind, Amounts]]) -> Amounts:
    """The most that is held at one time, resource by resource."""
    result: Amounts = {}
    for resource in {name for _, amounts in containers for name in amounts}:
        sizes = [(kind, amounts.get(resource, 0)) for kind, amounts in containers]
        sidecars = 0
        most = sum(size for kind, size in sizes if kind is not ContainerKind.INIT)
        for kind, size in sizes:
            sidecars += size if kind is ContainerKind.SIDECAR else 0
            most = max(most, sidecars + (size if kind is ContainerKind.INIT else 0))
        result[resource] = most
    return result


def no_pool(pod: Pod, resource: str, slices: Mapping[str, Amounts], budget: int) -> bool:
    """Whether some container without a slice of its own would find nothing left of the budget."""
    sidecars = staying = 0
    shared = False
    for container in pod.containers:
        size = slices.get(container.name, {}).get(resource, 0)
        if container.kind is ContainerKind.INIT:
            if container.name not in slices and sidecars >= budget:
                return True
            continue
        sidecars += size if container.kind is ContainerKind.SIDECAR else 0
        staying += size
        shared = shared or container.name not in slices
    return shared and staying >= budget
