"""Restarts: a node full of pods that nothing moves, and readers for whom nothing ever runs backwards."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agent.keeper import Rules
from agent.model.pod import Pod
from agent.model.state import Epoch, State
from agent.node.state_errors import StateWriteError
from tests.agents import pod_text, running
from tests.faults import StruckOps
from tests.keepers import look, rules, started
from tests.policy.nodes import GIB, machine, managers, pod

LARGE = machine({0: "0-255", 1: "256-511"}, {node: {"memory": 512 * GIB} for node in (0, 1)})


def large_rules() -> Rules:
    kept = {node: {"memory": GIB} for node in (0, 1)}
    return rules(managers(LARGE, memory_policy="Static", reserved_memory=kept, topology_policy="restricted"))


def workload(count: int) -> list[Pod]:
    """Pods of one and two exclusive CPUs, of bubbles and of none."""
    kinds = [
        lambda uid: pod(uid, cpu="2"),
        lambda uid: pod(uid, cpu="1", log="1"),
        lambda uid: pod(uid, cpu="500m"),
        lambda uid: pod(uid, cpu="1", log="500m", pod_level={"cpu": "3", "memory": "2Gi"}),
    ]
    return [kinds[number % len(kinds)](f"uid-{number}") for number in range(count)]


@pytest.mark.parametrize(
    "restarts", [pytest.param(8, id="short"), pytest.param(1000, id="long", marks=pytest.mark.long)]
)
@pytest.mark.timeout(3600)
def test_restarts_with_200_running_pods_change_nothing(tmp_path: Path, restarts: int) -> None:
    """Not a byte, and not one write."""
    pods, under = workload(200), large_rules()
    with started(tmp_path, under) as keeper:
        look(keeper, *pods)
        for each in pods:
            keeper.started(each.uid, "app")
        assert len(keeper.state.pods) == 200
        before = keeper.state
    stored = (tmp_path / "pinfold_state").read_bytes()
    for number in range(restarts):
        files = StruckOps(no_writes)
        with started(tmp_path, under, files) as keeper:
            decisions = look(keeper, *pods)
            look(keeper, *pods)
            assert (decisions, keeper.state) == ((), before), f"restart {number}"
    assert (tmp_path / "pinfold_state").read_bytes() == stored


def no_writes(name: str, number: int) -> None:
    assert name in ("open", "close"), name


@pytest.mark.parametrize("reboots", [pytest.param(5, id="short"), pytest.param(200, id="long", marks=pytest.mark.long)])
def test_reboots_with_drifting_memory_move_nothing(tmp_path: Path, reboots: int) -> None:
    """Each boot has another boot id, and some MiB of memory are on the other NUMA node (BL-16)."""
    rng = random.Random(reboots)
    pods, under = workload(60), large_rules()
    with started(tmp_path, under) as keeper:
        look(keeper, *pods)
        before = keeper.state.grants
    for number in range(reboots):
        drift = rng.randrange(-60, 60) << 20
        memory = {0: {"memory": 512 * GIB + drift}, 1: {"memory": 512 * GIB - drift}}
        kept = {node: {"memory": GIB} for node in (0, 1)}
        drifted = managers(
            replace(LARGE, numa_memory=memory),
            memory_policy="Static",
            reserved_memory=kept,
            topology_policy="restricted",
        )
        with started(tmp_path, rules(drifted, boot_id=f"boot-{number}")) as keeper:
            assert look(keeper, *pods) == ()
            after = keeper.state.grants
            assert (after.cpu, after.memory.entries, after.memory.pod_entries) == (
                before.cpu,
                before.memory.entries,
                before.memory.pod_entries,
            )
            assert not keeper.repair.waiting


@pytest.mark.parametrize("restarts", [pytest.param(3, id="short"), pytest.param(60, id="long", marks=pytest.mark.long)])
def test_the_whole_agent_restarted_changes_no_byte(tmp_path: Path, restarts: int) -> None:
    with running(tmp_path) as agent:
        for number in range(8):
            agent.manifest(f"p{number}", pod_text(f"p{number}", str(number % 3 + 1)))
        before = agent.until(lambda status: len(status["pods"]) == 8)
        stored = (agent.state / "pinfold_state").read_bytes()
        for number in range(restarts):
            if number % 2:
                agent.kill()
            else:
                agent.stop()
            agent.start()
            status = agent.status()
            assert (status["pods"], status["cpus"]) == (before["pods"], before["cpus"])
            assert (agent.state / "pinfold_state").read_bytes() == stored


class Reader:
    """Keeps the greatest stamp it has seen of states that were published, as a monitoring agent or a scheduler does."""

    def __init__(self) -> None:
        self.seen: State | None = None

    def read(self, state: State) -> None:
        if self.seen is not None:
            assert state.stamp >= self.seen.stamp
            assert state.stamp != self.seen.stamp or state == self.seen, "two states under one stamp"
        self.seen = state


@pytest.mark.parametrize("seed", range(12))
def test_epoch_and_generation_never_run_backwards_whatever_happens_to_the_files(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Restarts, failing disks, one or both files damaged, previous put in place of current, and clocks set back."""
    rng, reader = random.Random(seed), Reader()
    wanted: dict[str, Pod] = {}
    now = time.time_ns()
    for number in range(60):
        now += rng.choice([0, 10**6, 10**9, -(10**15)])
        monkeypatch.setattr(time, "time_ns", lambda: now)  # noqa: B023 - of this round
        files = StruckOps(lambda name, place: strike(name, rng) if failing else None)  # noqa: B023 - of this round
        failing = False
        with started(tmp_path, files=files) as keeper:
            for _ in range(rng.randrange(1, 4)):
                failing = rng.random() < 0.3
                if wanted and rng.random() < 0.4:
                    del wanted[rng.choice(sorted(wanted))]
                elif len(wanted) < 3:
                    wanted[f"p{number}"] = pod(f"p{number}")
                try:
                    look(keeper, *wanted.values())
                except StateWriteError:
                    continue
                reader.read(keeper.state)
            failing = False
        for path in (tmp_path / "pinfold_state", tmp_path / "pinfold_state.previous"):
            if path.exists() and rng.random() < 0.2:
                path.write_bytes(path.read_bytes()[:-1])


def strike(name: str, rng: random.Random) -> None:
    if rng.random() < 0.1 and name != "close":
        raise OSError(5, "Input/output error")


def test_an_epoch_is_taken_from_a_damaged_file_when_the_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(tmp_path) as keeper:
        look(keeper)
        look(keeper, pod("a"))
        epoch = keeper.state.epoch
    for path in tmp_path.glob("pinfold_state*"):
        path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    with started(tmp_path) as keeper:
        assert keeper.state == State(Epoch(epoch.number + 1, keeper.state.epoch.nonce))
