"""Kill loops: SIGKILL at random moments of a busy agent, hundreds of times; nothing is lost, nothing moves."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.agents import pod_text, running


@pytest.mark.parametrize("rounds", [pytest.param(8, id="short"), pytest.param(300, id="long", marks=pytest.mark.long)])
def test_after_every_kill_the_state_is_one_that_was_decided(tmp_path: Path, rounds: int) -> None:
    """Manifests come and go while the agent is killed. After each restart every pod that kept its file and its uid has the
    CPUs it had, and no CPU has two owners."""
    rng = random.Random(rounds)
    with running(tmp_path) as agent:
        wanted: set[str] = set()
        held: dict[tuple[str, str], str] = {}
        for number in range(rounds):
            for _ in range(rng.randint(1, 3)):
                if wanted and rng.random() < 0.4:
                    name = rng.choice(sorted(wanted))
                    wanted.discard(name)
                    agent.remove(name)
                elif len(wanted) < 10:
                    name = f"p{number}-{rng.randint(0, 99)}"
                    wanted.add(name)
                    agent.manifest(name, pod_text(name, rng.choice(["1", "2", "3"])))
            time.sleep(rng.random() * 0.15)
            agent.kill()
            agent.start()
            status = agent.until(lambda status: {pod["name"] for pod in status["pods"]} == wanted)
            now = {(pod["name"], pod["uid"]): pod["containers"][0]["cpus"] for pod in status["pods"]}
            assert all(now[key] == cpus for key, cpus in held.items() if key in now)
            owned = [cpu for cpus in now.values() for cpu in expand(cpus)]
            assert len(owned) == len(set(owned))
            assert not set(owned) & set(expand(status["cpus"]["shared"]))
            held = now


def expand(cpus: str) -> list[int]:
    """The ids of a CPU list."""
    ids: list[int] = []
    for part in filter(None, cpus.split(",")):
        low, _, high = part.partition("-")
        ids += range(int(low), int(high or low) + 1)
    return ids
