"""How long a pod holds what it was granted: from admission until it is proven to be gone, whatever its containers do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agent.keeper import Keeper
from agent.model.cpuset import CPUSet
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.state import PodPhase, State
from agent.policy.cgroup_intents import Rules as CgroupRules
from agent.policy.cgroup_intents import intent
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.observation import Event, Observation, Wanted
from agent.policy.podresources_view import Shape, podresources_view
from tests.keepers import look, rules, started, stored
from tests.policy.nodes import GIB, machine, managers, pod

A, B = pod("a"), pod("b", cpu="3")


def cpus_of(state: State, uid: str) -> str:
    return " ".join(f"{name}={cpus}" for name, cpus in state.grants.cpu.entries.get(uid, {}).items())


def with_init(uid: str, cpu: str = "1", memory: str = "2Gi") -> Pod:
    """An init container that uses what the app container gets after it."""
    main = pod(uid, cpu="2", memory=memory)
    before = Container("init", ContainerKind.INIT, pod("x", cpu=cpu, memory=memory).containers[0].resources)
    return replace(main, containers=(before, *main.containers))


def test_admitted_running_terminating_gone(tmp_path: Path) -> None:
    steps: list[tuple[PodPhase | None, str]] = []
    with started(tmp_path) as keeper:

        def note() -> None:
            record = keeper.state.pods.get("a")
            steps.append((record.phase if record else None, str(keeper.state.grants.cpu.default)))

        look(keeper, A)
        note()
        keeper.started("a", "app")
        note()
        look(keeper, alive=[("a", "app")])
        note()
        look(keeper, alive=[("a", "app")])
        note()
        look(keeper)
        note()
    assert steps == [
        (PodPhase.ADMITTED, "0,3-7"),
        (PodPhase.RUNNING, "0,3-7"),
        (PodPhase.TERMINATING, "0,3-7"),
        (PodPhase.TERMINATING, "0,3-7"),
        (None, "0-7"),
    ]


@pytest.mark.parametrize("phase", ["admitted", "running", "terminating"])
def test_every_phase_survives_a_restart(tmp_path: Path, phase: str) -> None:
    alive = [("a", "app")] if phase == "terminating" else []
    wanted = [] if phase == "terminating" else [A]
    with started(tmp_path) as keeper:
        look(keeper, A)
        if phase != "admitted":
            keeper.started("a", "app")
        look(keeper, *wanted, alive=alive)
        before = keeper.state
        assert before.pods["a"].phase == phase
    with started(tmp_path) as keeper:
        look(keeper, *wanted, alive=alive)
        assert keeper.state == before


def test_the_last_pod_is_released_without_another_event(tmp_path: Path) -> None:
    """BL-31: nothing protects the pod that was admitted last."""
    with started(tmp_path) as keeper:
        look(keeper, A)
        (released,) = look(keeper)
        assert released.event is Event.RELEASED
        assert str(keeper.state.grants.cpu.default) == "0-7"
        assert not keeper.state.pods
    assert str(stored(tmp_path).grants.cpu.default) == "0-7"


def test_a_container_that_restarts_has_its_grant_in_either_order_of_events(tmp_path: Path) -> None:
    """BL-30: the grant belongs to the pod and the container's name; which instance runs does not matter."""
    with started(tmp_path) as keeper:
        look(keeper, A)
        before = keeper.state.grants
        for alive in ([("a", "app")], [], [("a", "app")], []):  # created, stopped, created, stopped
            look(keeper, A, alive=alive)
        keeper.started("a", "app")
        keeper.started("a", "app")
        assert keeper.state.grants == before
        cgroups = CgroupRules()
        for instance in ("c1", "c2"):
            key = ContainerCgroup("a", "app", instance)
            assert intent(key, keeper.state.grants, {"a": A}, cgroups).settings.cpus == CPUSet.parse("1-2")


def test_a_crash_loop_writes_nothing(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        look(keeper, A)
        keeper.started("a", "app")
        before = keeper.state
        for _ in range(50):
            look(keeper, A)
            keeper.started("a", "app")
        assert keeper.state is before


def test_a_finished_init_container_takes_nothing_from_the_one_after_it(tmp_path: Path) -> None:
    """BL-27: their CPUs are the same, and go back when the pod ends."""
    with started(tmp_path) as keeper:
        look(keeper, with_init("a"))
        assert cpus_of(keeper.state, "a") == "init=1 app=1-2"
        keeper.started("a", "init")
        keeper.started("a", "app")
        look(keeper, with_init("a"))
        assert str(keeper.state.grants.cpu.default) == "0,3-7"
        look(keeper)
        assert str(keeper.state.grants.cpu.default) == "0-7"


def test_memory_of_a_finished_init_container_is_counted_once_over_restarts(tmp_path: Path) -> None:
    under = rules(managers(machine({0: "0-7"}), memory_policy="Static"))
    with started(tmp_path, under) as keeper:
        look(keeper, with_init("a"))
        for name in ("init", "app"):
            keeper.started("a", name)
        before = keeper.state.grants.memory
        assert before.machine[0].memory["memory"].reserved == 2 * GIB
    for _ in range(3):
        with started(tmp_path, under) as keeper:
            look(keeper, with_init("a"))
            keeper.started("a", "app")
            assert keeper.state.grants.memory == before
    with started(tmp_path, under) as keeper:
        look(keeper)
        assert keeper.state.grants.memory.machine[0].memory["memory"].reserved == 0


def test_a_pod_made_again_under_its_name_waits_for_the_one_before(tmp_path: Path) -> None:
    again = replace(A, uid="a2")
    with started(tmp_path) as keeper:
        look(keeper, A, B)
        decisions = look(keeper, again, B, alive=[("a", "app")])
        assert [(each.event, each.pod.uid) for each in decisions] == [
            (Event.TERMINATING, "a"),
            (Event.WAITING, "a2"),
        ]
        assert cpus_of(keeper.state, "a") == "app=1-2"
        look(keeper, again, B)
        assert list(keeper.state.pods) == ["b", "a2"]
        assert cpus_of(keeper.state, "a2") == "app=1-2"


def test_a_manifest_without_a_uid_that_comes_back_is_another_pod(tmp_path: Path) -> None:
    nameless = replace(A, uid="")
    with started(tmp_path) as keeper:
        look(keeper, nameless)
        (first,) = keeper.state.pods
        look(keeper)
        look(keeper, nameless)
        (second,) = keeper.state.pods
    assert first != second


def seen_beside(
    keeper: Keeper, *wanted: Wanted, silent: bool = False, alive: frozenset[tuple[str, str]] = frozenset()
) -> None:
    names = frozenset({"apiserver"})
    keeper.look(Observation(wanted, names if silent else frozenset(), alive, sources=names, cgroups_seen=True))


def test_a_finished_job_gives_its_cpus_to_the_next_and_is_not_listed_any_more(tmp_path: Path) -> None:
    """BL-43: each CPU is with one container at most, in the state and in what monitoring agents see."""
    job, running = Wanted(A, "apiserver", running="app"), Wanted(replace(B, uid="next"), "apiserver", running="app")
    with started(tmp_path) as keeper:
        seen_beside(keeper, job)
        seen_beside(keeper, replace(job, terminal=True), running)
        assert list(keeper.state.pods) == ["next"]
        pods = [record.pod for record in keeper.state.pods.values()]
        view = podresources_view(pods, keeper.state.grants, CPUSet.parse("1-7"), Shape.V1_37)
        assert [(each.name, str(each.containers[0].cpus)) for each in view.pods] == [("pod-b", "1-3")]


def test_a_job_that_is_done_keeps_its_cpus_until_its_containers_have_stopped(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        seen_beside(keeper, Wanted(A, "apiserver"))
        done = Wanted(A, "apiserver", terminal=True)
        seen_beside(keeper, done, alive=frozenset({("a", "app")}))
        assert cpus_of(keeper.state, "a") == "app=1-2"
        seen_beside(keeper, done)
        assert not keeper.state.pods


def test_a_source_that_cannot_be_read_releases_nothing_however_long(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        seen_beside(keeper, Wanted(A, "apiserver"))
        before = keeper.state
    for _ in range(3):
        with started(tmp_path) as keeper:
            seen_beside(keeper, silent=True)
            assert keeper.state == before


def test_a_source_that_is_not_configured_any_more_releases_nothing_without_proof(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        seen_beside(keeper, Wanted(A, "apiserver"))
    with started(tmp_path) as keeper:
        look(keeper, sources=frozenset({"manifests"}))
        assert list(keeper.state.pods) == ["a"], "backend none sees no cgroups"
        look(keeper, sources=frozenset({"manifests"}), cgroups_seen=True, alive=[("a", "")])
        assert list(keeper.state.pods) == ["a"]
        look(keeper, sources=frozenset({"manifests"}), cgroups_seen=True)
        assert not keeper.state.pods


def test_another_source_that_lists_the_pod_speaks_for_it_from_then_on(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        seen_beside(keeper, Wanted(A, "apiserver"))
        before = cpus_of(keeper.state, "a")
        kubelet = frozenset({"kubelet"})
        keeper.look(Observation([Wanted(A, "kubelet")], sources=kubelet))
        assert (keeper.state.pods["a"].source, cpus_of(keeper.state, "a")) == ("kubelet", before)
        keeper.look(Observation(sources=kubelet))
        assert not keeper.state.pods


def test_a_grant_without_a_record_stays_until_nothing_of_its_pod_runs(tmp_path: Path) -> None:
    """As after an import without the kubelet's list of pods."""
    with started(tmp_path) as keeper:
        look(keeper, A, B)
        keeper.state = replace(keeper.state, pods={"b": keeper.state.pods["b"]})
        look(keeper, B)
        look(keeper, B, cgroups_seen=True, alive=[("a", "")])
        look(keeper, B, cgroups_seen=True, silent_sources=frozenset({"manifests"}))
        assert cpus_of(keeper.state, "a") == "app=1-2"
        (released,) = look(keeper, B, cgroups_seen=True)
        assert (released.event, released.pod.uid) == (Event.RELEASED, "a")
        assert str(keeper.state.grants.cpu.default) == "0-2,6-7"


def test_a_grant_without_a_record_is_its_pods_when_a_source_lists_it(tmp_path: Path) -> None:
    with started(tmp_path) as keeper:
        look(keeper, A, B)
        before = keeper.state.grants
        keeper.state = replace(keeper.state, pods={})
        look(keeper, A, B, cgroups_seen=True)
        assert (list(keeper.state.pods), keeper.state.grants) == (["a", "b"], before)
