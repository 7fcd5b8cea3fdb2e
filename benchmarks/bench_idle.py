"""What an agent costs that has nothing to do: 250 pods on 512 CPUs, the default periods, read from /proc of the real process.

A wake-up is a voluntary context switch of any of its threads. A kubelet holds some 85 MB.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.big_node import precise_cpu_ms, prepared, process_id, resident_mib, switches, until_ready
from benchmarks.figure import Figure, Scale
from benchmarks.row import Recorded, Row, Target

KUBELET_MIB = 85e6 / 2**20
SETTLE_SECONDS = 5.0  # until what comes after a start is over
QUICK_SETTLE_SECONDS = 0.5  # until the threads have ended that said whether it is ready, and their CPU time with them


def rows(scale: Scale) -> Iterator[Row]:
    pods, seconds = scale.pick(250, 5), scale.pick(30.0, 0.5)
    with prepared(pods) as agent:
        until_ready(agent, pods)
        time.sleep(scale.pick(SETTLE_SECONDS, QUICK_SETTLE_SECONDS))
        pid = process_id(agent)
        cpu, (woken, pushed), began = precise_cpu_ms(pid), switches(pid), time.perf_counter()
        time.sleep(seconds)
        took = time.perf_counter() - began
        cpu_after, (woken_after, pushed_after) = precise_cpu_ms(pid), switches(pid)
        resident, peak = resident_mib(pid), resident_mib(pid, "VmHWM")
    kubelet = Recorded(KUBELET_MIB, "a kubelet")
    yield one(f"resident memory, {pods} pods", resident, "MiB", Target("< 80 MiB", "most", 80), kubelet)
    yield one("resident memory at most since the start", peak, "MiB")
    share = (cpu_after - cpu) / took / 10
    yield one("idle, of one CPU", share, "%", Target("< 0.5 %", "most", 0.5))
    yield one("idle, wake-ups", (woken_after - woken) / took, "1/s", Target("no wake-up storm: < 20/s", "most", 20))
    yield one("idle, switches that others forced", (pushed_after - pushed) / took, "1/s")


def one(what: str, value: float, unit: str, target: Target | None = None, recorded: Recorded | None = None) -> Row:
    return Row(what, Figure.of([value]), unit, recorded=recorded, target=target)
