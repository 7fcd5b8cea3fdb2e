"""Picking CPUs: pinfold against a straightforward reference with sets, same machines, same process.

Machines: two sockets, SMT 2 (siblings i and i + N/2), caches of 8 cores, 2 or 8 NUMA nodes. `nearly empty`: all but one core
free; `fragmented`: some 45 % of the cores taken, some of them half.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.policy.cpu_assignment import PickOptions, take_cpus
from benchmarks.figure import Scale, repeated
from benchmarks.problems import WrongResultError
from benchmarks.row import KUBELET, Recorded, Reference, Row, Target
from tests.policy.cpu_machines import regular
from tests.policy.reference_take_cpus import reference_take_cpus

WAYS = {
    "packed": PickOptions(),
    "prefer-uncore": PickOptions(prefer_uncore=True),
    "distributed": PickOptions(distribute_across_numa=True),
    "distributed by core": PickOptions(distribute_across_numa=True, cpu_group_size=2),
}
EMPTY, FRAGMENTED = "nearly empty", "fragmented"
# kubelet 1.36.2, fastest ms of picking 8 CPUs on two NUMA nodes: (way, free) -> by CPUs
GO_TWO_NODES = {
    ("packed", EMPTY): {64: 0.357, 128: 1.181, 256: 5.277, 512: 45.061},
    ("packed", FRAGMENTED): {64: 0.198, 128: 0.708, 256: 1.522, 512: 6.686},
    ("prefer-uncore", EMPTY): {64: 0.094, 128: 0.214, 256: 0.601, 512: 2.471},
    ("prefer-uncore", FRAGMENTED): {64: 0.090, 128: 0.138, 256: 0.348, 512: 1.156},
    ("distributed", EMPTY): {64: 0.215, 128: 0.565, 256: 1.856, 512: 7.367},
    ("distributed", FRAGMENTED): {64: 0.179, 128: 0.259, 256: 0.772, 512: 2.345},
    ("distributed by core", EMPTY): {64: 0.242, 128: 0.586, 256: 1.785, 512: 7.317},
    ("distributed by core", FRAGMENTED): {64: 0.120, 128: 0.271, 256: 0.770, 512: 2.392},
}
# the same on 512 CPUs of 8 NUMA nodes, nearly empty: way -> by CPUs asked for
GO_EIGHT_NODES = {
    "packed": {2: 16.528, 32: 23.887, 160: 11.414, 300: 6.798},
    "distributed by core": {2: 2.097, 32: 2.307, 160: 23.374, 300: 35.692},
}
BUDGETS = (256, 512)  # CPUs of design section 13: pick 8 of them, nearly empty


@dataclass(frozen=True)
class Case:
    """n CPUs wanted on a machine of so many, in one way, with so much of it free."""

    cpus: int
    numa: int
    way: str
    free: str
    n: int
    go: float

    def __str__(self) -> str:
        return f"pick {self.n} of {self.cpus} CPUs, {self.numa} NUMA nodes, {self.way}, {self.free}"


def cases(scale: Scale) -> Iterator[Case]:
    for (way, free), figures in GO_TWO_NODES.items():
        for cpus in scale.pick((64, 256, 512), (64,)):
            yield Case(cpus, 2, way, free, 8, figures[cpus])
    for way, figures in GO_EIGHT_NODES.items() if not scale.quick else ():
        for n, go in figures.items():
            yield Case(512, 8, way, EMPTY, n, go)


def machine(cpus: int, numa: int = 2) -> CPUTopology:
    return regular(cpus, sockets=2, numa=numa, smt=2, cache_cores=8)


def free_cpus(topology: CPUTopology, kind: str) -> CPUSet:
    """The CPUs that are free on a machine of this kind."""
    cores = list(topology.core_masks.values())
    taken = cores[0]
    if kind == FRAGMENTED:
        for core in random.Random(45).sample(cores[1:], len(cores) * 45 // 100):
            taken |= core if core % 3 else core & -core
    return CPUSet(topology.all.mask & ~taken)


def rows(scale: Scale) -> Iterator[Row]:
    for case in cases(scale):
        topology, way = machine(case.cpus, case.numa), WAYS[case.way]
        free = free_cpus(topology, case.free)
        if take_cpus(topology, free, case.n, way) != reference_take_cpus(topology, free, case.n, way):
            raise WrongResultError(f"{case}: the two disagree")
        ours = repeated(partial(take_cpus, topology, free, case.n, way), scale.seconds / 2)
        theirs = repeated(partial(reference_take_cpus, topology, free, case.n, way), scale.seconds / 2, least=2)
        in_budget = case.way == "packed" and case.free == EMPTY and case.numa == 2 and case.cpus in BUDGETS
        target = Target("min at most 1/10 of Go's", "least", case.go / 10) if in_budget else None
        yield Row(str(case), ours, "ms", Reference("with sets", theirs), Recorded(case.go, KUBELET), target)
