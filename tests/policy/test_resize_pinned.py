"""Pinned resize by example: which CPUs and bytes come and go, and what is said where they cannot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.state import FirstGrant, ResizeState, Shortfall
from agent.policy.hint_family import Hint
from agent.policy.resize_pinned import PinnedResizeRefusal, resize_pinned
from agent.policy.restore import refit
from tests.nodes import GIB, admitted, cpus_of, memory_of, named, node
from tests.pods import guaranteed, init
from tests.policy.cpu_machines import drawn, regular
from tests.policy.resizing import EXCLUSIVE, cpu, exclusive_node, said, sizes


@pytest.mark.parametrize(
    ("topology", "config", "steps"),
    [
        pytest.param(regular(8), {}, {2: "1-2", 3: "1-3", 5: "1-5"}, id="a superset, back to the first (BL-53)"),
        pytest.param(
            regular(16, smt=2, numa=2), {}, {2: "1,9", 4: "1-2,9-10", 6: "1-3,9-11"}, id="whole cores of its node first"
        ),
        pytest.param(drawn("0+8 1+9 2+10 3+11"), {}, {1: "8", 3: "1,8-9"}, id="then another core"),
        pytest.param(
            regular(16, smt=2, cache_cores=2),
            {"cpu_options": {"prefer-align-cpus-by-uncorecache": "true"}},
            {2: "2,10", 4: "2-3,10-11"},
            id="inside its uncore cache",
        ),
        pytest.param(
            regular(16, numa=2),
            {"cpu_options": {"distribute-cpus-across-numa": "true"}},
            {2: "8-9", 10: "1-5,8-12"},
            id="spread over NUMA nodes once one does not do",
        ),
        pytest.param(
            regular(16, smt=2), {"cpu_options": {"full-pcpus-only": "true"}}, {2: "1,9", 4: "1-2,9-10"}, id="whole cores"
        ),
        pytest.param(
            regular(16, smt=2),
            {"cpu_options": {"distribute-cpus-across-cores": "true"}},
            {2: "1-2", 4: "1-4"},
            id="across cores: a core of its own for every CPU",
        ),
    ],
)  # fmt: skip
def test_growth_and_return(topology: CPUTopology, config: dict[str, Any], steps: dict[int, str]) -> None:
    node = exclusive_node(topology, **config)
    counts = list(steps)
    pod = named("p", guaranteed(str(counts[0])))
    node.want(pod)
    seen = {counts[0]: node.cpus("p")}
    for count in counts[1:]:
        assert said(node.want(sizes(pod, cpu(count))))[-1] == "resize-started"
        seen[count] = node.cpus("p")
    assert seen == steps
    node.want(sizes(pod, cpu(counts[0])))
    assert node.cpus("p") == steps[counts[0]]
    assert cpus_of(node.state.grants) == cpus_of(admitted(node.managers, pod))


def test_growth_goes_round_the_neighbours() -> None:
    node = exclusive_node(regular(8))
    a, b = named("a", guaranteed("2")), named("b", guaranteed("2"))
    node.want(a, b)
    node.want(sizes(a, cpu(4)))
    assert cpus_of(node.state.grants) == "a/app=1-2,5-6 b/app=3-4 shared=0,7"


def test_below_the_first_admission_is_infeasible_and_what_it_had_stays() -> None:
    node = exclusive_node(regular(8))
    pod = named("p", guaranteed("2"))
    node.want(pod)
    node.want(sizes(pod, cpu(4)))
    node.want(sizes(pod, cpu(1)))
    resize = node.record("p").resize
    assert (resize.state, resize.reason) == (ResizeState.INFEASIBLE, "below_first_admission")
    assert resize.message == (
        'Resize is infeasible: 1 CPUs are fewer than the 2 that container "app" got at its first admission (1-2)'
    )
    assert node.cpus("p") == "1-4"


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("2", "1500m", "its new request is no whole number of CPUs"),
        ("1500m", "2", "a running container cannot become exclusive"),
    ],
)
def test_exclusiveness_neither_begins_nor_ends(before: str, after: str, text: str) -> None:
    node = exclusive_node(regular(8))
    pod = named("p", guaranteed(before))
    node.want(pod)
    node.want(sizes(pod, f"cpu={after} memory=1Gi"))
    assert node.record("p").resize.state is ResizeState.INFEASIBLE
    assert text in node.record("p").resize.message


def test_a_fraction_of_a_guaranteed_pod_is_resized_in_the_shared_pool() -> None:
    node = exclusive_node(regular(8))
    pod = named("p", guaranteed("1500m"))
    node.want(pod)
    assert said(node.want(sizes(pod, "cpu=2500m memory=1Gi")))[-1] == "resize-started"
    assert cpus_of(node.state.grants) == "shared=0-7"


def test_part_of_a_core_is_infeasible_with_full_pcpus_only() -> None:
    node = exclusive_node(regular(16, smt=2), cpu_options={"full-pcpus-only": "true"})
    pod = named("p", guaranteed("2"))
    node.want(pod)
    node.want(sizes(pod, cpu(3)))
    resize = node.record("p").resize
    assert (resize.state, resize.reason) == (ResizeState.INFEASIBLE, "SMTAlignmentError")
    assert resize.message == "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"


def test_deferred_names_the_numa_node_and_the_amount_and_is_taken_up_when_they_are_free() -> None:
    node = exclusive_node(regular(16, numa=2), topology_policy="single-numa-node")
    p, q = named("p", guaranteed("3")), named("q", guaranteed("3"))
    node.want(p, q)
    assert cpus_of(node.state.grants) == "p/app=1-3 q/app=4-6 shared=0,7-15"
    node.want(sizes(p, cpu(6)))
    resize = node.record("p").resize
    assert (resize.state, resize.reason) == (ResizeState.DEFERRED, "TopologyAffinityError")
    assert resize.shortfall == (Shortfall("cpu", 2000, 0b1),)
    assert resize.message == "Resources cannot be allocated with Topology locality; lacks 2 CPUs on NUMA node 0"
    node.end("q")
    assert cpus_of(node.state.grants) == "p/app=1-6 shared=0,7-15"


def test_more_than_its_numa_node_has_is_infeasible_with_the_amount() -> None:
    node = exclusive_node(regular(16, numa=2), topology_policy="single-numa-node")
    pod = named("p", guaranteed("3"))
    node.want(pod)
    node.want(sizes(pod, cpu(9)))
    resize = node.record("p").resize
    assert (resize.state, resize.shortfall) == (ResizeState.INFEASIBLE, (Shortfall("cpu", 2000, 0b1),))


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("best-effort", "1-7,8-9"), ("restricted", "1-7,8-9"), ("none", "1-9")],
)
def test_a_growth_beyond_one_numa_node(policy: str, expected: str) -> None:
    node = exclusive_node(regular(16, numa=2), topology_policy=policy)
    pod = named("p", guaranteed("3"))
    node.want(pod)
    node.want(sizes(pod, cpu(9)))
    assert CPUSet.parse(node.cpus("p")) == CPUSet.parse(expected)


def test_the_shared_pool_keeps_its_minimum() -> None:
    node = exclusive_node(regular(4), cpu_options={"strict-cpu-reservation": "true"})
    pod = named("p", guaranteed("2"))
    node.want(pod)
    node.want(sizes(pod, cpu(3)))
    resize = node.record("p").resize
    assert resize.state is ResizeState.INFEASIBLE
    assert "at least 1 must stay" in resize.message
    assert resize.shortfall == (Shortfall("cpu", 1000),)


def test_a_growth_uses_what_the_finished_init_container_holds() -> None:
    node = exclusive_node(regular(6))
    pod = named("p", init(cpu(4), cpu(4)), guaranteed("2"))
    other = named("q", guaranteed("1"))
    node.want(pod, other)
    assert cpus_of(node.state.grants) == "p/init=1-4 p/app=1-2 q/app=5 shared=0"
    node.want(sizes(pod, cpu(4)))
    assert cpus_of(node.state.grants) == "p/init=1-4 p/app=1-4 q/app=5 shared=0"
    node.want(pod)
    assert cpus_of(node.state.grants) == "p/init=1-4 p/app=1-2 q/app=5 shared=0"


def test_one_container_shrinks_for_another_in_one_resize() -> None:
    node = exclusive_node(regular(8))
    pod = named("p", guaranteed("2", name="a"), guaranteed("2", name="b"))
    node.want(pod)
    node.want(sizes(pod, cpu(5), container="a"))
    assert cpus_of(node.state.grants) == "p/a=1-2,5-7 p/b=3-4 shared=0"
    node.want(sizes(sizes(pod, cpu(2), container="a"), cpu(5), container="b"))
    assert cpus_of(node.state.grants) == "p/a=1-2 p/b=3-7 shared=0"


# --- memory -------------------------------------------------------------------------------------------------------------


def test_memory_grows_where_it_is_then_over_more_nodes_and_comes_back() -> None:
    node = exclusive_node(regular(8, numa=2), memory_policy="Static", topology_policy="best-effort", memory_gib=16)
    pod = named("p", guaranteed("1", "4Gi"))
    node.want(pod)
    start = node.state.grants
    for size, expected in (("8Gi", "app=8@0"), ("20Gi", "app=20@0,1"), ("24Gi", "app=24@0,1"), ("4Gi", "app=4@0")):
        assert said(node.want(sizes(pod, cpu(1, size))))[-1] == "resize-started"
        assert memory_of(node.state.grants, "p") == expected
    assert node.state.grants == start


def test_memory_that_does_not_fit_its_node_is_deferred_with_the_bytes() -> None:
    node = exclusive_node(regular(8, numa=2), memory_policy="Static", topology_policy="single-numa-node", memory_gib=16)
    p, q = named("p", guaranteed("1", "4Gi")), named("q", guaranteed("1", "8Gi"))
    node.want(p, q)
    node.want(sizes(p, cpu(1, "10Gi")))
    resize = node.record("p").resize
    assert (resize.state, resize.shortfall) == (ResizeState.DEFERRED, (Shortfall("memory", 3 * GIB, 0b1),))
    assert f"lacks {3 * GIB} bytes of memory on NUMA node 0" in resize.message
    node.end("q")
    assert memory_of(node.state.grants, "p") == "app=10@0"


def test_memory_below_the_first_admission_is_infeasible() -> None:
    node = exclusive_node(regular(8, numa=2), memory_policy="Static")
    pod = named("p", guaranteed("1", "4Gi"))
    node.want(pod)
    node.want(sizes(pod, cpu(1, "2Gi")))
    assert node.record("p").resize.reason == "below_first_admission"


def test_memory_on_a_numa_node_that_is_gone_is_resized_on_those_that_are_there() -> None:
    config: dict[str, Any] = {"memory_policy": "Static", "topology_policy": "best-effort", "memory_gib": 16}
    node = exclusive_node(regular(8, numa=2), **config)
    pod = named("p", guaranteed("5", "4Gi"))
    node.want(pod)
    assert memory_of(node.state.grants, "p") == "app=4@0,1"
    node.managers = exclusive_node(regular(8), **config).managers
    node.state = replace(node.state, grants=refit(node.managers, node.state.grants))
    node.want(sizes(pod, cpu(5, "5Gi")))
    assert memory_of(node.state.grants, "p") == "app=5@0"


def test_a_node_of_single_blocks_is_not_drawn_into_a_group() -> None:
    node = exclusive_node(regular(8, numa=2), memory_policy="Static", topology_policy="best-effort", memory_gib=16)
    p, q = named("p", guaranteed("1", "4Gi")), named("q", guaranteed("1", "8Gi"))
    node.want(p, q)
    node.want(sizes(p, cpu(1, "20Gi")))
    assert node.record("p").resize.state is ResizeState.DEFERRED
    assert node.record("p").resize.message.startswith("Allocate failed due to [memorymanager]")


@pytest.mark.parametrize(
    ("scope", "affinity"),
    [
        pytest.param(
            "pod", Hint(0b11, True), id="nine CPUs need two nodes, as those of the pod at its admission would"
        ),
        pytest.param("container", None, id="seven CPUs of one container need one, which lacks them"),
    ],
)
def test_in_pod_scope_what_grows_is_aligned_for_the_total_of_the_pod(scope: str, affinity: Hint | None) -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, topology_policy="restricted", topology_scope=scope)
    pod = named("p", guaranteed("4"), guaranteed("2", name="b"))
    grants = admitted(managers, pod)
    assert cpus_of(grants) == "p/app=1-4 p/b=5-6 shared=0,7-15"
    if affinity is None:
        with pytest.raises(PinnedResizeRefusal) as caught:
            resize_pinned(managers, grants, FirstGrant(), pod, sizes(pod, cpu(7)))
        assert caught.value.reason == "TopologyAffinityError"
    else:
        resized = resize_pinned(managers, grants, FirstGrant(), pod, sizes(pod, cpu(7)))
        assert resized.affinities == {"app": affinity}
        assert len(resized.grants.cpu.entries["p"]["app"]) == 7


@pytest.mark.parametrize("wanted", [cpu(3, "1Gi"), cpu(2, "2Gi"), cpu(3, "2Gi")])
def test_only_what_grows_is_aligned_anew_and_the_tables_follow(wanted: str) -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, memory_policy="Static", topology_policy="restricted")
    pod = named("p", guaranteed("2"), guaranteed("2", name="b"))
    resized = resize_pinned(managers, admitted(managers, pod), FirstGrant(), pod, sizes(pod, wanted))
    assert resized.affinities == {"app": Hint(0b1, True)}
    assert resized.grants.memory == admitted(managers, sizes(pod, wanted)).memory


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_memory_that_its_node_lacks_is_refused_by_the_policy_not_only_for_want_of_room(scope: str) -> None:
    managers = node(
        regular(16, numa=2),
        feature_gates=EXCLUSIVE,
        memory_policy="Static",
        memory_gib=16,
        topology_policy="restricted",
        topology_scope=scope,
    )
    pod, other = named("p", guaranteed("2", "4Gi")), named("q", guaranteed("1", "8Gi"))
    with pytest.raises(PinnedResizeRefusal) as caught:
        resize_pinned(managers, admitted(managers, pod, other), FirstGrant(), pod, sizes(pod, cpu(2, "10Gi")))
    assert (caught.value.never, caught.value.reason) == (False, "TopologyAffinityError")


def test_in_pod_scope_a_container_that_shares_adds_nothing_to_the_total() -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, topology_policy="restricted", topology_scope="pod")
    pod = named("p", guaranteed("4"), guaranteed("500m", name="b"))
    resized = resize_pinned(managers, admitted(managers, pod), FirstGrant(), pod, sizes(pod, cpu(7)))
    assert resized.affinities == {"app": Hint(0b1, True)}


def test_in_pod_scope_memory_grows_on_the_node_of_its_pod() -> None:
    managers = node(
        regular(16, numa=2),
        feature_gates=EXCLUSIVE,
        memory_policy="Static",
        topology_policy="restricted",
        topology_scope="pod",
    )
    pod = named("p", guaranteed("5"))
    grants = admitted(managers, named("q", guaranteed("5")), pod)
    assert memory_of(grants, "p") == "app=1@1"
    resized = resize_pinned(managers, grants, FirstGrant(), pod, sizes(pod, cpu(5, "2Gi")))
    assert resized.affinities == {"app": Hint(0b10, True)}
    assert memory_of(resized.grants, "p") == "app=2@1"


def test_memory_that_needs_another_node_takes_the_one_that_all_agree_on() -> None:
    """The near one, with prefer-closest-numa-nodes; the lowest one otherwise."""
    rows = {0: (10, 30, 12), 1: (30, 10, 30), 2: (12, 30, 10)}
    for closest, nodes in (("true", "0,2"), ("false", "0,1")):
        managers = node(
            regular(12, numa=3),
            feature_gates=EXCLUSIVE,
            memory_policy="Static",
            memory_gib=10,
            topology_policy="restricted",
            topology_options={"prefer-closest-numa-nodes": closest},
        )
        managers = replace(managers, machine=replace(managers.machine, distances=rows))
        pod = named("p", guaranteed("500m", "4Gi"))
        grown = sizes(pod, "cpu=500m memory=15Gi")
        after = resize_pinned(managers, admitted(managers, pod), FirstGrant(), pod, grown).grants
        assert memory_of(after, "p") == f"app=15@{nodes}"


# --- what is first ------------------------------------------------------------------------------------------------------


def test_without_a_known_first_admission_what_is_held_is_the_floor() -> None:
    """A state imported from a kubelet's files does not name it."""
    managers = node(regular(8), feature_gates=EXCLUSIVE)
    pod = named("p", guaranteed("4"))
    grants = admitted(managers, pod)
    with pytest.raises(PinnedResizeRefusal, match="fewer than the 4") as caught:
        resize_pinned(managers, grants, FirstGrant(), pod, sizes(pod, cpu(2)))
    assert caught.value.never
    grown = resize_pinned(managers, grants, FirstGrant(), pod, sizes(pod, cpu(6))).grants
    assert str(grown.cpu.entries["p"]["app"]) == "1-6"


def test_a_cpu_of_the_first_set_that_was_exchanged_does_not_hold_up_a_shrink() -> None:
    managers = node(regular(8), feature_gates=EXCLUSIVE)
    pod = named("p", guaranteed("2"))
    first = FirstGrant.of(admitted(managers, pod), "p")
    grants = admitted(managers, sizes(pod, cpu(4)))
    moved = CPUSet.parse("2-5")  # CPU 1 went offline and was replaced
    grants = replace(grants, cpu=replace(grants.cpu, entries={"p": {"app": moved}}, default=CPUSet.parse("0-1,6-7")))
    after = resize_pinned(managers, grants, first, sizes(pod, cpu(4)), pod).grants
    assert len(after.cpu.entries["p"]["app"]) == 2
    assert 2 in after.cpu.entries["p"]["app"]
