"""How picking and admission grow with the machine's CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from agent.policy.cpu_assignment import take_cpus
from benchmarks.bench_admission import deciding, scene
from benchmarks.bench_take_cpus import EMPTY, FRAGMENTED, WAYS, free_cpus, machine
from benchmarks.curve import Curve, Series
from benchmarks.figure import Scale, least_cpu

SIZES = (16, 32, 64, 128, 256, 512, 1024)
LEAST_FOR_TEN_PODS = 32  # CPUs: ten pods with two each are there already


def curves(scale: Scale) -> Iterator[Curve]:
    sizes = scale.pick(SIZES, (16, 32))
    picked = [
        Series(
            f"pick 4, {way}, {free}",
            tuple((float(cpus), picking(cpus, way, free, scale.seconds / 2)) for cpus in sizes),
        )
        for way in ("packed", "distributed")
        for free in (EMPTY, FRAGMENTED)
    ]
    admitted = Series(
        "admit a pod, 2 NUMA nodes",
        tuple(
            (float(cpus), least_cpu(partial(deciding, scene(cpus, 2, 1)), scale.seconds))
            for cpus in sizes
            if cpus >= LEAST_FOR_TEN_PODS
        ),
    )
    yield Curve(
        "cpus", "Picking CPUs and admission, by CPUs (CPU time)", "CPUs of the machine", "ms", (*picked, admitted)
    )


def picking(cpus: int, way: str, free: str, seconds: float) -> float:
    topology = machine(cpus)
    return least_cpu(partial(take_cpus, topology, free_cpus(topology, free), 4, WAYS[way]), seconds)
