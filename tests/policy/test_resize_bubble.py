"""A bubble that is resized: the pod's own CPUs and memory first, its slices inside it, the rest shared by the pod."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.model.pod import Pod
from agent.model.state import FirstGrant, Grants, ResizeState, Shortfall
from agent.policy.hint_family import Hint
from agent.policy.plan import start_container
from agent.policy.resize_pinned import PinnedResizeRefusal, resize_pinned
from tests.nodes import GIB, admitted, cpus_of, memory_of, named
from tests.nodes import node as managed
from tests.pods import app, guaranteed, init, sidecar, sized
from tests.policy.cpu_machines import regular
from tests.policy.resizing import EXCLUSIVE, cpu, exclusive_node, sizes


def bubble(cpus: int, main: int, memory: str = "4Gi") -> Pod:
    whole = cpu(cpus, memory)
    return named("b", guaranteed(str(main), name="main"), app(name="side"), resources=sized(whole, whole))


def test_a_bubble_grows_and_shrinks_with_its_slices() -> None:
    node = exclusive_node(regular(8), topology_policy="best-effort", topology_scope="pod")
    node.want(bubble(4, 2))
    first = "b/main=1-2 b/side=3-4 b=1-4 shared=0,5-7"
    assert cpus_of(node.state.grants) == first
    node.want(bubble(6, 2))
    assert cpus_of(node.state.grants) == "b/main=1-2 b/side=3-6 b=1-6 shared=0,7"
    node.want(bubble(6, 4))
    assert cpus_of(node.state.grants) == "b/main=1-4 b/side=5-6 b=1-6 shared=0,7"
    node.want(bubble(5, 2))
    assert cpus_of(node.state.grants) == "b/main=1-2 b/side=3-5 b=1-5 shared=0,6-7"
    node.want(bubble(4, 2))
    assert cpus_of(node.state.grants) == first
    node.want(bubble(3, 2))
    assert node.record("b").resize.reason == "below_first_admission"


def test_a_slice_that_leaves_the_pods_shared_pool_empty_is_infeasible() -> None:
    node = exclusive_node(regular(8), topology_policy="best-effort", topology_scope="pod")
    node.want(bubble(4, 2))
    node.want(bubble(4, 4))
    resize = node.record("b").resize
    assert (resize.state, resize.reason) == (ResizeState.INFEASIBLE, "EmptyPodSharedPoolError")


def test_a_sidecars_slice_grows_inside_the_bubble() -> None:
    node = exclusive_node(regular(8), topology_policy="best-effort", topology_scope="pod")
    whole = cpu(6, "8Gi")
    pod = named("b", sidecar(cpu(1), cpu(1)), guaranteed("2"), app(name="side"), resources=sized(whole, whole))
    node.want(pod)
    node.want(sizes(pod, cpu(2), container="sidecar"))
    assert cpus_of(node.state.grants) == "b/sidecar=1,4 b/app=2-3 b/side=5-6 b=1-6 shared=0,7"


def resized(pod: Pod, cpus: int, memory: str = "8Gi") -> Pod:
    """The pod with other resources of its own."""
    return replace(pod, resources=sized(cpu(cpus, memory), cpu(cpus, memory)))


def with_init(own: int) -> Pod:
    """A pod of six CPUs: an init container that shares, a sidecar, one with `own` CPUs, an app, and one that shares."""
    kinds = (init(), sidecar(cpu(1), cpu(1)), init(cpu(own), cpu(own), name="own"), guaranteed("2"), app(name="side"))
    return resized(named("b", *kinds), 6)


@pytest.mark.parametrize(
    ("own", "sidecars", "expected"),
    [
        pytest.param(2, 1, "b/own=2-3 b/app=2-3 b/side=4-8", id="what it has is still there"),
        pytest.param(3, 1, "b/own=2-4 b/app=2-3 b/side=4-8", id="apps are no hindrance: they start later"),
        pytest.param(3, 3, "b/own=2-3,6 b/app=2-3 b/side=6-8", id="a sidecar takes some of it: others in their place"),
    ],
)
def test_an_init_container_keeps_its_slice_while_it_is_whole(own: int, sidecars: int, expected: str) -> None:
    node = exclusive_node(regular(10), topology_policy="best-effort", topology_scope="pod")
    pod = with_init(own)
    node.want(pod)
    node.want(sizes(resized(pod, 8), cpu(sidecars), container="sidecar"))
    cpus = cpus_of(node.state.grants)
    assert cpus.startswith("b/init=1-8 b/sidecar=1")  # it ran before the sidecar took its slice
    assert cpus[cpus.index("b/own") :] == f"{expected} b=1-8 shared=0,9"
    node.want(pod)  # back to its first size: the same slice for who runs on, and for the init container what it has now
    assert (
        cpus_of(node.state.grants)
        == f"b/init=1-6 b/sidecar=1 {expected.split()[0]} b/app=2-3 b/side=4-6 b=1-6 shared=0,7-9"
    )


def halves(cpus: int, one: int, two: int) -> Pod:
    """A bubble with two slices and one container that shares the rest."""
    slices = (guaranteed(str(one), name="one"), guaranteed(str(two), name="two"))
    return named("b", *slices, app(name="side"), resources=sized(cpu(cpus, "9Gi"), cpu(cpus, "9Gi")))


Y = named("y", guaranteed("2"))
Z = named("y", guaranteed("3"))


@pytest.mark.parametrize(
    ("numa", "sizes_in_turn", "before", "after"),
    [
        pytest.param(
            2, [halves(4, 2, 1), halves(8, 3, 3), halves(6, 4, 1)],
            "b/one=1-2,8 b/two=3-5 b/side=6-7 b=1-8", "b/one=1-2,4,8 b/two=3 b/side=5 b=1-5,8",
            id="CPU 8 stays for the slice that grows, though it is on another node",
        ),
        pytest.param(
            1, [halves(3, 1, 1), Y, halves(9, 5, 3), halves(7, 2, 3)],
            "b/one=1,3,6-8 b/two=2,9-10 b/side=11 y/app=4-5 b=1-3,6-11",
            "b/one=1,3 b/two=2,9-10 b/side=6-7 y/app=4-5 b=1-3,6-7,9-10",
            id="CPUs 9-10 stay for the slice that keeps its size",
        ),
        pytest.param(
            2, [halves(4, 1, 2), halves(9, 1, 5), halves(8, 2, 3)],
            "b/one=1 b/two=2-4,8-9 b/side=5-7 b=1-9", "b/one=1,8 b/two=2-4 b/side=5-7 b=1-8",
            id="a slice that shrinks keeps nothing in the bubble but its first CPUs",
        ),
        pytest.param(
            1, [halves(5, 1, 2), Z, halves(11, 4, 5), halves(8, 2, 4), halves(6, 1, 4)],
            "b/one=1,4-5,9 b/two=2-3,10-12 b/side=13-14 y/app=6-8 b=1-5,9-14",
            "b/one=1 b/two=2-5 b/side=9 y/app=6-8 b=1-5,9",
            id="where not all can stay the first bubble goes before the slices",
        ),
        pytest.param(
            2, [halves(5, 2, 2), halves(14, 6, 5), halves(9, 6, 2)],
            "b/one=1-2,5-6,8-9 b/two=3-4,10-12 b/side=13-15 b=1-6,8-15", "b/one=1-2,5-6,8-9 b/two=3-4 b/side=10 b=1-6,8-10",
            id="a slice shrinks to its first CPUs",
        ),
    ],
)  # fmt: skip
def test_what_runs_on_stays_where_it_is_when_a_bubble_shrinks(
    numa: int, sizes_in_turn: list[Pod], before: str, after: str
) -> None:
    """before: at its largest."""
    node = exclusive_node(regular(16, numa=numa), topology_policy="best-effort", topology_scope="pod")
    seen = []
    for pod in sizes_in_turn:
        node.want(pod)
        seen.append(cpus_of(node.state.grants).partition(" shared")[0])
    assert before in seen
    assert seen[-1] == after


def test_a_bubble_that_shrinks_keeps_slices_that_leave_nothing_over() -> None:
    node = exclusive_node(regular(16, numa=2), topology_policy="best-effort", topology_scope="pod")
    first = named("x", guaranteed("1"))
    node.want(first)
    node.want(halves(4, 1, 2))
    node.end("x")
    node.want(halves(11, 5, 4))
    assert cpus_of(node.state.grants) == "b/one=1-2,5-7 b/two=3-4,8-9 b/side=10-11 b=1-11 shared=0,12-15"
    node.want(halves(6, 1, 4))
    assert cpus_of(node.state.grants) == "b/one=2 b/two=3-4,8-9 b/side=5 b=2-5,8-9 shared=0-1,6-7,10-15"


APART: dict[str, Any] = {
    "memory_policy": "Static",
    "memory_gib": 16,
    "topology_scope": "pod",
    "feature_gates": EXCLUSIVE,
}
APART_CPUS = "b/main=2 b/side=3 x/app=1 y/app=4-7 b=2-3 shared=0"


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        pytest.param(bubble(2, 1, "5Gi"), None, id="more memory"),
        pytest.param(bubble(3, 1), None, id="more CPUs"),
        pytest.param(bubble(2, 1), APART_CPUS, id="nothing more"),
    ],
)
def test_where_cpus_and_memory_lie_apart_a_strict_policy_lets_nothing_grow_and_the_rest_be(
    after: Pod, expected: str | None
) -> None:
    """Admitted under best-effort: CPUs were left on NUMA node 0 only, memory on node 1 only."""
    before = managed(regular(8, numa=2), topology_policy="best-effort", **APART)
    pods = (named("x", guaranteed("1", "14Gi")), named("y", guaranteed("4", "1Gi")), bubble(2, 1))
    held = admitted(before, *pods)
    assert (cpus_of(held), memory_of(held, "b")) == (APART_CPUS, "main=1@1 side=3@1")
    strict = managed(regular(8, numa=2), topology_policy="restricted", **APART)
    first = FirstGrant.of(held, "b")
    if expected is None:
        with pytest.raises(PinnedResizeRefusal, match="cannot be allocated with Topology locality"):
            resize_pinned(strict, held, first, bubble(2, 1), after)
    else:
        assert cpus_of(resize_pinned(strict, held, first, bubble(2, 1), after).grants).startswith(expected)


def test_cpus_and_memory_that_grow_together_go_to_the_same_node() -> None:
    """Memory alone would go to node 1, where all CPUs are reserved."""
    managers = managed(regular(12, numa=3), "0,4-7", topology_policy="best-effort", **APART)
    held = admitted(managers, bubble(2, 1))
    assert cpus_of(held) == "b/main=1 b/side=2 b=1-2 shared=0,3-11"
    memory_only = resize_pinned(managers, held, FirstGrant.of(held, "b"), bubble(2, 1), bubble(2, 1, "20Gi"))
    assert memory_of(memory_only.grants, "b") == "main=1@0,1 side=19@0,1"
    grown = resize_pinned(managers, held, FirstGrant.of(held, "b"), bubble(2, 1), bubble(6, 1, "20Gi"))
    assert cpus_of(grown.grants) == "b/main=1 b/side=2,8-11 b=1-2,8-11 shared=0,3-7"
    assert memory_of(grown.grants, "b") == "main=1@0,2 side=19@0,2"
    assert grown.affinities == dict.fromkeys(("main", "side"), Hint(0b101, True))


# --- memory -------------------------------------------------------------------------------------------------------------


def memory_pod(memory: str, cpus: int = 2) -> Pod:
    apps = (init(cpu(1, "2Gi"), cpu(1, "2Gi")), guaranteed("1", "3Gi"), app(name="side"))
    return resized(named("b", *apps), cpus, memory)


@pytest.mark.parametrize("cpu_policy", ["static", "none"])
def test_the_memory_of_a_bubble_grows_over_more_nodes_and_comes_back(cpu_policy: str) -> None:
    """What has no slice shares the rest of the pod's bytes, wherever these are; no policy of CPUs is needed for it."""
    managers: dict[str, Any] = {"cpu_policy": cpu_policy, "memory_policy": "Static", "memory_gib": 16}
    node = exclusive_node(regular(8, numa=2), topology_policy="best-effort", topology_scope="pod", **managers)
    node.want(memory_pod("6Gi"))
    first = node.state.grants
    assert memory_of(first, "b") == "init=2@0 app=3@0 side=3@0"
    for pod, expected in (
        (memory_pod("10Gi"), "init=2@0 app=3@0 side=7@0"),
        (memory_pod("20Gi"), "init=2@0,1 app=3@0,1 side=17@0,1"),
        (memory_pod("7Gi"), "init=2@0 app=3@0 side=4@0"),
        (memory_pod("20Gi"), "init=2@0,1 app=3@0,1 side=17@0,1"),
        (memory_pod("20Gi", cpus=3), "init=2@0,1 app=3@0,1 side=17@0,1"),
        (memory_pod("7Gi", cpus=4), "init=2@0 app=3@0 side=4@0"),
    ):
        node.want(pod)
        assert memory_of(node.state.grants, "b") == expected
    node.want(memory_pod("6Gi"))
    assert node.state.grants == first


def test_hugepages_of_which_no_container_has_a_part_of_its_own_are_shared_by_all_when_memory_grows() -> None:
    managers = managed(regular(8), hugepages={"2Mi": 1}, topology_policy="best-effort", **{**APART, "memory_gib": 32})
    old, new = (
        named(
            "b",
            guaranteed("1", "3Gi"),
            app(name="side"),
            resources=sized(f"cpu=2 memory={memory} hugepages-2Mi=2Mi", f"cpu=2 memory={memory} hugepages-2Mi=2Mi"),
        )
        for memory in ("6Gi", "8Gi")
    )
    held = admitted(managers, old)
    after = resize_pinned(managers, held, FirstGrant.of(held, "b"), old, new).grants
    assert blocks_of(held) == {"app": "memory 3Gi", "side": "hugepages-2Mi 2Mi, memory 3Gi"}
    assert blocks_of(after) == {"app": "memory 3Gi", "side": "hugepages-2Mi 2Mi, memory 5Gi"}


def blocks_of(grants: Grants) -> dict[str, str]:
    """What the containers of pod b hold, wherever it is: "hugepages-2Mi 2Mi, memory 3Gi"."""
    return {
        name: ", ".join(
            f"{block.type} {block.size // GIB}Gi" if block.size >= GIB else f"{block.type} {block.size >> 20}Mi"
            for block in sorted(blocks, key=lambda block: block.type)
        )
        for name, blocks in grants.memory.entries["b"].items()
    }


def test_memory_of_an_init_container_that_has_ended_does_not_come_back_with_a_resize() -> None:
    node = exclusive_node(regular(8), topology_policy="best-effort", topology_scope="pod", memory_policy="Static")
    node.want(memory_pod("6Gi"))
    node.state = start_container(node.state, "b", "app")
    node.want(memory_pod("7Gi"))
    assert memory_of(node.state.grants, "b") == "app=3@0 side=4@0"


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        pytest.param(memory_pod("5Gi"), "below_first_admission", id="less than its first admission gave"),
        pytest.param(
            sizes(memory_pod("6Gi"), cpu(1, "6Gi")), "EmptyPodSharedPoolError", id="nothing is left for who shares"
        ),
    ],
)
def test_what_a_bubbles_memory_cannot_become(pod: Pod, reason: str) -> None:
    node = exclusive_node(regular(8), topology_policy="best-effort", topology_scope="pod", memory_policy="Static")
    node.want(memory_pod("6Gi"))
    before = node.state.grants
    node.want(pod)
    resize = node.record("b").resize
    assert (resize.state, resize.reason) == (ResizeState.INFEASIBLE, reason)
    assert "memory" in resize.message
    assert node.state.grants == before


def test_a_bubble_that_cannot_grow_where_its_memory_is_waits() -> None:
    node = exclusive_node(
        regular(8, numa=2),
        topology_policy="single-numa-node",
        topology_scope="pod",
        memory_policy="Static",
        memory_gib=16,
    )
    node.want(memory_pod("6Gi"), named("q", guaranteed("1", "8Gi")))
    node.want(memory_pod("10Gi"))
    resize = node.record("b").resize
    assert (resize.state, resize.shortfall) == (ResizeState.DEFERRED, (Shortfall("memory", 3 * GIB, 0b1),))
    node.end("q")
    assert memory_of(node.state.grants, "b") == "init=2@0 app=3@0 side=7@0"
