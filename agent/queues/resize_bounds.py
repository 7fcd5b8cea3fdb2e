"""The bounds that growth must fit: the limit of every queue on the path, and the quota for work that cannot be preempted.

What a queue holds against what it may, one comparison after another until one fails. CPU in whole millicores, memory in whole
bytes. Source: as `agent.queues.resize_admission`, which makes an answer of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from agent.model.quantity import Quantity
from agent.model.queue import Queue, ResourceName
from agent.queues.derivation import Rule, Step
from agent.queues.resize_growth import NOTHING, CPUMemory
from agent.queues.workloads import Directory


class BoundKind(StrEnum):
    """Which bound of a queue: its limit, or its deserved quota."""

    LIMIT = "limit"
    QUOTA = "quota"


@dataclass(frozen=True, slots=True)
class QueueCharge:
    """What a queue is charged for now. reserved, reserved_non_preemptible: admitted growth that no report shows yet."""

    allocated: CPUMemory = NOTHING
    allocated_non_preemptible: CPUMemory = NOTHING
    reserved: CPUMemory = NOTHING
    reserved_non_preemptible: CPUMemory = NOTHING


def status_charge(queue: Queue) -> QueueCharge:
    """What `Queue.status` says; a missing entry counts as 0."""
    return QueueCharge(CPUMemory.of(queue.status.allocated), CPUMemory.of(queue.status.allocated_non_preemptible))


def checked_queues(name: str, directory: Directory) -> list[Queue]:
    """The queues to check, leaf to root. A missing queue or a cycle ends it."""
    path: list[Queue] = []
    while (queue := directory.queues.get(name)) is not None and queue not in path:
        path.append(queue)
        name = queue.parent
    return [queue for queue in path if queue.has_resources]


def _charge(queue: Queue, charges: Mapping[str, QueueCharge] | None) -> QueueCharge:
    return status_charge(queue) if charges is None else charges.get(queue.name, QueueCharge())


class Bound(NamedTuple):
    """One comparison: what would be held against what may be."""

    kind: BoundKind
    resource: ResourceName
    allocated: int
    reserved: int
    bound: float


def _bounds(queue: Queue, charge: QueueCharge, *, preemptible: bool) -> list[Bound]:
    """The bounds of one queue in the order in which they are checked; negative ones are unlimited and left out."""
    kinds = [(BoundKind.LIMIT, charge.allocated, charge.reserved, queue.limit)]
    if not preemptible:
        quota = (charge.allocated_non_preemptible, charge.reserved_non_preemptible, queue.deserved)
        kinds.append((BoundKind.QUOTA, *quota))
    bounds = []
    for kind, allocated, reserved, bound in kinds:
        bounds.append(Bound(kind, ResourceName.CPU, allocated.cpu_millis, reserved.cpu_millis, bound.cpu))
        # Megabytes as a float times 1e6, the fraction of a byte cut off, as upstream.
        memory = float(int(bound.memory))
        bounds.append(Bound(kind, ResourceName.MEMORY, allocated.memory_bytes, reserved.memory_bytes, memory))
    return [each for each in bounds if each.bound >= 0]


def checks(
    path: list[Queue],
    delta: Mapping[str, Quantity],
    charges: Mapping[str, QueueCharge] | None,
    *,
    preemptible: bool,
    strict: bool,
) -> Iterator[tuple[Step, Bound]]:
    """Every comparison, leaf to root, with the bound it is about. Whoever asks stops at the first that does not hold.

    charges: by queue; None takes what every `Queue.status` says. strict: growth fails wherever there is a bound at all.
    """
    more = dict(zip((ResourceName.CPU, ResourceName.MEMORY), CPUMemory.of(delta), strict=True))
    for queue in path:
        bounds = [
            each
            for each in _bounds(queue, _charge(queue, charges), preemptible=preemptible)
            if delta.get(each.resource)
        ]
        if strict:
            for bound in sorted(bounds, key=lambda each: each.resource):  # cpu: limit, quota; then memory
                rule = Rule.STRICT_LIMIT if bound.kind is BoundKind.LIMIT else Rule.STRICT_QUOTA
                yield _step(rule, queue, bound, more[bound.resource], holds=False), bound
        for bound in bounds:
            amount = more[bound.resource]
            holds = bound.allocated + bound.reserved + amount <= bound.bound
            yield _step(_rule(bound), queue, bound, amount, holds=holds), bound


def _rule(bound: Bound) -> Rule:
    if bound.kind is BoundKind.LIMIT:
        return Rule.RESERVED_LIMIT if bound.reserved else Rule.LIMIT
    return Rule.RESERVED_QUOTA if bound.reserved else Rule.QUOTA


def _step(rule: Rule, queue: Queue, bound: Bound, delta: int, *, holds: bool) -> Step:
    amounts = [("allocated", float(bound.allocated)), ("growth", float(delta)), (bound.kind.value, bound.bound)]
    if bound.reserved:
        amounts.insert(1, ("reserved", float(bound.reserved)))
    return Step(rule, queue.name, holds, bound.resource, tuple(amounts))


def room(path: list[Queue], failed: Step, charges: Mapping[str, QueueCharge] | None, *, preemptible: bool) -> int:
    """The growth of the failed step's resource that every queue of the path would take."""
    if failed.rule in (Rule.STRICT_LIMIT, Rule.STRICT_QUOTA):
        return 0
    bounds = [each for queue in path for each in _bounds(queue, _charge(queue, charges), preemptible=preemptible)]
    free = min(each.bound - each.allocated - each.reserved for each in bounds if each.resource is failed.resource)
    return max(0, int(free))
