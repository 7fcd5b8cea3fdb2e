"""The answer for one resize: in which order the checks are made, what is lacking, and what the pod holds after it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.model.pod import Pod
from agent.model.state import Affinity, FirstGrant, Grants, PodRecord, ResizeState, Shortfall
from agent.policy.managers import Managers
from agent.policy.resize import ResizeVerdict, describe, judge_resize
from agent.policy.restore import refit
from tests.nodes import GIB, admitted, cpus_of, named, node
from tests.pods import app, guaranteed, sidecar, sized
from tests.policy.cpu_machines import regular
from tests.policy.resizing import EXCLUSIVE, capacity, cpu, sizes

SINGLE: dict[str, Any] = {"topology_policy": "single-numa-node"}


def exclusive(numa: int = 1, **config: Any) -> Managers:
    return node(regular(8, numa=numa), feature_gates=EXCLUSIVE, **config)


def judged(
    managers: Managers,
    allocated: Pod,
    desired: Pod,
    *others: Pod,
    room: str = "cpu=7 memory=64Gi",
) -> tuple[ResizeVerdict, Grants]:
    """The answer, and what was held before. others: pods that run beside it."""
    pods = (allocated, *others)
    held = admitted(managers, *pods)
    record = PodRecord(allocated, first=FirstGrant.of(held, allocated.uid))
    return judge_resize(managers, capacity(room), held, pods, record, desired), held


P = named("p", guaranteed("2"))
Q = named("q", guaranteed("4"))
BURST = named("p", app("cpu=1", "cpu=64"))
WIDE = named("s", app("cpu=4", "cpu=9"))
WHOLE = named("p", guaranteed("2"), app(name="side"), resources=sized(cpu(4, "2Gi"), cpu(4, "2Gi")))


@pytest.mark.parametrize(
    ("managers", "allocated", "desired", "others", "state", "reason", "shortfall"),
    [
        pytest.param(
            exclusive(), WHOLE, replace(WHOLE, resources=sized("cpu=4", "cpu=4")), (), "infeasible", "invalid", (),
            id="an API server would refuse it",
        ),
        pytest.param(
            exclusive(), BURST, sizes(BURST, "cpu=9", "cpu=64"), (),
            "infeasible", "insufficient_node_allocatable", (Shortfall("cpu", 2000),), id="more than the node has",
        ),
        pytest.param(
            exclusive(), P, sizes(P, cpu(2, "65Gi")), (),
            "infeasible", "insufficient_node_allocatable", (Shortfall("memory", GIB),), id="more memory than it has",
        ),
        pytest.param(
            exclusive(2, **SINGLE), P, sizes(P, cpu(5)), (),
            "infeasible", "TopologyAffinityError", (Shortfall("cpu", 2000, 0b1),), id="not even alone on the node",
        ),
        pytest.param(
            exclusive(), P, sizes(P, cpu(4)), (Q,),
            "deferred", "OutOfcpu", (Shortfall("cpu", 1000), Shortfall("cpu", 1000)), id="room and free CPUs lack",
        ),
        pytest.param(
            exclusive(), P, sizes(P, cpu(4)), (WIDE,), "deferred", "OutOfcpu", (Shortfall("cpu", 1000),), id="room lacks"
        ),
        pytest.param(
            exclusive(2, **SINGLE), P, sizes(P, cpu(3)), (named("q", guaranteed("1")),),
            "deferred", "TopologyAffinityError", (Shortfall("cpu", 1000, 0b1),), id="CPUs lack where its own are",
        ),
    ],
)  # fmt: skip
def test_what_is_not_granted_changes_nothing_and_says_what_lacks(
    managers: Managers, allocated: Pod, desired: Pod, others: tuple[Pod, ...], state: str, reason: str,
    shortfall: tuple[Shortfall, ...],
) -> None:  # fmt: skip
    verdict, held = judged(managers, allocated, desired, *others)
    assert (str(verdict.state), verdict.reason, verdict.shortfall) == (state, reason, shortfall)
    assert verdict.grants is held
    pinned = reason == "TopologyAffinityError"
    assert ("; lacks " in verdict.message) is pinned


NO_CPU_GATE = {**EXCLUSIVE, "InPlacePodVerticalScalingExclusiveCPUs": False}
NO_MEMORY_GATE = {**EXCLUSIVE, "InPlacePodVerticalScalingExclusiveMemory": False}
NO_POD_LEVEL = {**EXCLUSIVE, "InPlacePodLevelResourcesVerticalScaling": False}
STATIC: dict[str, Any] = {"memory_policy": "Static"}
POD: dict[str, Any] = {"topology_policy": "best-effort", "topology_scope": "pod"}
SIDE = named("p", sidecar(cpu(1), cpu(1)), guaranteed("2"))


def resized(cpus: int, memory: str = "2Gi") -> Pod:
    """The pod with a bubble, with other resources of its own."""
    return replace(WHOLE, resources=sized(cpu(cpus, memory), cpu(cpus, memory)))


@pytest.mark.parametrize(
    ("gates", "config", "allocated", "desired", "reason"),
    [
        pytest.param({"InPlacePodVerticalScaling": False}, {}, P, sizes(P, cpu(3)), "feature_gate_off", id="none"),
        pytest.param(NO_POD_LEVEL, POD, WHOLE, resized(5), "plr_feature_gate_off", id="the pod's own"),
        pytest.param(
            NO_CPU_GATE, {}, P, sizes(P, cpu(3)), "guaranteed_pod_cpu_manager_static_policy", id="exclusive CPUs"
        ),
        pytest.param(
            NO_CPU_GATE, {}, SIDE, sizes(SIDE, cpu(2), container="sidecar"),
            "guaranteed_pod_cpu_manager_static_policy", id="exclusive CPUs of a sidecar",
        ),
        pytest.param(
            NO_MEMORY_GATE, STATIC, P, sizes(P, cpu(2, "2Gi")),
            "guaranteed_pod_memory_manager_static_policy", id="exclusive memory",
        ),
        pytest.param(
            NO_CPU_GATE, POD, WHOLE, resized(5), "guaranteed_pod_cpu_manager_static_policy", id="CPUs of a bubble"
        ),
        pytest.param(
            NO_MEMORY_GATE, {**POD, **STATIC}, WHOLE, resized(4, "3Gi"),
            "guaranteed_pod_memory_manager_static_policy", id="memory of a bubble",
        ),
        pytest.param(
            NO_MEMORY_GATE, {**POD, **STATIC, "cpu_policy": "none"}, WHOLE, resized(4, "3Gi"),
            "guaranteed_pod_memory_manager_static_policy", id="memory of a bubble without CPUs",
        ),
    ],
)  # fmt: skip
def test_what_no_gate_allows_is_infeasible(
    gates: dict[str, bool], config: dict[str, Any], allocated: Pod, desired: Pod, reason: str
) -> None:
    verdict, held = judged(node(regular(8), feature_gates=gates, **config), allocated, desired)
    assert (verdict.state, verdict.reason, verdict.shortfall) == (ResizeState.INFEASIBLE, reason, ())
    assert verdict.grants is held
    assert "disabled" in verdict.message or verdict.message.startswith("Resize is infeasible for Guaranteed Pods")


@pytest.mark.parametrize(
    ("gates", "config", "allocated", "desired"),
    [
        pytest.param(NO_POD_LEVEL, {}, P, sizes(P, cpu(3)), id="containers without the gate of pods"),
        pytest.param(NO_CPU_GATE, STATIC, P, sizes(P, cpu(2, "2Gi")), id="memory without the gate of CPUs"),
        pytest.param(NO_MEMORY_GATE, STATIC, P, sizes(P, cpu(3)), id="CPUs without the gate of memory"),
        pytest.param(NO_MEMORY_GATE, {**POD, **STATIC}, WHOLE, resized(5), id="CPUs of a bubble"),
        pytest.param(NO_CPU_GATE, {**POD, **STATIC}, WHOLE, resized(4, "3Gi"), id="memory of a bubble"),
    ],
)
def test_each_gate_is_about_its_own_resource_only(
    gates: dict[str, bool], config: dict[str, Any], allocated: Pod, desired: Pod
) -> None:
    verdict, _ = judged(node(regular(8), feature_gates=gates, **config), allocated, desired)
    assert verdict.state is ResizeState.IN_PROGRESS, verdict.message


def test_a_pod_that_holds_a_bubble_does_not_grow_beside_it_once_its_own_resources_count_no_more() -> None:
    """It is Burstable by then: without a look at what it holds it would be resized like a pod that shares."""
    gates = ("PodLevelResources", "PodLevelResourceManagers", "InPlacePodLevelResourcesVerticalScaling")
    now = node(regular(8), feature_gates={**EXCLUSIVE, **dict.fromkeys(gates, False)}, **POD)
    held = refit(now, admitted(exclusive(**POD), WHOLE))
    record = PodRecord(WHOLE, first=FirstGrant.of(held, "p"))
    verdict = judge_resize(now, capacity("cpu=7 memory=64Gi"), held, [WHOLE], record, sizes(WHOLE, cpu(3)))
    assert verdict.state is ResizeState.INFEASIBLE
    assert verdict.grants is held


def test_what_grows_says_where_it_was_aligned() -> None:
    verdict, _ = judged(exclusive(2, topology_policy="best-effort"), P, sizes(P, cpu(3)))
    assert verdict.state is ResizeState.IN_PROGRESS
    assert cpus_of(verdict.grants) == "p/app=1-3 shared=0,4-7"
    assert verdict.affinities == {"app": Affinity(0b1, preferred=True)}


def test_a_node_without_a_number_of_cpus_has_none() -> None:
    verdict, _ = judged(exclusive(), BURST, sizes(BURST, "cpu=2", "cpu=64"), room="memory=8Gi")
    assert verdict.message == "Node didn't have enough capacity: cpu, requested: 2000, capacity: 0"


def test_a_shortfall_in_words() -> None:
    lacks = (
        Shortfall("cpu", 1000),
        Shortfall("cpu", 1500, 0b1),
        Shortfall("memory", 7, 0b1010),
        Shortfall("hugepages-2Mi", 2),
    )
    assert describe(lacks) == (
        "lacks 1 CPU, 1.5 CPUs on NUMA node 0, 7 bytes of memory on NUMA nodes 1,3, 2 bytes of hugepages-2Mi"
    )
