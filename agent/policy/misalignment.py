"""Why the topology policy refuses: what was asked, what every NUMA node has, and what would help.

Only worked out where a pod is refused. The decision itself is `agent.policy.topology_manager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.model.cpuset import CPUSet, format_list
from agent.model.pod import Container, ContainerKind
from agent.policy.hint_family import CapacityHints
from agent.policy.managers import Managers
from agent.policy.memory_static import MachineState
from agent.policy.topology_manager import Considered, Merged, deciding
from agent.policy.topology_options import TopologyPolicyName

_LISTED_NODES = 8  # a message for people; explain lists every node


@dataclass(frozen=True, slots=True)
class Misalignment:
    """note: the numbers, to follow the kubelet's message. rule: what decided, in words. hint: what would help."""

    note: str
    rule: str
    hint: str


@dataclass(frozen=True, slots=True)
class Situation:
    """What is free while the hints are asked: CPUs that may be given, those of finished init containers, memory tables.

    asked: resource -> CPUs or bytes. anchors: init containers whose CPUs the next container has to use again.
    """

    asked: Mapping[str, int]
    free: CPUSet
    reusable: CPUSet
    machine: MachineState
    anchors: tuple[str, ...] = ()


def misalignment(managers: Managers, merged: Merged, now: Situation) -> Misalignment:
    """Explain a merge that the policy does not admit."""
    decided = deciding(merged, managers.machine.numa_mask, managers.topology)
    names = [item.resource or f"provider {item.provider}" for item in decided]
    numbers = [_numbers(managers, now, item.resource) for item in decided if item.resource in now.asked]
    note = f": {'; '.join(numbers)}" if numbers else ""
    return Misalignment(note, _rule(managers, decided, names), _hint(managers, decided, names, now))


def anchors(containers: Iterable[Container], held: Mapping[str, CPUSet], reusable: CPUSet) -> tuple[str, ...]:
    """The init containers that hold the CPUs to be used again."""
    return tuple(
        container.name
        for container in containers
        if container.kind is ContainerKind.INIT and held.get(container.name, CPUSet()) & reusable
    )


def _numbers(managers: Managers, now: Situation, resource: str) -> str:
    """ "cpu: asked 4; free 1 of 6 on NUMA node 0, 2 of 6 on 1": capacity is what the preferred width goes by."""
    rows = _rows(managers, now, resource)
    listed = [f"NUMA node {node} has {free} free of {capacity}" for node, free, capacity in rows[:_LISTED_NODES]]
    if len(rows) > _LISTED_NODES:
        listed.append(f"{len(rows) - _LISTED_NODES} more nodes {sum(free for _, free, _ in rows[_LISTED_NODES:])} free")
    return f"{resource}: asked {now.asked[resource]}; {', '.join(listed)}"


def _rows(managers: Managers, now: Situation, resource: str) -> list[tuple[int, int, int]]:
    """NUMA node, free, capacity."""
    if resource == "cpu":
        nodes = managers.machine.topology.numa_masks
        there = now.free | now.reusable
        return [(node, (there.mask & cpus).bit_count(), cpus.bit_count()) for node, cpus in nodes.items()]
    tables = {node: state.memory.get(resource) for node, state in sorted(now.machine.items())}
    return [(node, table.free, table.allocatable) for node, table in tables.items() if table is not None]


def _rule(managers: Managers, decided: Sequence[Considered], names: Sequence[str]) -> str:
    policy = managers.topology.name
    if policy is TopologyPolicyName.SINGLE_NUMA_NODE:
        wanted = "every resource on one and the same NUMA node"
    else:
        sizes = sorted({item.hints.preferred_size for item in decided if isinstance(item.hints, CapacityHints)})
        nodes = f" ({' and '.join(map(str, sizes))})" if sizes else ""
        wanted = f"as few NUMA nodes as the request needs with everything on them free{nodes}"
    who = " and ".join(names)
    if len(decided) > 1:
        return f"topologyManagerPolicy {policy} wants {wanted}, the same ones for all; {who} have none in common"
    return f"topologyManagerPolicy {policy} wants {wanted}; {who} has no such place"


def _hint(managers: Managers, decided: Sequence[Considered], names: Sequence[str], now: Situation) -> str:
    cpu = next((item.hints for item in decided if item.resource == "cpu"), None)
    if isinstance(cpu, CapacityHints) and cpu.required:
        return (
            f"the CPUs of init container {', '.join(now.anchors)} are used again, which ties the pod to NUMA node "
            f"{format_list(cpu.required)}: a smaller request here, an init container without whole CPUs, one that is too large "
            "for that node, or topologyManagerScope: pod would help"
        )
    lacking = [
        f"{free} of {item.resource} are free in all"
        for item in decided
        if item.resource in now.asked
        and (free := sum(free for _, free, _ in _rows(managers, now, item.resource))) < now.asked[item.resource]
    ]
    if lacking:
        return f"{'; '.join(lacking)}: ask for less, or end other pods"
    most = [text for item in decided if (text := _most(item))]
    if most:
        return f"{'; '.join(most)}; or end other pods, or use topologyManagerPolicy: best-effort"
    if len(decided) > 1:
        return f"ask for less of {' or '.join(names)}, or end pods that hold them where the others are free"
    if managers.topology.name is TopologyPolicyName.SINGLE_NUMA_NODE:
        return "no NUMA node is large enough; ask for less, or use topologyManagerPolicy: restricted"
    return "ask for less, or end other pods"


def _most(item: Considered) -> str:
    """The most that this resource has free on one node, where one node is what is wanted."""
    hints = item.hints
    if not isinstance(hints, CapacityHints) or hints.preferred_size != 1 or len(hints.needs) != 1:
        return ""
    free = max(hints.needs[0].amounts.values(), default=0)
    if free >= hints.needs[0].at_least or any(map(hints.prefers, hints.others)):
        return ""
    return f"at most {free} of {item.resource} would fit on one NUMA node now"
