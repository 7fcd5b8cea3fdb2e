"""Whole decisions, from look to durable state, killed or failed at every one of their file operations (BL-06, BL-07)."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agent.keeper import Keeper, Rules
from agent.model.cpuset import CPUSet, union
from agent.model.pod import Pod
from agent.model.state import State
from agent.node.state_errors import StateWriteError
from agent.policy.adopt import EffectiveCpuset
from agent.policy.recovery import Running
from tests.faults import StruckOps, fail_at, in_child, kill_at, nothing
from tests.keepers import T8, content, look, rules, started, stored
from tests.policy.nodes import machine, managers, pod
from tests.states import EPOCH

A, B, C = pod("a"), pod("b", cpu="3"), pod("c", cpu="1")
GROWN = replace(A, containers=(replace(A.containers[0], resources=pod("a", memory="2Gi").containers[0].resources),))
ON_7 = Running({"x": {"app": EffectiveCpuset(CPUSet.parse("6-7"), 1)}}, {"x": "test/pod-x"})


def damage(directory: Path) -> None:
    """A byte of the state file is lost."""
    path = directory / "pinfold_state"
    path.write_bytes(path.read_bytes()[:-1])


@dataclass(frozen=True)
class Case:
    """before: pods that are here already. act: the decision. prepare: what happened to the directory while the agent was down."""

    act: Callable[[Keeper], object]
    before: tuple[Pod, ...] = (A, B)
    under: Callable[[], Rules] = rules
    prepare: Callable[[Path], None] = lambda directory: None


CASES: Mapping[str, Case] = {
    "the first start": Case(look, before=()),
    "a pod is admitted": Case(lambda keeper: look(keeper, A, B, C)),
    "the first pod is admitted": Case(lambda keeper: look(keeper, A), before=()),
    "a pod ends": Case(lambda keeper: look(keeper, B)),
    "the last pod ends": Case(look, before=(A,)),
    "one ends and another takes its place": Case(lambda keeper: look(keeper, B, C)),
    "a pod waits for its containers": Case(lambda keeper: look(keeper, B, alive=[("a", "app")])),
    "a pod is resized": Case(lambda keeper: look(keeper, GROWN, B)),
    "a container starts": Case(lambda keeper: keeper.started("b", "app")),
    "more is reserved": Case(lambda keeper: look(keeper, A, B), under=lambda: rules(managers(T8, reserved="0,7"))),
    "CPUs came": Case(lambda keeper: look(keeper, A, B), under=lambda: rules(managers(machine({0: "0-15"})))),
    "a pod's CPU went": Case(lambda keeper: look(keeper, A, B), under=lambda: rules(managers(machine({0: "0,2-7"})))),
    "a repair is applied": Case(
        lambda keeper: keeper.apply_repair(), under=lambda: rules(managers(machine({0: "0,2-7"})))
    ),
    "what runs is taken over": Case(lambda keeper: look(keeper, A, B, pod("x"), running=ON_7)),
    "the file was damaged": Case(lambda keeper: look(keeper, A, B, C), prepare=damage),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def set_up(directory: Path, case: Case) -> Path:
    directory.mkdir()
    if case.before:
        with started(directory) as keeper:
            look(keeper, *case.before)
            look(keeper, *case.before)  # so that there is a previous generation with the same pods
            keeper.started(case.before[0].uid, "app")
    case.prepare(directory)
    return directory


def decide(directory: Path, case: Case, files: StruckOps) -> None:
    with started(directory, case.under(), files) as keeper:
        case.act(keeper)


def comparable(state: State) -> State:
    """Without what is random or counts."""
    return replace(content(state), epoch=EPOCH)


def test_a_kill_at_every_file_operation_leaves_exactly_before_or_after(tmp_path: Path, case: Case) -> None:
    counting = StruckOps(nothing)
    decide(set_up(tmp_path / "undisturbed", case), case, counting)
    after = comparable(stored(tmp_path / "undisturbed"))
    origin = set_up(tmp_path / "origin", case)
    before = comparable(stored(shutil.copytree(origin, tmp_path / "before")))
    assert counting.count > 8
    seen = set()
    for place in range(counting.count):
        directory = shutil.copytree(origin, tmp_path / str(place))
        with in_child() as child:
            if child:
                decide(directory, case, StruckOps(kill_at(place)))
        found = comparable(stored(directory))
        assert found in (before, after), f"killed before operation {place}"
        seen.add(found == after)
        decide(directory, case, StruckOps(nothing))
        assert comparable(stored(directory)) == after, f"on after a kill before operation {place}"
    assert seen == {False, True}


ERRORS = [errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOENT]


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.long) for turn in range(1, len(ERRORS)))])
def test_an_error_at_every_file_operation_is_refused_rolled_back_and_heals(
    tmp_path: Path, case: Case, turn: int
) -> None:
    """Errors take turns over the operations; with --long each is tried at each."""
    counting = StruckOps(nothing)
    decide(set_up(tmp_path / "undisturbed", case), case, counting)
    after = comparable(stored(tmp_path / "undisturbed"))
    origin = set_up(tmp_path / "origin", case)
    refused = 0
    # errors of reading: tests/node/test_state_store.py
    for place in range(operations_of_a_load(case, origin, tmp_path / "load"), counting.count):
        directory = shutil.copytree(origin, tmp_path / str(place))
        struck = StruckOps(fail_at(place, ERRORS[(place + turn) % len(ERRORS)]))
        with started(directory, case.under(), struck) as keeper:
            state = keeper.state
            caught = refusal(keeper, case)
            if caught is not None:
                refused += 1
                assert keeper.problem is caught
                assert str(directory) in str(caught)
                assert caught.hint
                assert keeper.state in (state, stored_beside(directory, tmp_path / f"copy-{place}"))
                case.act(keeper)  # the disk is well again: only this one operation failed
            assert keeper.problem is None
        assert comparable(stored(directory)) == after
    assert refused >= 5


def refusal(keeper: Keeper, case: Case) -> StateWriteError | None:
    try:
        case.act(keeper)
    except StateWriteError as error:
        return error
    return None


def operations_of_a_load(case: Case, origin: Path, copy: Path) -> int:
    counting = StruckOps(nothing)
    with started(shutil.copytree(origin, copy), case.under(), counting):
        return counting.count


def stored_beside(directory: Path, copy: Path) -> State:
    """What a start would find now; the directory itself is held."""
    return stored(shutil.copytree(directory, copy))


@pytest.mark.parametrize(
    "operations", [pytest.param(60, id="short"), pytest.param(1000, id="long", marks=pytest.mark.long)]
)
@pytest.mark.timeout(3600)
def test_random_decisions_killed_at_random_moments(tmp_path: Path, operations: int) -> None:
    """Pods come and go; every process is killed within its first few decisions, at a random file operation or at none."""
    rng = random.Random(operations)
    wanted: dict[str, Pod] = {}
    states: list[State] = []
    with started(tmp_path) as keeper:
        look(keeper)
        states.append(keeper.state)
    for number in range(operations):
        if len(wanted) > 6 or (wanted and rng.random() < 0.45):
            del wanted[rng.choice(sorted(wanted))]
        else:
            wanted[f"p{number}"] = pod(f"p{number}", cpu=rng.choice("123"))
        before = states[-1]
        with in_child() as child:
            if child:
                with started(tmp_path, files=StruckOps(kill_at(rng.randrange(60)))) as keeper:
                    look(keeper, *wanted.values())
                    os.kill(os.getpid(), signal.SIGKILL)
        rng.random()
        with started(tmp_path) as keeper:
            found = keeper.state
            assert found.stamp >= before.stamp
            check_sound(found)
            kept = {uid: cpus for uid, cpus in before.grants.cpu.entries.items() if uid in found.grants.cpu.entries}
            assert all(found.grants.cpu.entries[uid] == cpus for uid, cpus in kept.items())
            assert content(found) == content(before) or set(found.pods) <= set(wanted)
            look(keeper, *wanted.values())
            states.append(keeper.state)
        assert not list(tmp_path.glob("*.damaged-*"))
    assert len({state.generation for state in states}) > operations // 3


def check_sound(state: State) -> None:
    """Every CPU is in exactly one place."""
    held = [state.grants.cpu.held_by(uid) for uid in state.pods]
    assert sum(map(len, held)) == len(union(held))
    assert not state.grants.cpu.default & union(held)
    assert state.grants.cpu.default | union(held) == CPUSet.parse("0-7")
