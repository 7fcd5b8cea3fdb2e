"""The Static memory manager policy: NUMA memory per container (kubelet cm/memorymanager/policy_static.go, KEP-1769).

Finding NUMA nodes is `agent.policy.hints`; pods with pod-level resources in pod scope are `agent.policy.pod_pool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from agent.errors import BadInputError
from agent.model.machine import Machine
from agent.model.numa import NodeMask, node_ids
from agent.model.pod import Container, ContainerKind, Pod, ResourceList
from agent.model.resources import is_memory, most_at_once
from agent.model.state import Blocks, MemoryBlock, MemoryTable, NUMANodeState
from agent.policy.go_text import print_bytes, quote

MachineState = Mapping[int, NUMANodeState]
Request = Mapping[str, int]  # "memory" or "hugepages-<size>" -> bytes
Reusable = Mapping[NodeMask, Mapping[str, int]]  # NUMA nodes -> resource -> bytes of finished init containers


class MemoryReservationError(BadInputError):
    """reservedMemory does not fit the machine or the node's reservations."""


@dataclass(frozen=True, slots=True)
class MemoryManager:
    """The Static policy on one machine. system_reserved: NUMA id -> resource -> bytes that no container gets."""

    machine: Machine
    system_reserved: Mapping[int, Request]


def reserve(machine: Machine, reserved: Mapping[int, Request], node_allocatable: Request) -> MemoryManager:
    """The Static policy with the configured reservation.

    reserved: reservedMemory. node_allocatable: per resource, bytes that kubeReserved, systemReserved and evictionHard take
    from the node; the sums over the NUMA nodes must equal it. Raises MemoryReservationError.
    """
    totals: dict[str, int] = {}
    for node in sorted(reserved):
        if node not in machine.numa_nodes:
            known = ", ".join(map(str, machine.numa_nodes))
            raise MemoryReservationError(
                f"the reserved memory configuration references a NUMA node {node} that does not exist on this machine",
                hint=f"NUMA nodes of this machine: {known}",
            )
        for resource, amount in reserved[node].items():
            totals[resource] = totals.get(resource, 0) + amount
    for resource in sorted({*totals, *filter(is_memory, node_allocatable)}):
        total, wanted = totals.get(resource, 0), node_allocatable.get(resource, 0)
        if total != wanted:
            raise MemoryReservationError(
                f"the total amount {quote(print_bytes(total))} of type {quote(resource)} is not equal to the value "
                f"{quote(print_bytes(wanted))} determined by Node Allocatable feature",
                hint=f"let the {resource} limits of reservedMemory add up to {print_bytes(wanted)} (kubeReserved + "
                "systemReserved + evictionHard)",
            )
    if totals.get("memory", 0) <= 0:
        raise MemoryReservationError(
            "[memorymanager] you should specify the system reserved memory",
            hint="give reservedMemory with a memory limit for at least one NUMA node",
        )
    return MemoryManager(machine, {node: dict(amounts) for node, amounts in reserved.items()})


def fresh_machine_state(manager: MemoryManager) -> dict[int, NUMANodeState]:
    """The machine state of an empty node.

    Allocatable memory is total - reserved - pre-allocated hugepages, never below zero: upstream's unsigned arithmetic
    wraps around where a reservation exceeds the node.
    """
    state = {}
    for node in manager.machine.numa_nodes:
        amounts = manager.machine.numa_memory.get(node, {})
        reserved = manager.system_reserved.get(node, {})
        hugepages = sum(amount for resource, amount in amounts.items() if resource != "memory")
        tables = {}
        for resource, total in amounts.items():
            held = reserved.get(resource, 0) + (hugepages if resource == "memory" else 0)
            allocatable = max(total - held, 0)
            tables[resource] = MemoryTable(total, reserved.get(resource, 0), allocatable, 0, allocatable)
        state[node] = NUMANodeState(0, 1 << node, tables)
    return state


def requested(resources: ResourceList) -> dict[str, int]:
    """The memory and hugepages of a request list, bytes. Zero-sized ones stay: they become zero-sized blocks."""
    return {name: quantity.value() for name, quantity in resources.items() if is_memory(name)}


def container_request(container: Container) -> dict[str, int]:
    """What a container asks of the memory manager, bytes per resource."""
    return requested(container.resources.requests)


def pod_request(pod: Pod) -> dict[str, int]:
    """The most memory that the pod's containers hold at one time, bytes per resource (KEP-753's rule for sidecars)."""
    requests = [(container.kind, container_request(container)) for container in pod.containers]
    resources = dict.fromkeys(resource for _, request in requests for resource in request)
    return {
        resource: most_at_once((kind, request.get(resource, 0)) for kind, request in requests) for resource in resources
    }


def charge(state: MachineState, nodes: NodeMask, resource: str, size: int) -> dict[int, NUMANodeState]:
    """Place one block: every node of the mask counts an assignment and joins the group; bytes fill nodes in id order."""
    result = dict(state)
    for node in node_ids(nodes):
        old = result[node]
        tables = old.memory
        table = tables.get(resource)
        if table is not None:
            part = max(min(size, table.free), 0)
            size -= part
            tables = {**tables, resource: replace(table, reserved=table.reserved + part, free=table.free - part)}
        result[node] = NUMANodeState(old.assignments + 1, nodes, tables)
    return result


def release(state: MachineState, blocks: Iterable[MemoryBlock]) -> dict[int, NUMANodeState]:
    """Take blocks back: bytes are returned in node order from whatever is reserved there, as the kubelet does."""
    result = dict(state)
    for block in blocks:
        size = block.size
        for node in node_ids(block.nodes):
            if node not in result:  # the node has vanished since: nothing of it can be returned
                continue
            old = result[node]
            tables = old.memory
            table = tables.get(block.type)
            if table is not None and (part := min(size, table.reserved)):
                size -= part
                kept = table.reserved - part  # may still be more than is allocatable: memory that went away is not free
                free = max(table.allocatable - kept, 0)
                tables = {**tables, block.type: replace(table, reserved=kept, free=free)}
            assignments = max(old.assignments - 1, 0)
            result[node] = NUMANodeState(assignments, old.cells if assignments else 1 << node, tables)
    return result


def blocks_on(nodes: NodeMask, amounts: Request) -> Blocks:
    """One block for each resource, ordered by name, all on these NUMA nodes."""
    return tuple(MemoryBlock(resource, amounts[resource], nodes) for resource in sorted(amounts))


def place(
    state: MachineState, request: Request, nodes: NodeMask, reusable: Reusable
) -> tuple[Blocks, dict[int, NUMANodeState]]:
    """The blocks of one container on these NUMA nodes and the machine state after it; what can be reused is not charged."""
    blocks = blocks_on(nodes, request)
    result = dict(state)
    spare = reusable.get(nodes, {})
    for block in blocks:
        result = charge(result, nodes, block.type, max(block.size - spare.get(block.type, 0), 0))
    return blocks, result


def reusable_after(kind: ContainerKind, reusable: Reusable, blocks: Blocks) -> dict[NodeMask, dict[str, int]]:
    """What later containers of the pod may reuse: init containers offer their largest block, the others use it up."""
    result = {nodes: dict(amounts) for nodes, amounts in reusable.items()}
    for block in blocks:
        spare = result.setdefault(block.nodes, {})
        if kind is ContainerKind.INIT:
            spare[block.type] = max(spare.get(block.type, 0), block.size)
        else:
            spare[block.type] = max(spare.get(block.type, 0) - block.size, 0)
    return result


def shrink_init_blocks(
    containers: tuple[Container, ...], entries: Mapping[str, Blocks], container: Container, blocks: Blocks
) -> dict[str, Blocks]:
    """Entries after `container` took over memory of the init containers before it: their blocks shrink, down to zero.

    Only blocks of the same type on the same NUMA nodes are taken over; the sum over the pod stays what is charged.
    """
    result = dict(entries)
    for block in blocks:
        left = block.size
        for earlier in containers:
            if earlier.name == container.name or left == 0:
                break
            if earlier.kind is not ContainerKind.INIT or earlier.name not in result:
                continue
            shrunk = []
            for held in result[earlier.name]:
                if held.type == block.type and held.nodes == block.nodes:
                    part = min(held.size, left)
                    left -= part
                    held = replace(held, size=held.size - part)
                shrunk.append(held)
            result[earlier.name] = tuple(shrunk)
    return result


def finished_before(containers: tuple[Container, ...], name: str) -> frozenset[str]:
    """The ordinary init containers before container `name`: they have ended once it runs."""
    finished = []
    for container in containers:
        if container.name == name:
            break
        if container.kind is ContainerKind.INIT:
            finished.append(container.name)
    return frozenset(finished)
