"""Queues on one line each: `queue("a", gpu=(2, -1))` has a GPU quota of 2 and no limit; what is not given is unlimited."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from agent.model.queue import ZERO, Queue, QueueShare, ResourceQuantities

Amount: TypeAlias = float | tuple[float, float] | tuple[float, float, float]  # quota, or (quota, limit[, weight])


def queue(
    name: str,
    parent: str = "",
    *,
    priority: int = 100,
    created: int = 0,
    cpu: Amount = -1.0,
    memory: Amount = -1.0,
    gpu: Amount = -1.0,
) -> Queue:
    columns = [
        (*amount, -1.0, 1.0)[:3] if len(amount) == 1 else (*amount, 1.0)[:3]
        for amount in map(_tuple, (cpu, memory, gpu))
    ]
    deserved, limit, weight = (ResourceQuantities(*map(float, column)) for column in zip(*columns, strict=True))
    return Queue(name, parent, priority, created, deserved, limit, weight)


def _tuple(amount: Amount) -> tuple[float, ...]:
    return amount if isinstance(amount, tuple) else (amount,)


def amounts(*, cpu: float = 0, memory: float = 0, gpu: float = 0) -> ResourceQuantities:
    return ResourceQuantities(float(cpu), float(memory), float(gpu))


def share(
    of: Queue,
    *,
    allocated: ResourceQuantities = ZERO,
    non_preemptible: ResourceQuantities = ZERO,
    request: ResourceQuantities = ZERO,
    usage: ResourceQuantities = ZERO,
    fair: ResourceQuantities = ZERO,
) -> QueueShare:
    return QueueShare(of, allocated, non_preemptible, request, usage, fair)


def by_name(shares: Iterable[QueueShare]) -> Mapping[str, QueueShare]:
    return {each.queue.name: each for each in shares}
