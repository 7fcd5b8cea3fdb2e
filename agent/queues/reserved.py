"""What reservations hold in each queue and above it, kept up to date by what changes: no answer walks thousands of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from agent.model.queue import Queue
from agent.queues.resize_bounds import QueueCharge
from agent.queues.resize_growth import CPUMemory


class Hold(NamedTuple):
    """Growth that is held for one pod of a queue. Amounts below 0 take back what was held."""

    queue: str
    preemptible: bool
    cpu_millis: int
    memory_bytes: int

    def __neg__(self) -> Hold:
        return Hold(self.queue, self.preemptible, -self.cpu_millis, -self.memory_bytes)


class _Held(NamedTuple):
    """Of all work, then of work that is not preemptible."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    fixed_cpu_millis: int = 0
    fixed_memory_bytes: int = 0


_NOTHING = _Held()


@dataclass(frozen=True, slots=True)
class Reserved:
    """queues: the tree that is summed up in, by name. amounts: by queue, descendants included; only queues that exist."""

    queues: Mapping[str, Queue]
    amounts: Mapping[str, _Held] = field(default_factory=dict)

    def plus(self, holds: Iterable[Hold]) -> Reserved:
        """With these too."""
        amounts = dict(self.amounts)
        for hold in holds:
            cpu, memory = hold.cpu_millis, hold.memory_bytes
            fixed = (0, 0) if hold.preemptible else (cpu, memory)
            for name in queue_path(hold.queue, self.queues):
                held = amounts.get(name, _NOTHING)
                amounts[name] = _Held(held[0] + cpu, held[1] + memory, held[2] + fixed[0], held[3] + fixed[1])
        return Reserved(self.queues, amounts)

    def added_to(
        self, charges: Mapping[str, QueueCharge], wanted: Collection[str] | None = None
    ) -> dict[str, QueueCharge]:
        """The charges with what is reserved. wanted: the only queues that matter; None: all."""
        result = dict(charges)
        for name in self.amounts.keys() if wanted is None else self.amounts.keys() & wanted:
            held = self.amounts[name]
            if held != _NOTHING:
                charge = result.get(name, QueueCharge())
                result[name] = replace(
                    charge, reserved=CPUMemory(*held[:2]), reserved_non_preemptible=CPUMemory(*held[2:])
                )
        return result


def queue_path(name: str, queues: Mapping[str, Queue]) -> list[str]:
    """The names of a queue and its ancestors, as far as they exist; a cycle ends it."""
    path: list[str] = []
    while name not in path and (queue := queues.get(name)) is not None:
        path.append(name)
        name = queue.parent
    return path
