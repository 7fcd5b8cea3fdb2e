"""Containers that the state does not know: taken over where their cgroups prove it, left in the shared pool where not."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import Grants, MemoryBlock
from agent.policy.adopt import EffectiveCpuset, RunningPod, adopt
from agent.policy.managers import Managers
from agent.policy.repair_plan import Rule
from agent.policy.restore import fresh
from tests.policy.nodes import GIB, machine, managers, pod

NODE = machine({0: "0-3", 1: "4-7"})
NOW = managers(NODE)


def running(of: Pod, **containers: str) -> RunningPod:
    return RunningPod(of, {name: EffectiveCpuset(CPUSet.parse(text), 0b11) for name, text in containers.items()})


def adopted(now: Managers, *pods: RunningPod, before: Grants | None = None) -> tuple[Grants, list[tuple[Rule, str]]]:
    found, steps = adopt(now, before or fresh(now), {each.pod.uid: each for each in pods})
    return found, [(step.rule, str(step.cpus)) for step in steps]


def entries(found: Grants) -> Mapping[str, Mapping[str, str]]:
    return {uid: {name: str(cpus) for name, cpus in sets.items()} for uid, sets in found.cpu.entries.items()}


def test_a_set_that_nobody_else_may_use_is_proven() -> None:
    found, steps = adopted(NOW, running(pod("a"), app="1-2"), running(pod("b", cpu="500m"), app="0,3-7"))
    assert entries(found) == {"a": {"app": "1-2"}}
    assert str(found.cpu.default) == "0,3-7"
    assert steps == [(Rule.ADOPTED, "1-2")]


@pytest.mark.parametrize(
    ("mine", "other"),
    [
        pytest.param("1-2", "0,2-7", id="another pod may run on one of them"),
        pytest.param("1-3", "0,4-7", id="more than the pod is entitled to"),
        pytest.param("1", "0,2-7", id="fewer"),
        pytest.param("0-1", "2-7", id="one is reserved"),
        pytest.param("0-7", "0-7", id="the shared pool"),
        pytest.param("", "0-7", id="nothing"),
    ],
)
def test_what_is_not_proven_stays_in_the_shared_pool_and_is_told(mine: str, other: str) -> None:
    found, steps = adopted(NOW, running(pod("a"), app=mine), running(pod("b", cpu="500m"), app=other))
    assert found == fresh(NOW)
    assert steps == [(Rule.NOT_PROVEN, "")]


def test_a_pod_that_asks_for_no_cpus_of_its_own_is_not_mentioned() -> None:
    assert adopted(NOW, running(pod("b", cpu="500m"), app="0-7")) == (fresh(NOW), [])


def test_a_pod_that_the_state_knows_is_left_alone() -> None:
    before, _ = adopted(NOW, running(pod("a"), app="1-2"))
    assert adopted(NOW, running(pod("a"), app="3-4"), before=before) == (before, [])


def test_two_pods_on_the_same_cpus_prove_nothing() -> None:
    _, steps = adopted(NOW, running(pod("a"), app="1-2"), running(pod("b"), app="1-2"))
    assert steps == [(Rule.NOT_PROVEN, ""), (Rule.NOT_PROVEN, "")]


def test_containers_of_one_pod_prove_theirs_one_by_one() -> None:
    found, _ = adopted(NOW, running(pod("a", log="1"), app="1-2", log="3"))
    assert entries(found) == {"a": {"app": "1-2", "log": "3"}}


def test_a_bubble_is_proven_as_a_whole() -> None:
    now = managers(NODE, scope="pod", topology_policy="best-effort")
    mine = pod("a", pod_level={"cpu": "4", "memory": "2Gi"}, log="500m")
    found, steps = adopted(now, running(mine, app="4-5", log="6-7"), running(pod("b", cpu="500m"), app="0-3"))
    assert found.cpu.pod_entries == {"a": CPUSet.parse("4-7")}
    assert entries(found) == {"a": {"app": "4-5", "log": "6-7"}}
    assert steps == [(Rule.ADOPTED, "4-7")]
    found, steps = adopted(now, running(mine, app="4-5", log="6"))
    assert steps == [(Rule.NOT_PROVEN, "")]


def test_memory_is_proven_by_being_bound_to_some_of_the_nodes() -> None:
    now = managers(NODE, memory_policy="Static")
    bound = RunningPod(pod("a"), {"app": EffectiveCpuset(CPUSet.parse("4-5"), 0b10)})
    loose = RunningPod(pod("b"), {"app": EffectiveCpuset(CPUSet.parse("1-2"), 0b11)})
    found, _ = adopt(now, fresh(now), {"a": bound, "b": loose})
    assert found.memory.entries == {"a": {"app": (MemoryBlock("memory", GIB, 0b10),)}}
    assert found.memory.machine[1].memory["memory"].reserved == GIB
    assert set(found.cpu.entries) == {"a", "b"}


@pytest.mark.parametrize(
    ("app_nodes", "log_nodes", "proven"),
    [
        pytest.param(0b10, 0b10, 0b10, id="all of it on one node"),
        pytest.param(0b10, 0b01, None, id="together on all nodes: that proves nothing"),
        pytest.param(0b11, 0b10, None, id="one that may go anywhere"),
    ],
)
def test_the_memory_of_a_bubble_is_proven_by_where_all_its_containers_are_bound(
    app_nodes: int, log_nodes: int, proven: int | None
) -> None:
    now = managers(NODE, scope="pod", topology_policy="best-effort", memory_policy="Static")
    mine = pod("a", pod_level={"cpu": "4", "memory": "2Gi"}, log="500m")
    seen = {
        "app": EffectiveCpuset(CPUSet.parse("4-5"), app_nodes),
        "log": EffectiveCpuset(CPUSet.parse("6-7"), log_nodes),
    }
    found, _ = adopt(now, fresh(now), {"a": RunningPod(mine, seen)})
    assert found.cpu.pod_entries == {"a": CPUSet.parse("4-7")}
    held = {"a": (MemoryBlock("memory", 2 * GIB, proven),)} if proven is not None else {}
    assert found.memory.pod_entries == held
    assert found.memory.machine[1].memory["memory"].reserved == (0 if proven is None else 2 * GIB)


def test_with_one_numa_node_memory_can_only_be_there() -> None:
    now = managers(machine({0: "0-7"}), memory_policy="Static")
    found, _ = adopt(now, fresh(now), {"a": RunningPod(pod("a"), {"app": EffectiveCpuset(CPUSet.parse("1-2"), 1)})})
    assert found.memory.entries == {"a": {"app": (MemoryBlock("memory", GIB, 1),)}}


def test_without_managers_nothing_is_adopted() -> None:
    off = managers(NODE, cpu_policy="none")
    assert adopted(off, running(pod("a"), app="1-2")) == (Grants(), [])
