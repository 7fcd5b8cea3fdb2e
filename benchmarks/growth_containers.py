"""How an admission grows with the containers of the pod that comes.

Best effort: `restricted` refuses the largest of these pods in pod scope, since their CPUs need more NUMA nodes than their memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.bench_admission import deciding, scene
from benchmarks.curve import Curve, Series
from benchmarks.figure import Scale, least_cpu

SIZES = (1, 2, 5, 10, 20, 50)


def curves(scale: Scale) -> Iterator[Curve]:
    sizes = scale.pick(SIZES, (1, 2))
    series = tuple(
        Series(
            f"{scope} scope, {numa} NUMA nodes",
            tuple(
                (
                    float(count),
                    least_cpu(partial(deciding, scene(256, numa, count, "best-effort", scope)), scale.seconds),
                )
                for count in sizes
            ),
        )
        for scope in ("container", "pod")
        for numa in scale.pick((2, 8), (2,))
    )
    yield Curve(
        "containers",
        "Admission, by containers per pod (256 CPUs, CPU time)",
        "containers with 2 CPUs each",
        "ms",
        series,
    )
