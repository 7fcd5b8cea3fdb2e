"""What a resize lacks, in numbers: resource, NUMA nodes, amount.

Derived after a refusal from the same values that the decision read. Where amounts would suffice and only their places do not
match (CPUs of one node, memory of another), there is nothing to count and the answer is empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agent.model.cpuset import CPUSet, union
from agent.model.numa import NodeMask, node_ids, node_mask, union_of
from agent.model.pod import ContainerKind, Pod
from agent.model.resources import most_at_once
from agent.model.state import Blocks, Grants, Shortfall, nodes_of
from agent.policy.cpu_static import CPUManager, whole_cores
from agent.policy.eligibility import Claims, claims
from agent.policy.hints import cpu_hints, memory_family
from agent.policy.managers import Managers
from agent.policy.memory_static import pod_request, release
from agent.policy.node_fit import OutOfResource
from agent.policy.topology_options import TopologyPolicyName, TopologyScope

_STRICT = (TopologyPolicyName.RESTRICTED, TopologyPolicyName.SINGLE_NUMA_NODE)


def node_shortfall(refusal: OutOfResource) -> Shortfall:
    """What the node as a whole lacks."""
    return Shortfall(refusal.resource, refusal.lacking)


def pinned_shortfall(managers: Managers, grants: Grants, pod: Pod) -> tuple[Shortfall, ...]:
    """What a pinned pod lacks to grow to the size of `pod`, with these grants in force."""
    asked = claims(pod, managers.gates)
    return (*_cpu_lacks(managers, grants, pod, asked), *_memory_lacks(managers, grants, pod, asked))


# --- CPUs ---------------------------------------------------------------------------------------------------------------


def _cpu_lacks(managers: Managers, grants: Grants, pod: Pod, asked: Claims) -> Iterator[Shortfall]:
    manager = managers.cpu
    if manager is None:
        return
    free = grants.cpu.default - manager.reserved
    if manager.options.full_pcpus_only:
        free = whole_cores(manager.topology, free)
    growths = [(held, total) for held, total in _cpu_units(managers, grants, pod, asked) if held and total > len(held)]
    more = sum(total - len(held) for held, total in growths)
    spare = max(len(grants.cpu.default) - managers.min_shared_cpus, 0)
    anywhere = more - min(len(free), spare)
    if anywhere > 0:
        yield Shortfall("cpu", 1000 * anywhere)
        return
    for held, total in growths:
        nodes = _cpu_nodes(managers, manager, free, held, total)
        if nodes:
            lack = total - len(held) - len(free & _cpus_of(manager, nodes))
            if lack > 0:
                yield Shortfall("cpu", 1000 * lack, nodes)


def _cpu_units(managers: Managers, grants: Grants, pod: Pod, asked: Claims) -> list[tuple[CPUSet, int]]:
    """What is aligned as one: the bubble, the pod's total, or each container. (CPUs held, CPUs asked)."""
    entries = grants.cpu.entries.get(pod.uid, {})
    if pod.uid in grants.cpu.pod_entries:
        return [(grants.cpu.pod_entries[pod.uid], asked.pod_cpus)]
    if managers.effective_scope is TopologyScope.POD:
        counts = [(each.kind, asked.cpus.get(each.name, 0)) for each in pod.containers]
        return [(union(entries.values()), most_at_once(counts))]
    return [
        (entries.get(each.name, CPUSet()), asked.cpus.get(each.name, 0))
        for each in pod.containers
        if each.kind is not ContainerKind.INIT
    ]


def _cpu_nodes(managers: Managers, manager: CPUManager, free: CPUSet, held: CPUSet, total: int) -> NodeMask:
    """The NUMA nodes in which a strict policy wants the whole set: those held, and as many of the emptiest as it takes."""
    topology = manager.topology
    own = node_mask(node for node, mask in topology.numa_masks.items() if mask & held.mask)
    if not managers.aligned or managers.topology.name not in _STRICT:
        return 0
    size = 1
    if managers.topology.name is TopologyPolicyName.RESTRICTED:
        hints = cpu_hints(topology, topology.all, CPUSet(), total, align_by_socket=False)
        size = len(topology.numa_masks) if not hints or isinstance(hints, tuple) else hints.preferred_size
    others = sorted(
        (node for node in topology.numa_masks if not own >> node & 1),
        key=lambda node: (-len(free & CPUSet(topology.numa_masks[node])), node),
    )
    missing = size - own.bit_count()
    return own | node_mask(others[:missing]) if missing >= 0 else 0


def _cpus_of(manager: CPUManager, nodes: NodeMask) -> CPUSet:
    return union(CPUSet(manager.topology.numa_masks.get(node, 0)) for node in node_ids(nodes))


# --- memory -------------------------------------------------------------------------------------------------------------


def _memory_lacks(managers: Managers, grants: Grants, pod: Pod, asked: Claims) -> Iterator[Shortfall]:
    if managers.memory is None:
        return
    for blocks, wanted in _memory_units(managers, grants, pod, asked):
        if not blocks or not wanted:
            continue
        machine = grants.memory.machine
        for each in blocks:
            machine = release(machine, each)
        own = union_of(map(nodes_of, blocks))
        strict = managers.aligned and managers.topology.name in _STRICT
        family = memory_family(machine, wanted, {})
        size = 1 if family is None else family.preferred_size
        nodes = own if strict and own.bit_count() >= size else 0
        for resource in sorted(wanted):
            where = node_ids(nodes) if nodes else tuple(machine)
            tables = [machine[node].memory.get(resource) for node in where if node in machine]
            lack = wanted[resource] - sum(table.free for table in tables if table is not None)
            if lack > 0:
                yield Shortfall(resource, lack, nodes)


def _memory_units(
    managers: Managers, grants: Grants, pod: Pod, asked: Claims
) -> list[tuple[list[Blocks], Mapping[str, int]]]:
    entries = grants.memory.entries.get(pod.uid, {})
    if pod.uid in grants.memory.pod_entries:
        return [([grants.memory.pod_entries[pod.uid]], asked.pod_memory or {})]
    if managers.effective_scope is TopologyScope.POD:
        return [(list(entries.values()), pod_request(pod) if asked.memory else {})]
    return [
        ([entries[each.name]], asked.memory.get(each.name, {}))
        for each in pod.containers
        if each.kind is not ContainerKind.INIT and each.name in entries
    ]
