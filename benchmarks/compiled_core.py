"""The pure wheel beside the compiled one: `python -m benchmarks.compiled_core PURE_PYTHON COMPILED_PYTHON`.

Both are the Python of an environment in which one of the wheels is installed, with `hypothesis` and `pytest`; the benchmarks come
from this checkout. Processes of the two alternate, seven of each, and each takes the least of many calls. Of the seven the second
least is shown: load makes figures too large, a clock that was not yet updated makes one too small. Times are CPU time.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROUNDS = 7
SECONDS = 0.15  # for each figure of a process
BESIDE = ("benchmarks", "tests")
CHECKOUT = Path(__file__).resolve().parents[1]


def figures() -> Iterator[tuple[str, float]]:
    """Of this process: what, and milliseconds (MiB for memory)."""
    began = time.process_time()
    from agent.policy.plan import decide  # noqa: F401
    from agent.queues.accountant import Accountant  # noqa: F401

    yield "import of the pure core, ms", (time.process_time() - began) * 1000
    yield "memory after that, MiB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    from agent.policy.cpu_assignment import take_cpus
    from benchmarks import bench_admission, bench_hints, bench_queues, bench_take_cpus
    from benchmarks.figure import least_cpu
    from tests.replay import recorded

    for way in ("packed", "distributed"):
        for cpus in (64, 256):
            machine = bench_take_cpus.machine(cpus)
            free = bench_take_cpus.free_cpus(machine, bench_take_cpus.EMPTY)
            pick = partial(take_cpus, machine, free, 8, bench_take_cpus.WAYS[way])
            yield f"pick 8 of {cpus} CPUs, {way}, ms", least_cpu(pick, SECONDS)
    for nodes in (2, 8, 64):
        node = bench_hints.build(nodes, True, "half")
        both = partial(bench_hints.decide, node, bench_hints.POLICIES["restricted"])
        yield f"hints and merge, {nodes} NUMA nodes, ms", least_cpu(both, SECONDS)
    for nodes in (2, 8):
        admit = partial(bench_admission.deciding, bench_admission.scene(128, nodes, 4))
        yield f"admit 4 containers, {nodes} NUMA nodes, not written, ms", least_cpu(admit, SECONDS)
    for measure in (bench_queues.fair_share_rows, bench_queues.reclaim_rows, bench_queues.accounting_rows):
        for row in measure(SECONDS):
            yield f"{row.what}, ms", row.pinfold / 1000
    path = recorded.RECORDS / "admission.jsonl"
    records = sum(1 for _ in recorded.answered(path))
    yield "replay of one admission record, ms", least_cpu(lambda: list(recorded.answered(path)), SECONDS) / records


def of(python: str, directory: Path) -> dict[str, float]:
    """The figures of a new process of that Python."""
    code = "import json; from benchmarks.compiled_core import figures; print(json.dumps(dict(figures())))"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", code], cwd=directory, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main(pure: str, compiled: str) -> None:
    """Print the table, as Markdown."""
    with tempfile.TemporaryDirectory() as temporary:
        for name in BESIDE:
            shutil.copytree(CHECKOUT / name, Path(temporary) / name, symlinks=True)
        rounds = [(of(pure, Path(temporary)), of(compiled, Path(temporary))) for _ in range(ROUNDS)]
    print("| what | pure | compiled | times as fast |\n| --- | ---: | ---: | ---: |")
    for what in rounds[0][0]:
        one, other = (sorted(each[which][what] for each in rounds)[1] for which in (0, 1))
        print(f"| {what} | {one:.4g} | {other:.4g} | {one / other:.2f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
