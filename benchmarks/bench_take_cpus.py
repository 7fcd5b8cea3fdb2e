"""Picking CPUs: pinfold against a straightforward reference with sets, same machines, same process.

usage: python benchmarks/bench_take_cpus.py [--seconds S]

Machines: two sockets, SMT 2 (siblings i and i + N/2), caches of 8 cores, 2 or 8 NUMA nodes. `nearly-empty`: all but one core
free; `fragmented`: some 45 % of the cores taken, some of them half. Figures are the fastest single calls, in microseconds.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from functools import partial

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.policy.cpu_assignment import PickOptions, take_cpus
from tests.policy.cpu_machines import regular
from tests.policy.reference_take_cpus import reference_take_cpus

WAYS = {
    "packed": PickOptions(),
    "packed-prefer-uncore": PickOptions(prefer_uncore=True),
    "distributed-group1": PickOptions(distribute_across_numa=True),
    "distributed-group2": PickOptions(distribute_across_numa=True, cpu_group_size=2),
}


def fastest(call: Callable[[], object], seconds: float) -> float:
    """Microseconds of the fastest of the calls that fit into so many seconds, at least two."""
    best = float("inf")
    until = time.perf_counter() + seconds
    calls = 0
    while calls < 2 or time.perf_counter() < until:
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
        calls += 1
    return best * 1e6


def free_cpus(topology: CPUTopology, kind: str) -> CPUSet:
    """The CPUs that are free on a machine of this kind."""
    cores = list(topology.core_masks.values())
    taken = cores[0]
    if kind == "fragmented":
        for core in random.Random(45).sample(cores[1:], len(cores) * 45 // 100):
            taken |= core if core % 3 else core & -core
    return CPUSet(topology.all.mask & ~taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="how long to repeat each call (default: %(default)s)"
    )
    seconds = parser.parse_args().seconds
    print(f"{'way':22}{'CPUs':>5}{'NUMA':>5}{'n':>5}  {'free':14}{'pinfold µs':>11}{'reference µs':>14}{'ratio':>8}")
    for cpus, numa, counts in (
        (64, 2, (2, 8)),
        (256, 2, (2, 8, 32)),
        (512, 2, (2, 8, 32)),
        (512, 8, (2, 32, 160, 300)),
    ):
        topology = regular(cpus, sockets=2, numa=numa, smt=2, cache_cores=8)
        for kind in ("nearly-empty", "fragmented"):
            free = free_cpus(topology, kind)
            for name, way in WAYS.items():
                for n in counts:
                    if n > len(free):
                        continue
                    if take_cpus(topology, free, n, way) != reference_take_cpus(topology, free, n, way):
                        raise SystemExit(f"{name}, {n} of {free}: the two disagree")
                    ours = fastest(partial(take_cpus, topology, free, n, way), seconds)
                    theirs = fastest(partial(reference_take_cpus, topology, free, n, way), seconds)
                    row = f"{name:22}{cpus:5}{numa:5}{n:5}  {kind:14}{ours:11.1f}{theirs:14.1f}{theirs / ours:7.0f}x"
                    print(row, flush=True)


if __name__ == "__main__":
    main()
