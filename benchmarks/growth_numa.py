"""How hints, their merge and an admission grow with the machine's NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench_admission import deciding, scene
from benchmarks.bench_hints import ASKS, POLICIES, build, decide
from benchmarks.curve import Curve, Series
from benchmarks.figure import Scale, least_cpu

SIZES = (1, 2, 4, 8, 16, 32, 64)
CPUS = 512  # of the machine that admits


def curves(scale: Scale) -> Iterator[Curve]:
    sizes = scale.pick(SIZES, (1, 2))
    merged = [
        Series(f"hints and merge, {name}", tuple((float(nodes), slowest(nodes, name, scale)) for nodes in sizes))
        for name in POLICIES
    ]
    admitted = Series(
        f"admit a pod, {CPUS} CPUs, restricted",
        tuple((float(nodes), least_cpu(partial(deciding, scene(CPUS, nodes, 1)), scale.seconds)) for nodes in sizes),
    )
    title = "Hints, merge and admission, by NUMA nodes (CPU time, slowest of eight cases)"
    yield Curve("numa", title, "NUMA nodes", "ms", (*merged, admitted))


def slowest(nodes: int, policy: str, scale: Scale) -> float:
    """Milliseconds of the slowest of the cases, each at its fastest."""
    return max(
        least_cpu(partial(decide, build(nodes, busy, ask), POLICIES[policy]), scale.seconds / 6)
        for busy in (False, True)
        for ask in ASKS
    )
