"""How long a node takes to come back: 500 pods on a machine of 512 CPUs, from the start of the process to ready; nothing moves.

The agent is a process of its own (`benchmarks.big_node`). Ready is when the control socket answers that it is, with every pod in
place; the clock starts before the process does. Then SIGKILL, and again. Beside it the CPU time of the process, which says the
same on a busy machine.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.formats.state import decode
from benchmarks.big_node import prepared, until_ready
from benchmarks.figure import Figure, Scale, repeated
from benchmarks.problems import WrongResultError
from benchmarks.row import Row, Target

LIMIT_MS = 2000.0


def rows(scale: Scale) -> Iterator[Row]:
    pods = scale.pick(500, 5)
    with prepared(pods) as agent:
        first, _ = until_ready(agent, pods)
        yield Row(f"first start, {pods} pods admitted", Figure.of([first]))
        before = (agent.state / "pinfold_state").read_bytes()
        walls, cpus = list[float](), list[float]()
        for _ in range(scale.pick(9, 1)):
            agent.kill()
            wall, cpu = until_ready(agent, pods)
            walls.append(wall)
            cpus.append(cpu)
            if (agent.state / "pinfold_state").read_bytes() != before:
                raise WrongResultError("something moved")
    yield Row(
        f"restart with {pods} pods until ready, nothing moved",
        Figure.of(walls),
        target=Target("p50 < 2 s", "p50", LIMIT_MS),
    )
    yield Row("  CPU time of that", Figure.of(cpus))
    yield Row("  reading the state alone", repeated(lambda: decode(before), scale.seconds))
