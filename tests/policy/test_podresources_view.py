"""What PodResources tells: which pods and containers, in which order, and what of a bubble in which shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.model.cpuset import CPUSet
from agent.model.pod import Container, Pod, PodStatus
from agent.model.podresources import PodView
from agent.model.state import Blocks, CPUState, Grants, MemoryBlock, MemoryState, MemoryTable, NUMANodeState
from agent.policy.podresources_view import Shape, podresources_view
from tests.pods import app, guaranteed, init, pod, sidecar, sized

GIB = 1 << 30
WHOLE = sized("cpu=4 memory=4Gi", "cpu=4 memory=4Gi")


def blocks(text: str) -> Blocks:
    """ "1@0 2@0-1": GiB at NUMA nodes."""
    parts = (part.split("@") for part in text.split())
    return tuple(MemoryBlock("memory", int(size) * GIB, CPUSet.parse(nodes).mask) for size, nodes in parts)


def grants(
    cpus: dict[str, str], memory: dict[str, str] | None = None, bubble: str = "", pod_memory: str = ""
) -> Grants:
    """What pod u1 holds: container -> CPUs, container -> blocks."""
    return Grants(
        CPUState(
            CPUSet.parse("0-1"),
            {"u1": {name: CPUSet.parse(held) for name, held in cpus.items()}},
            {"u1": CPUSet.parse(bubble)} if bubble else {},
        ),
        MemoryState(
            {},
            {"u1": {name: blocks(held) for name, held in (memory or {}).items()}},
            {"u1": blocks(pod_memory)} if pod_memory else {},
        ),
    )


def told(one: Pod, held: Grants, shape: Shape = Shape.V1_37) -> dict[str, str]:
    """container -> CPUs told, with the pod's own under ""."""
    (view,) = podresources_view([one], held, CPUSet(), shape).pods
    return {"": str(view.cpus), **{container.name: str(container.cpus) for container in view.containers}}


def told_memory(one: Pod, held: Grants, shape: Shape = Shape.V1_37) -> dict[str, Blocks]:
    (view,) = podresources_view([one], held, CPUSet(), shape).pods
    return {"": view.memory, **{container.name: container.memory for container in view.containers}}


def test_sidecars_come_first_then_apps_and_plain_init_containers_never() -> None:
    one = pod(init(name="migrate"), sidecar(name="proxy"), init(name="seed"), sidecar(name="log"), app(name="web"))
    (view,) = podresources_view([one], Grants(), CPUSet()).pods
    assert [container.name for container in view.containers] == ["proxy", "log", "web"]


@pytest.mark.parametrize("shape", Shape)
def test_a_container_with_nothing_exclusive_tells_no_cpus(shape: Shape) -> None:
    one = pod(guaranteed("2", name="whole"), guaranteed("500m", name="fraction"))
    assert told(one, grants({"whole": "2-3"}), shape) == {"": "", "whole": "2-3", "fraction": ""}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_or_was_refused_is_not_told(phase: str) -> None:
    ended = replace(pod(guaranteed("2")), status=PodStatus(phase=phase))
    assert podresources_view([ended], grants({"app": "2-3"}), CPUSet()).pods == ()


def test_a_terminating_pod_is_told_until_it_has_ended() -> None:
    one = replace(pod(guaranteed("2")), deletion_timestamp="2026-01-01T00:00:00Z", status=PodStatus(phase="Running"))
    assert told(one, grants({"app": "2-3"})) == {"": "", "app": "2-3"}


def test_pods_keep_the_order_they_are_given_in() -> None:
    given = [replace(pod(app()), uid=name, name=name) for name in ("zeta", "alpha", "mid")]
    assert [view.name for view in podresources_view(given, Grants(), CPUSet()).pods] == ["zeta", "alpha", "mid"]


BUBBLE = pod(sidecar(name="proxy"), guaranteed("2", name="own"), app("cpu=1", name="shared"), resources=WHOLE)
IN_BUBBLE = grants({"proxy": "4-5", "own": "2-3", "shared": "4-5"}, bubble="2-5")


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        pytest.param(
            Shape.V1_37, {"": "2-5", "proxy": "", "own": "2-3", "shared": ""}, id="1.37 tells the bubble at pod level"
        ),
        pytest.param(
            Shape.V1_36, {"": "", "proxy": "4-5", "own": "2-3", "shared": "4-5"}, id="1.36 tells what the state holds"
        ),
    ],
)
def test_a_bubble(shape: Shape, expected: dict[str, str]) -> None:
    assert told(BUBBLE, IN_BUBBLE, shape) == expected


def test_two_containers_that_share_a_whole_bubble_tell_nothing_in_the_new_shape() -> None:
    one = pod(app(name="a"), app(name="b"), resources=WHOLE)
    assert told(one, grants({"a": "2-5", "b": "2-5"}, bubble="2-5")) == {"": "2-5", "a": "", "b": ""}


def test_a_single_app_with_the_whole_bubble_as_its_slice_repeats_it() -> None:
    one = pod(guaranteed("4", "4Gi"), resources=WHOLE)
    assert told(one, grants({"app": "2-5"}, bubble="2-5")) == {"": "2-5", "app": "2-5"}


def test_in_container_scope_the_pod_level_stays_empty_and_slices_are_told_at_the_container() -> None:
    one = pod(guaranteed("2", name="own"), app(name="shared"), resources=WHOLE)
    assert told(one, grants({"own": "2-3"})) == {"": "", "own": "2-3", "shared": ""}


def memory_case(first: Container) -> tuple[Pod, Grants]:
    one = pod(first, app(name="shared"), resources=WHOLE)
    return one, grants({}, {"own": "1@0-1", "shared": "3@0-1"}, pod_memory="4@0-1")


def test_memory_of_a_bubble_follows_the_same_rule() -> None:
    one, held = memory_case(guaranteed("2", name="own"))
    assert told_memory(one, held) == {"": blocks("4@0-1"), "own": blocks("1@0-1"), "shared": ()}
    assert told_memory(one, held, Shape.V1_36) == {"": (), "own": blocks("1@0-1"), "shared": blocks("3@0-1")}


def test_a_fractional_cpu_request_does_not_cost_a_container_its_own_memory() -> None:
    one, held = memory_case(guaranteed("1500m", name="own"))
    assert told_memory(one, held)["own"] == blocks("1@0-1")


@pytest.mark.parametrize("shape", Shape)
def test_a_zero_sized_block_of_a_reused_init_container_is_told(shape: Shape) -> None:
    one = pod(init(name="seed"), guaranteed("2"))
    assert told_memory(one, grants({}, {"seed": "1@0", "app": "0@0"}), shape) == {"": (), "app": blocks("0@0")}


def test_allocatable_memory_is_one_block_per_node_and_type_with_an_amount() -> None:
    full, none = MemoryTable(8, 1, 7, 0, 7), MemoryTable(0, 0, 0, 0, 0)
    machine = {
        1: NUMANodeState(0, 2, {"memory": full, "hugepages-2Mi": full}),
        0: NUMANodeState(0, 1, {"memory": full, "hugepages-2Mi": none}),
    }
    view = podresources_view([], Grants(memory=MemoryState(machine)), CPUSet.parse("2-7"))
    assert [(block.type, block.size, block.nodes) for block in view.allocatable_memory] == [
        ("memory", 7, 1),
        ("hugepages-2Mi", 7, 2),
        ("memory", 7, 2),
    ]
    assert view.allocatable_cpus == CPUSet.parse("2-7")


def test_a_pod_without_grants_is_told_by_its_name_alone() -> None:
    (view,) = podresources_view([replace(pod(), namespace="team-a")], Grants(), CPUSet()).pods
    assert view == PodView("web", "team-a")
