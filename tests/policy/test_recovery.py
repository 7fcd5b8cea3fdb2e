"""What runs and is not in the state: proven by cgroups it is taken over, before anything new is given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import PodPhase
from agent.policy.adopt import EffectiveCpuset
from agent.policy.observation import Event
from agent.policy.recovery import Running
from tests.keepers import T8, look, rules, started
from tests.policy.nodes import GIB, machine, managers, pod


def on(**cpus: str) -> Running:
    """on(a="1-2"): the container app of the pod with uid a runs on these CPUs of NUMA node 0, and is labelled test/pod-a."""
    return Running(
        {uid: {"app": EffectiveCpuset(CPUSet.parse(text), 1)} for uid, text in cpus.items()},
        {uid: f"test/pod-{uid}" for uid in cpus},
    )


A, B, C = pod("a"), pod("b", cpu="3"), pod("c")


def held(tmp_path: Path, *pods: Pod, running: Running, strict: bool = False) -> tuple[str, list[Event]]:
    """Who holds what once an agent without a state has looked; and what happened."""
    options = {"strict-cpu-reservation": "true"} if strict else {}
    with started(tmp_path, rules(managers(T8, options=options))) as keeper:
        decisions = look(keeper, *pods, running=running)
        cpu = keeper.state.grants.cpu
        sets = [f"{uid}={cpus}" for uid, entries in sorted(cpu.entries.items()) for cpus in entries.values()]
        return " ".join([*sets, f"shared={cpu.default}"]), [each.event for each in decisions]


@pytest.mark.parametrize(
    ("pods", "running", "expected"),
    [
        pytest.param([A, B], on(a="5-6", b="1-3"), "a=5-6 b=1-3 shared=0,4,7", id="both prove their CPUs"),
        pytest.param([C, A], on(a="1-2"), "a=1-2 c=3-4 shared=0,5-7", id="a new one first in the list gets others"),
        pytest.param([A], on(a="0-7"), "a=1-2 shared=0,3-7", id="on the whole pool: nothing proven, admitted as new"),
        pytest.param([A], on(a="1-3"), "a=1-2 shared=0,3-7", id="on more than it may have: nothing proven"),
        pytest.param([A, B], on(a="1-2", b="2-4"), "a=1-2 b=3-5 shared=0,6-7", id="on the same: neither proven"),
        pytest.param([], on(x="1-2"), "x=1-2 shared=0,3-7", id="nobody names it: held back until it is gone"),
        pytest.param([C], on(x="1-2"), "c=3-4 x=1-2 shared=0,5-7", id="and nobody else gets them"),
        pytest.param([], on(x="0-7"), "shared=0-7", id="a stranger on the whole pool holds nothing"),
        pytest.param([], on(x="0-1"), "shared=0-7", id="nor one on a reserved CPU"),
    ],
)
def test_a_lost_state_is_rebuilt_from_what_runs(
    tmp_path: Path, pods: list[Pod], running: Running, expected: str
) -> None:
    assert held(tmp_path, *pods, running=running)[0] == expected


def test_with_strict_reservation_a_shared_stranger_does_not_take_the_pool(tmp_path: Path) -> None:
    assert held(tmp_path, running=on(x="1-7"), strict=True)[0] == "shared=1-7"


def test_it_says_what_it_took_over_and_what_it_could_not(tmp_path: Path) -> None:
    _, events = held(tmp_path, A, B, running=on(a="1-2", b="0,3-5", x="6-7"))
    assert events == [Event.ADOPTED, Event.NOT_PROVEN, Event.ADOPTED, Event.ADMITTED]


@pytest.mark.parametrize(
    ("pods", "running", "events"),
    [
        pytest.param(
            [replace(pod("large", cpu="20"), uid="")],
            on(large="0-7"),
            [Event.NOT_PROVEN, Event.REFUSED],
            id="it proves nothing and is refused",
        ),
        pytest.param([], on(x="0-7"), [], id="nobody names it, and it holds nothing"),
    ],
)
def test_while_a_source_is_silent_what_cannot_be_taken_over_is_told_once_and_nothing_is_written_again(
    tmp_path: Path, pods: list[Pod], running: Running, events: list[Event]
) -> None:
    """What runs is looked at again until every source has spoken, which may take long."""
    with started(tmp_path) as keeper:
        silent = frozenset({"apiserver"})
        assert [each.event for each in look(keeper, *pods, running=running, silent_sources=silent)] == events
        before = keeper.state
        for _ in range(3):
            assert look(keeper, *pods, running=running, silent_sources=silent) == ()
        assert keeper.state is before


def test_a_manifest_without_a_uid_is_known_again_by_the_name_on_its_cgroup(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        look(keeper, replace(A, uid=""), running=on(a="5-6"))
        assert {uid: record.pod.uid for uid, record in keeper.state.pods.items()} == {"a": "a"}
        assert keeper.state.manifest_uids == {"test/pod-a": "a"}
        record = keeper.state.pods["a"]
        assert (record.phase, str(record.first.cpus["app"])) == (PodPhase.RUNNING, "5-6")
        before = keeper.state
        look(keeper, replace(A, uid=""), running=on(a="5-6"))
        assert keeper.state is before


def test_after_a_fallback_what_ended_is_released_before_what_runs_is_taken_over(tmp_path: Path) -> None:
    """The lost generation: a ended, and b came onto its CPUs."""
    with started(tmp_path) as keeper:
        look(keeper, A)
        look(keeper, A)
        keeper.started("a", "app")
        epoch = keeper.state.epoch
    path = tmp_path / "pinfold_state"
    path.write_bytes(path.read_bytes()[:-20])
    with started(tmp_path) as keeper:
        assert list(keeper.state.pods) == ["a"], "the previous generation"
        look(keeper, C, pod("new"), running=on(c="1-2"))
        cpu = keeper.state.grants.cpu
        assert {uid: str(sets["app"]) for uid, sets in cpu.entries.items()} == {"c": "1-2", "new": "3-4"}
        assert keeper.state.epoch > epoch
    assert len(list(tmp_path.glob("*.damaged-*"))) == 1


def test_memory_comes_with_the_cpus_where_the_container_is_bound_to_some_nodes(tmp_path: Path) -> None:
    nodes = machine({0: "0-3", 1: "4-7"})
    kept = {node: {"memory": GIB} for node in (0, 1)}
    under = rules(managers(nodes, memory_policy="Static", reserved_memory=kept))
    running = Running({"a": {"app": EffectiveCpuset(CPUSet.parse("4-5"), 0b10)}})
    with started(tmp_path, under) as keeper:
        look(keeper, A, running=running)
        (block,) = keeper.state.grants.memory.entries["a"]["app"]
        assert (block.size, block.nodes) == (GIB, 0b10)
        assert keeper.state.grants.memory.machine[1].memory["memory"].reserved == GIB


def test_what_is_known_is_left_alone(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        look(keeper, A, B)
        before = keeper.state
        look(keeper, A, B, running=on(a="0-7", b="1-2"))
        assert keeper.state is before
