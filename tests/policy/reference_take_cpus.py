"""Picking CPUs the straightforward way, with sets and by trying everything: what the fast way is compared with.

It follows the kubelet's code step by step (cm/cpumanager/cpu_assignment.go), with each element's own size in place of the
machine-wide averages, combinations that are remembered as they were, and subsets without enough whole groups passed over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, combinations

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUInfo, CPUTopology
from agent.policy.cpu_assignment import PickOptions

Key = Callable[[CPUInfo], int]


def numa_of(cpu: CPUInfo) -> int:
    return cpu.numa


def socket_of(cpu: CPUInfo) -> int:
    return cpu.socket


def core_of(cpu: CPUInfo) -> int:
    return cpu.core


def uncore_of(cpu: CPUInfo) -> int:
    return cpu.uncore


class Accumulator:
    """CPUs still free, CPUs taken, CPUs still needed."""

    def __init__(self, topology: CPUTopology, available: Iterable[int], need: int, spread: bool) -> None:
        self.all = {cpu.id: cpu for cpu in topology.cpus}
        self.free = {cpu: self.all[cpu] for cpu in available if cpu in self.all}
        self.taken: set[int] = set()
        self.need = need
        self.spread = spread
        sockets, nodes = ({key(cpu) for cpu in topology.cpus} for key in (socket_of, numa_of))
        self.levels = (numa_of, socket_of) if len(sockets) >= len(nodes) else (socket_of, numa_of)
        self.mean_uncore = len(self.all) // len({cpu.uncore for cpu in topology.cpus})

    def members(self, key: Key, element: int, *, free: bool = True) -> set[int]:
        return {cpu.id for cpu in (self.free if free else self.all).values() if key(cpu) == element}

    def ordered(self, elements: Iterable[int], key: Key) -> list[int]:
        return sorted(set(elements), key=lambda element: (len(self.members(key, element)), element))

    def inside(self, outer: Key, element: int, inner: Key) -> list[int]:
        return self.ordered((inner(cpu) for cpu in self.free.values() if outer(cpu) == element), inner)

    def order(self, key: Key) -> list[int]:
        first, second = self.levels
        if key is first:
            return self.ordered((first(cpu) for cpu in self.free.values()), first)
        outer = first if key is second else numa_of if key is uncore_of else second
        return list(chain.from_iterable(self.inside(outer, element, key) for element in self.order(outer)))

    def take(self, cpus: Iterable[int]) -> None:
        for cpu in cpus:
            del self.free[cpu]
            self.taken.add(cpu)
            self.need -= 1

    def take_whole(self, key: Key) -> None:
        for element in self.order(key):
            whole = self.members(key, element, free=False)
            if self.members(key, element) == whole and len(whole) <= self.need:
                self.take(whole)

    def take_uncores(self) -> None:
        for uncore in self.order(uncore_of):
            if self.need >= self.mean_uncore:
                self.take_whole(uncore_of)
            if self.need:
                self.take_part(uncore)

    def take_part(self, uncore: int) -> None:
        threads = 0
        part: list[int] = []
        for core in sorted({cpu.core for cpu in self.free.values() if cpu.uncore == uncore}):
            if threads < self.need:
                threads += len(self.members(core_of, core, free=False))
                part += self.members(core_of, core)
        part.sort()
        if self.need % 2 and len(part) > self.need:
            part.pop()
        if len(part) == self.need:
            self.take(part)

    def take_single(self) -> None:
        key = socket_of if self.spread else core_of
        for cpu in [cpu for element in self.order(key) for cpu in sorted(self.members(key, element))]:
            if self.need and cpu in self.free:
                self.take([cpu])


def packed(topology: CPUTopology, available: Iterable[int], n: int, *, spread: bool, uncore: bool) -> set[int]:
    todo = Accumulator(topology, available, n, spread)
    for level in todo.levels:
        todo.take_whole(level)
    if uncore:
        todo.take_uncores()
    if not spread:
        todo.take_whole(core_of)
    todo.take_single()
    return todo.taken


def rounded(number: float) -> float:
    return math.floor(number * 1000 + 0.5) / 1000


def deviation(counts: Sequence[int]) -> float:
    mean = rounded(sum(counts) / len(counts))
    return rounded(math.sqrt(sum((count - mean) ** 2 for count in counts) / len(counts)))


def round_robin(free: list[int], subset: Sequence[int], groups: int, size: int) -> None:
    while groups:
        for node in subset:
            if groups and free[node] >= size:
                free[node] -= size
                groups -= 1


def split_over(counts: Sequence[int], members: Sequence[int], groups: int, size: int) -> tuple[float, list[int]] | None:
    """The balance of one combination and what is free on every node after it."""
    share, left = divmod(groups, len(members))
    even = [count - share * size if node in members else count for node, count in enumerate(counts)]
    able = [node for node in members if even[node] >= size]
    if min(even) < 0 or sum(counts[node] // size for node in members) < groups:
        return None
    if not left:
        return deviation(even), even
    best: tuple[float, list[int]] | None = None
    for width in range(len(able), 0, -1):
        for subset in combinations(able, width):
            if sum(even[node] // size for node in subset) < left:
                continue
            after = list(even)
            round_robin(after, subset, left, size)
            if best is None or deviation(after) < best[0]:
                best = deviation(after), after
    return best


def split(counts: Sequence[int], width: int, groups: int, size: int) -> tuple[int, ...] | None:
    """Groups per node of the best combination of `width` nodes."""
    best: tuple[float, list[int]] | None = None
    for members in combinations(range(len(counts)), width):
        found = split_over(counts, members, groups, size)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
    return best and tuple((count - after) // size for count, after in zip(counts, best[1], strict=True))


def distributed(topology: CPUTopology, available: Iterable[int], n: int, *, size: int, spread: bool) -> set[int]:
    todo = Accumulator(topology, available, n, spread)
    nodes = list(dict.fromkeys(todo.order(numa_of)))  # a node that lies in two sockets is listed for both
    counts = [len(todo.members(numa_of, node)) for node in nodes]
    per_node = math.ceil(math.ceil(len(todo.all) / size) / len({cpu.numa for cpu in topology.cpus}))
    groups = n // size
    for width in range(math.ceil(groups / per_node), min(groups, len(nodes)) + 1) if n % size == 0 else ():
        found = split(counts, width, groups, size)
        if found is None:
            continue
        for node, given in zip(nodes, found, strict=True):
            for count in (groups // width, *[1] * (given - groups // width)) if given else ():
                todo.take(packed(topology, todo.members(numa_of, node), count * size, spread=spread, uncore=False))
        return todo.taken
    return packed(topology, available, n, spread=spread, uncore=False)


def reference_take_cpus(topology: CPUTopology, available: CPUSet, n: int, options: PickOptions) -> CPUSet:
    """What `take_cpus` answers where enough CPUs are available."""
    if n == 0:
        return CPUSet()
    if options.distribute_across_numa:
        size, spread = options.cpu_group_size, options.spread_cores
        return CPUSet.of(distributed(topology, available, n, size=size, spread=spread))
    spread, uncore = options.spread_cores, options.prefer_uncore
    return CPUSet.of(packed(topology, available, n, spread=spread, uncore=uncore))
