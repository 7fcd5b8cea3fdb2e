"""One pod after another on one node: what each gets, and why not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from agent.model.machine import CPUTopology
from agent.model.pod import Container, Pod
from agent.model.state import CPUState, Grants, MemoryBlock
from agent.policy.admission import admit, check_minimum_shared_pool
from agent.policy.device_hints import DeviceHints
from agent.policy.eligibility import claims
from agent.policy.hint_family import Hint
from agent.policy.refusal import AllocationError
from agent.policy.removal import container_started, remove
from agent.policy.restore import fresh
from tests.nodes import GIB, PODS_ON, admitted, cpus_of, memory_of, named, node, outcome
from tests.pods import app, guaranteed, init, sidecar, sized
from tests.policy.cpu_machines import drawn, regular

T4 = regular(4)
T6 = regular(6)
T8S = regular(8, smt=2)
T8N2 = regular(8, numa=2)
U16 = regular(16, smt=2, cache_cores=4)


def whole(cpus: str, memory: str = "1Gi") -> str:
    return f"cpu={cpus} memory={memory}"


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(
            named("p", guaranteed("2")), "p/app=1-2 shared=0,3-7", id="a Guaranteed pod with whole CPUs gets them"
        ),
        pytest.param(named("p", guaranteed("1500m")), "shared=0-7", id="a fraction runs in the shared pool"),
        pytest.param(named("p", guaranteed("2000m")), "p/app=1-2 shared=0,3-7", id="2000m is 2"),
        pytest.param(named("p", app(whole("2"), "cpu=3 memory=1Gi")), "shared=0-7", id="a Burstable pod shares"),
        pytest.param(named("p", app()), "shared=0-7", id="a BestEffort pod shares"),
        pytest.param(
            named("p", init(whole("3"), whole("3")), guaranteed("2")),
            "p/init=1-3 p/app=1-2 shared=0,4-7",
            id="an app container reuses what the init container had",
        ),
        pytest.param(
            named("p", init(whole("4"), whole("4")), sidecar(whole("2"), whole("2")), guaranteed("2")),
            "p/init=1-4 p/sidecar=1-2 p/app=3-4 shared=0,5-7",
            id="a sidecar's CPUs are not reused (BL-28)",
        ),
        pytest.param(
            named("p", guaranteed("8")),
            "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: "
            "requested=8, available=7, which is unexpected",
            id="reserved CPUs are never given",
        ),
    ],
)
def test_who_gets_cpus_of_its_own(pod: Pod, expected: str) -> None:
    managers = node(regular(8))
    assert outcome(admit(managers, fresh(managers), pod)) == expected


def test_a_refusal_for_want_of_free_cpus_says_what_to_do() -> None:
    managers = node(T4)
    verdict = admit(managers, fresh(managers), named("p", guaranteed("4")))
    assert verdict.hint == "ask for fewer CPUs, or wait until other pods end"


def test_a_refusal_returns_the_very_grants_it_was_given() -> None:
    managers = node(T4)
    grants = admitted(managers, named("a", guaranteed("1")))
    verdict = admit(managers, grants, named("b", guaranteed("1"), guaranteed("2", name="second")))
    assert not verdict.admitted
    assert verdict.grants is grants


def test_a_pod_that_holds_its_grants_keeps_them_before_any_check_of_free_capacity() -> None:
    """BL-04: with full-pcpus-only and nothing free, the running pod is not refused."""
    managers = node(T8S, cpu_options={"full-pcpus-only": "true"})
    pod = named("p", guaranteed("6"))
    grants = admitted(managers, pod)
    again = admit(managers, grants, pod)
    assert again.admitted
    assert again.grants is grants
    assert again.claims == claims(pod, managers.gates)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        ("3", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"),
        (
            "8",
            (
                "SMT Alignment Error: not enough free physical CPUs: "
                "available physical CPUs = 6, requested CPUs = 8, CPUs per core = 2"
            ),
        ),
    ],
)
def test_full_pcpus_only_refuses_with_the_numbers(count: str, expected: str) -> None:
    managers = node(T8S, cpu_options={"full-pcpus-only": "true"})
    verdict = admit(managers, fresh(managers), named("p", guaranteed(count)))
    assert (verdict.reason, verdict.message) == ("SMTAlignmentError", expected)


def test_whole_cores_of_a_hybrid_chip_are_told_by_their_siblings_not_by_an_average() -> None:
    """BL-13: one thread of a two-thread core is reserved, so no CPU of that core is given."""
    managers = node(drawn("0+1 2+3 4 5 6 7 8 9"), cpu_options={"full-pcpus-only": "true"})
    grants = admitted(managers, named("p", guaranteed("8")))
    assert grants.cpu.entries["p"]["app"] == CPUSet.parse("2-9")
    refused = admit(managers, grants, named("q", guaranteed("1")))
    assert refused.reason in ("SMTAlignmentError", "UnexpectedAdmissionError")


def test_the_policy_decides_what_a_spread_over_numa_nodes_means() -> None:
    """BL-23: three nodes of six, two free in each, a request of four."""
    held = named("held", *(guaranteed(count, name=f"c{index}") for index, count in enumerate(("3", "4", "4"))))
    for policy, expected in (
        ("restricted", "TopologyAffinityError: Resources cannot be allocated with Topology locality"),
        ("best-effort", "held/c0=1-3 held/c1=6-9 held/c2=12-15 p/app=4-5,10-11 shared=0,16-17"),
    ):
        managers = node(regular(18, numa=3), topology_policy=policy)
        grants = admitted(managers, held)
        got = outcome(admit(managers, grants, named("p", guaranteed("4"))))
        assert got.startswith(expected), policy


def test_an_init_container_anchors_its_pod_to_its_numa_node() -> None:
    """BL-25: the kubelet's refusal stands."""
    managers = node(regular(16, numa=2), topology_policy="single-numa-node")
    pods = [named(name, init(whole("1"), whole("1")), guaranteed("6")) for name in ("one", "two")]
    grants = admitted(managers, pods[0])
    assert admit(managers, grants, pods[1]).reason == "TopologyAffinityError"
    wider = node(regular(16, numa=2), topology_policy="single-numa-node", topology_scope="pod")
    assert admitted(wider, *pods).cpu.entries["two"]["app"] <= CPUSet.parse("8-15")


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_container_without_cpus_of_its_own_needs_none_to_be_free(scope: str) -> None:
    managers = node(T4, topology_policy="restricted", topology_scope=scope)
    pod = named("p", guaranteed("3"), guaranteed("500m", name="side"))
    assert cpus_of(admitted(managers, pod)) == "p/app=1-3 shared=0"


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_single_cpu_has_a_say_as_well(scope: str) -> None:
    managers = node(T8N2, memory_policy="Static", topology_policy="restricted", topology_scope=scope)
    grants = admitted(managers, named("first", guaranteed("3")), named("p", guaranteed("1", "1Gi")))
    assert cpus_of(grants).startswith("first/app=1-3 p/app=4 ")
    assert memory_of(grants, "p") == "app=1@1"


def test_who_asks_for_nothing_exclusive_says_nothing() -> None:
    managers = node(T8N2, memory_policy="Static", topology_policy="restricted")
    (step,) = admit(managers, fresh(managers), named("p", app(whole("1"), whole("2")))).merges
    assert step.providers == (None, None, None)


def test_memory_over_two_nodes_does_not_force_a_distributed_pick_onto_both() -> None:
    """As devices there would."""
    spread = {"distribute-cpus-across-numa": "true"}
    managers = node(
        regular(16, numa=2), cpu_options=spread, memory_policy="Static", topology_policy="best-effort", memory_gib=10
    )
    grants = admitted(managers, named("p", guaranteed("4", "15Gi")))
    assert memory_of(grants, "p") == "app=15@0,1"
    assert cpus_of(grants).startswith("p/app=8-11 ")


@pytest.mark.parametrize(("option", "expected"), [("true", "p/app=1-4 "), ("false", "TopologyAffinityError")])
def test_align_by_socket_accepts_nodes_of_one_socket(option: str, expected: str) -> None:
    """Four NUMA nodes of four CPUs in two sockets, three free in each: a request of four fits into no node, but into a socket."""
    managers = node(
        regular(16, sockets=2, numa=4),
        cpu_options={"align-by-socket": option},
        topology_policy="restricted",
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )
    grants = Grants(CPUState(CPUSet.parse("0-6,8-10,12-14"), {}, {}), fresh(managers).memory)
    assert outcome(admit(managers, grants, named("p", guaranteed("4")))).startswith(expected)


@pytest.mark.parametrize(("scope", "merges", "refused"), [("container", ["app", "side"], ["app"]), ("pod", [""], [""])])
def test_a_verdict_has_the_merges_behind_it_and_the_hint_of_every_container(
    scope: str, merges: list[str], refused: list[str]
) -> None:
    managers = node(T8N2, topology_policy="single-numa-node", topology_scope=scope)
    pod = named("p", guaranteed("2"), guaranteed("1", name="side"))
    verdict = admit(managers, fresh(managers), pod)
    assert verdict.claims == claims(pod, managers.gates)
    assert verdict.affinities == {"app": Hint(0b01, True), "side": Hint(0b01, True)}
    assert [step.container for step in verdict.merges] == merges
    assert all(step.merged.best == Hint(0b01, True) for step in verdict.merges)
    assert verdict.exact
    pod = named("p", guaranteed("5"), guaranteed("1", name="side"))
    too_large = admit(managers, fresh(managers), pod)
    assert too_large.claims == claims(pod, managers.gates)
    assert too_large.message.startswith("Resources cannot be allocated with Topology locality: cpu: asked ")
    assert [step.container for step in too_large.merges] == refused
    assert too_large.rule.startswith("topologyManagerPolicy single-numa-node wants ")


def test_in_pod_scope_memory_has_a_say_for_all_containers_together() -> None:
    """Node 0 has the CPUs for both containers, but not the memory of both."""
    managers = node(
        T8N2, memory_policy="Static", topology_policy="single-numa-node", topology_scope="pod", memory_gib=10
    )
    grants = admitted(managers, named("first", guaranteed("500m", "6Gi")))
    assert memory_of(grants, "first") == "app=6@0"
    grants = admitted(managers, named("p", guaranteed("1", "2Gi"), guaranteed("1", "2Gi", name="b")), grants=grants)
    assert memory_of(grants, "p") == "app=2@1 b=2@1"
    assert cpus_of(grants).startswith("p/app=4 p/b=5 ")


def test_in_pod_scope_the_memory_of_a_pod_that_is_not_guaranteed_is_not_aligned() -> None:
    managers = node(
        T8N2, memory_policy="Static", topology_policy="single-numa-node", topology_scope="pod", memory_gib=10
    )
    verdict = admit(managers, fresh(managers), named("p", app("cpu=1 memory=15Gi", "cpu=2 memory=15Gi")))
    assert outcome(verdict) == "shared=0-7"
    assert verdict.grants.memory.entries == {}


def test_with_prefer_closest_memory_goes_to_nodes_that_are_near_to_each_other() -> None:
    """Node 2 is nearer to node 1 than node 0 is; what needs two nodes gets 1 and 2."""
    rows = {0: (10, 30, 30), 1: (30, 10, 12), 2: (30, 12, 10)}
    for closest, nodes in (("true", "1,2"), ("false", "0,1")):
        managers = node(
            regular(12, numa=3),
            memory_policy="Static",
            memory_gib=10,
            topology_policy="restricted",
            topology_options={"prefer-closest-numa-nodes": closest},
        )
        managers = replace(managers, machine=replace(managers.machine, distances=rows))
        assert memory_of(admitted(managers, named("p", guaranteed("1500m", "15Gi"))), "p") == f"app=15@{nodes}"


def test_a_refusal_for_memory_alone_has_its_numbers_too() -> None:
    managers = node(T8N2, cpu_policy="none", memory_policy="Static", topology_policy="single-numa-node", memory_gib=10)
    verdict = admit(managers, fresh(managers), named("p", guaranteed("1", "15Gi")))
    assert verdict.reason == "TopologyAffinityError"
    assert f"memory: asked {15 * GIB}; NUMA node 0 has {9 * GIB} free" in verdict.message
    assert verdict.hint


def test_devices_set_a_floor_for_the_numa_nodes_of_a_distributed_pick() -> None:
    """BL-19: five CPUs on each of the four nodes that devices sit on."""
    managers = node(
        regular(32, numa=4), cpu_options={"distribute-cpus-across-numa": "true"}, topology_policy="best-effort"
    )
    devices = DeviceHints({"app": {"example.com/nic": (Hint(0b1111, True),)}})
    verdict = admit(managers, fresh(managers), named("p", guaranteed("20")), devices)
    given = verdict.grants.cpu.entries["p"]["app"]
    assert [(given.mask & mask).bit_count() for mask in managers.machine.topology.numa_masks.values()] == [5, 5, 5, 5]


# --- memory ---------------------------------------------------------------------------------------------------------------


def test_init_memory_is_reused_and_shrunk_so_that_sums_add_up() -> None:
    """BL-42, and the kubelet's zero-sized init block."""
    managers = node(T8N2, memory_policy="Static", topology_policy="best-effort")
    one = named("one", init(whole("1", "2Gi"), whole("1", "2Gi")), guaranteed("1", "2Gi"))
    two = named("two", init(whole("1", "1Gi"), whole("1", "1Gi")), guaranteed("1", "3Gi"))
    grants = admitted(managers, one, two)
    assert memory_of(grants, "one") == "init=0@0 app=2@0"
    assert memory_of(grants, "two") == "init=0@0 app=3@0"
    assert grants.memory.machine[0].memory["memory"].reserved == 5 * GIB


def test_a_started_container_ends_the_memory_of_the_init_containers_before_it() -> None:
    managers = node(T8N2, memory_policy="Static")
    pod = named("p", init(whole("1", "5Gi"), whole("1", "5Gi")), guaranteed("1", "2Gi"))
    grants = admitted(managers, pod)
    after = container_started(grants, pod, "app")
    assert memory_of(after, "p") == "app=2@0"
    assert after.memory.machine[0].memory["memory"].reserved == 2 * GIB
    assert after.cpu == grants.cpu


def test_a_node_serves_single_or_multi_node_memory_never_both() -> None:
    managers = node(T8N2, memory_policy="Static", topology_policy="best-effort", memory_gib=10)
    grants = admitted(managers, named("wide", guaranteed("1", "15Gi")))
    assert memory_of(grants, "wide") == "app=15@0,1"
    refused = admit(managers, grants, named("small", guaranteed("1", "1Gi")))
    assert refused.admitted
    assert memory_of(refused.grants, "small") == "app=1@0,1"


def test_removing_in_any_order_returns_every_byte() -> None:
    """BL-39: history-dependent splits never leak."""
    managers = node(T8N2, memory_policy="Static", topology_policy="best-effort", memory_gib=23)
    start = fresh(managers)
    grants = admitted(managers, named("p1", guaranteed("1", "24Gi")), named("p2", guaranteed("1", "2Gi")))
    grants = remove(managers, grants, "p2")
    grants = admitted(managers, named("p3", guaranteed("1", "1Gi")), grants=grants)
    for uid in ("p1", "p3"):
        grants = remove(managers, grants, uid)
    assert grants == start


# --- pods with pod-level resources -------------------------------------------------------------------------------------------


def bubble(cpus: str, *containers: Container, memory: str = "4Gi") -> Pod:
    return named("b", *containers, resources=sized(whole(cpus, memory), whole(cpus, memory)))


def scoped(scope: str, policy: str = "best-effort") -> dict[str, Any]:
    return {"topology_policy": policy, "topology_scope": scope, "feature_gates": PODS_ON}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(
            bubble("4", guaranteed("2", name="main"), app(name="side1"), app(name="side2")),
            "b/main=1-2 b/side1=3-4 b/side2=3-4 b=1-4 shared=0,5-7",
            id="slices and a shared pool",
        ),
        pytest.param(
            bubble("4", guaranteed("2", name="main")), "b/main=1-2 b=1-4 shared=0,5-7", id="what is left over is kept"
        ),
        pytest.param(
            bubble("2", guaranteed("2", name="main"), app(name="side")),
            "EmptyPodSharedPoolError: pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers",
            id="an empty shared pool is refused",
        ),
        pytest.param(
            bubble("2", sidecar(whole("2"), whole("2")), init(), app()),
            "EmptyPodSharedPoolError: pod rejected, pod has shared init containers but no cpus available for them",
            id="a shared init container needs what the sidecars leave",
        ),
        pytest.param(
            bubble("2", guaranteed("2", name="one"), guaranteed("1", name="two")),
            "UnexpectedAdmissionError: Allocate failed due to not enough cpus available to satisfy request: "
            "requested=1, available=0, which is unexpected",
            id="slices beyond the bubble leave no trace",
        ),
        pytest.param(
            bubble("3500m", guaranteed("2", name="main")), "shared=0-7", id="a fractional budget gets no bubble"
        ),
    ],
)
def test_a_bubble_in_pod_scope(pod: Pod, expected: str) -> None:
    managers = node(regular(8), **scoped("pod"))
    assert outcome(admit(managers, fresh(managers), pod)) == expected


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_bubble_has_memory_too_and_slices_of_it(policy: str) -> None:
    managers = node(T8N2, memory_policy="Static", memory_gib=10, **scoped("pod", policy))
    first = admitted(managers, named("first", guaranteed("500m", "6Gi")))
    pod = bubble("2", guaranteed("1", "1Gi", name="main"), app(name="side"), memory="4Gi")
    verdict = admit(managers, first, pod)
    assert outcome(verdict) == "b/main=4 b/side=5 b=4-5 shared=0-3,6-7"
    assert [step.container for step in verdict.merges] == [""]
    assert verdict.affinities == dict.fromkeys(["main", "side"], Hint(0b10, True))
    assert verdict.grants.memory.pod_entries == {"b": (MemoryBlock("memory", 4 * GIB, 0b10),)}
    assert memory_of(verdict.grants, "b").startswith("main=1@1")
    assert verdict.grants.memory.machine[1].memory["memory"].reserved == 4 * GIB
    assert remove(managers, verdict.grants, "b") == first


def test_a_refused_bubble_says_why_in_the_words_of_its_scope() -> None:
    managers = node(T8N2, **scoped("pod", "single-numa-node"))
    verdict = admit(managers, fresh(managers), bubble("5", guaranteed("2", name="main"), app(name="side")))
    assert verdict.message.startswith(
        "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager: cpu: asked 5; "
    )


def test_a_bubble_refused_for_its_memory_has_the_numbers_whatever_its_pool_of_cpus_would_be() -> None:
    managers = node(T8N2, cpu_policy="none", memory_policy="Static", memory_gib=10, **scoped("pod", "single-numa-node"))
    pod = bubble("2", guaranteed("2", name="main"), app(name="side"), memory="15Gi")
    verdict = admit(managers, fresh(managers), pod)
    assert f": memory: asked {15 * GIB}; NUMA node 0 has {9 * GIB} free" in verdict.message


def test_a_bubble_refused_for_its_cpus_has_the_numbers_whatever_its_pool_of_memory_would_be() -> None:
    managers = node(T8N2, **scoped("pod", "single-numa-node"))
    pod = bubble("5", guaranteed("2", "4Gi", name="main"), app(name="side"), memory="4Gi")
    assert ": cpu: asked 5; NUMA node 0 has 3 free" in admit(managers, fresh(managers), pod).message


@pytest.mark.parametrize(
    ("cpus", "said"),
    [pytest.param("1", True, id="one CPU has a place"), pytest.param("1500m", False, id="a fraction has none")],
)
def test_a_bubble_of_whole_cpus_says_where_they_are(cpus: str, *, said: bool) -> None:
    managers = node(T8N2, **scoped("pod", "restricted"))
    verdict = admit(managers, fresh(managers), bubble(cpus, app(name="one"), app(name="two")))
    assert verdict.admitted, verdict.message
    (step,) = verdict.merges
    assert (step.providers[1] is not None) is said


def test_a_slice_without_pages_takes_none_of_the_pods() -> None:
    managers = node(
        T8N2, memory_policy="Static", memory_gib=10, hugepages={"2Mi": 1}, **scoped("pod", "single-numa-node")
    )
    amounts = "cpu=2 memory=4Gi hugepages-2Mi=512Mi"
    pod = named("b", guaranteed("1", "1Gi", name="main"), app(name="side"), resources=sized(amounts, amounts))
    verdict = admit(managers, fresh(managers), pod)
    assert verdict.admitted, verdict.message
    assert verdict.grants.memory.entries["b"]["side"] == (
        MemoryBlock("hugepages-2Mi", GIB // 2, 0b1),
        MemoryBlock("memory", 3 * GIB, 0b1),
    )


def test_a_bubble_too_small_for_its_slices_says_what_to_do() -> None:
    managers = node(regular(8), **scoped("pod"))
    pod = bubble("2", guaranteed("2", name="one"), guaranteed("1", name="two"))
    assert admit(managers, fresh(managers), pod).hint == "ask for fewer CPUs, or wait until other pods end"


def test_devices_set_a_floor_for_a_bubble_as_well() -> None:
    spread = {"distribute-cpus-across-numa": "true"}
    managers = node(regular(16, numa=2), cpu_options=spread, **scoped("pod"))
    devices = DeviceHints(pod={"example.com/nic": (Hint(0b11, True),)})
    pod = bubble("4", guaranteed("2", name="main"), app(name="side"))
    assert admit(managers, fresh(managers), pod, devices).grants.cpu.pod_entries["b"] == CPUSet.parse("1-2,8-9")
    assert admit(managers, fresh(managers), pod).grants.cpu.pod_entries["b"] == CPUSet.parse("1-4")


def test_a_strict_policy_refuses_the_empty_pool_as_a_lack_of_alignment() -> None:
    managers = node(regular(8), **scoped("pod", "restricted"))
    verdict = admit(managers, fresh(managers), bubble("2", guaranteed("2", name="main"), app(name="side")))
    assert verdict.reason == "TopologyAffinityError"
    assert verdict.message == (
        "Pod Scope pod with pod-level resources failed admission under pod-scope topology manager: pod rejected, sum of "
        "exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
    )


EMPTY_MEMORY = (
    "pod rejected, sum of exclusive container memory requests equals pod budget, "
    "leaving no memory for shared containers"
)


@pytest.mark.parametrize(
    ("policy", "memory_policy", "reason", "message"),
    [
        ("best-effort", "Static", "EmptyPodSharedPoolError", EMPTY_MEMORY),
        (
            "restricted",
            "Static",
            "TopologyAffinityError",
            f"Pod Scope pod with pod-level resources failed admission under pod-scope topology manager: {EMPTY_MEMORY}",
        ),
        ("restricted", "None", "", ""),
    ],
)
def test_a_bubble_needs_memory_left_for_those_without_their_own(
    policy: str, memory_policy: str, reason: str, message: str
) -> None:
    managers = node(regular(8), memory_policy=memory_policy, **scoped("pod", policy))
    pod = bubble("4", guaranteed("2", "4Gi", name="main"), app(name="side"), memory="4Gi")
    verdict = admit(managers, fresh(managers), pod)
    assert (verdict.reason, verdict.message) == (reason, message)
    if reason:
        assert verdict.hint.startswith("raise the pod's memory in .spec.resources")
        assert verdict.rule.startswith("what the exclusive containers leave")


def test_without_a_cpu_manager_nobody_asks_what_is_left_of_a_bubbles_cpus() -> None:
    managers = node(regular(8), cpu_policy="none", memory_policy="Static", **scoped("pod", "restricted"))
    pod = bubble("2", guaranteed("2", "1Gi", name="main"), app(name="side"))
    (entry,) = admitted(managers, pod).memory.pod_entries.values()
    assert entry == (MemoryBlock("memory", 4 * GIB, 0b1),)


def test_removing_a_bubble_leaves_the_others_as_they_are() -> None:
    managers = node(T8N2, memory_policy="Static", **scoped("pod"))
    first = named("first", guaranteed("1", "1Gi"), resources=sized(whole("2", "2Gi"), whole("2", "2Gi")))
    grants = admitted(managers, first)
    after = remove(managers, admitted(managers, bubble("2", guaranteed("1", "1Gi")), grants=grants), "b")
    assert after == grants
    assert after.cpu.pod_entries.keys() == after.memory.pod_entries.keys() == {"first"}


def test_who_holds_memory_alone_keeps_it_and_gives_it_back() -> None:
    managers = node(T8N2, cpu_policy="none", memory_policy="Static")
    pod = named("p", guaranteed("1", "2Gi"))
    grants = admitted(managers, pod)
    assert admit(managers, grants, pod).grants is grants
    assert remove(managers, grants, "p") == fresh(managers)
    assert remove(managers, grants, "q") is grants


def test_a_cpu_with_two_owners_is_shared_once_both_have_gone() -> None:
    managers = node(regular(8))
    both = {"a": {"app": CPUSet.parse("1-2")}, "b": {"app": CPUSet.parse("2-3")}}
    grants = Grants(CPUState(CPUSet.parse("0,4-7"), both, {}), fresh(managers).memory)
    one = remove(managers, grants, "a")
    assert cpus_of(one) == "b/app=2-3 shared=0-1,4-7"
    assert cpus_of(remove(managers, one, "b")) == "shared=0-7"


@pytest.mark.parametrize(
    ("config", "shared", "held", "after"),
    [
        pytest.param({}, "0,3-7", "1-2,9", "0-7", id="a CPU that the machine has lost does not return"),
        pytest.param(
            {"cpu_options": {"strict-cpu-reservation": "true"}}, "3-7", "0-2", "1-7", id="nor one that is reserved now"
        ),
        pytest.param(
            {"cpu_policy": "none"}, "0,3-7", "1-2,9", "0-7", id="what static gave returns under policy none too"
        ),
        pytest.param({"cpu_policy": "none"}, "", "1-2", "", id="unless there is no shared pool any more"),
        pytest.param({"cpu_policy": "none"}, "0,4-7", "1-3", "0-2,4-7", id="and nothing of another's"),
    ],
)
def test_cpus_return_to_the_shared_pool_as_far_as_they_belong_there(
    config: dict[str, Any], shared: str, held: str, after: str
) -> None:
    managers = node(regular(8), **config)
    others = {"q": {"app": CPUSet.parse("3")}} if after == "0-2,4-7" else {}
    cpu = CPUState(CPUSet.parse(shared), {"p": {"app": CPUSet.parse(held)}, **others}, {})
    left = remove(managers, Grants(cpu, fresh(managers).memory), "p")
    assert str(left.cpu.default) == after


def test_container_scope_cuts_slices_from_the_node() -> None:
    managers = node(regular(8), **scoped("container"))
    verdict = admit(managers, fresh(managers), bubble("4", guaranteed("2", name="main"), app(name="side")))
    assert outcome(verdict) == "b/main=1-2 shared=0,3-7"


def test_a_refused_pod_with_resources_of_its_own_says_that_its_containers_are_aligned_one_by_one() -> None:
    managers = node(T8N2, **scoped("container", "single-numa-node"))
    verdict = admit(managers, fresh(managers), bubble("6", guaranteed("5", name="main"), app(name="side")))
    assert verdict.reason == "TopologyAffinityError"
    assert verdict.message.startswith(
        "Pod Scope pod with pod-level resources failed admission with a container-level topology manager: cpu: asked 5; "
    )


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_container_without_anything_exclusive_never_makes_its_pod_fail(policy: str) -> None:
    """The kubelet 1.36 refuses such pods once any NUMA node holds a single-node block (docs/differences.md)."""
    managers = node(T8N2, memory_policy="Static", **scoped("container", policy))
    grants = admitted(managers, named("first", guaranteed("1")))
    verdict = admit(managers, grants, bubble("4", guaranteed("1", name="main"), app(name="side")))
    assert verdict.admitted, verdict.message


def test_with_the_managers_gate_off_such_pods_get_nothing_exclusive() -> None:
    managers = node(regular(8), topology_policy="restricted", topology_scope="pod")
    verdict = admit(managers, fresh(managers), bubble("4", guaranteed("2", name="main")))
    assert outcome(verdict) == "shared=0-7"


@pytest.mark.parametrize("machine", [T4, T6], ids=["T4", "T6"])
def test_a_restored_bubble_stays_where_it_is(machine: CPUTopology) -> None:
    """BL-01: admitted again twice, nothing moves."""
    managers = node(machine, **scoped("pod", "restricted"))
    pod = named("a", guaranteed("2", name="main"), resources=sized(whole("2"), whole("2")))
    held = CPUSet.parse("1-2")
    cpu = CPUState(fresh(managers).cpu.default - held, {"a": {"main": held}}, {"a": held})
    grants = Grants(cpu, fresh(managers).memory)
    for _ in range(2):
        verdict = admit(managers, grants, pod)
        assert verdict.admitted
        assert verdict.grants is grants


# --- what must stay shared ---------------------------------------------------------------------------------------------------


def test_strict_reservation_leaves_the_shared_containers_a_cpu() -> None:
    """BL-35: the kubelet lets the shared pool become empty, and an empty set means "no change" to a runtime."""
    managers = node(T4, cpu_options={"strict-cpu-reservation": "true"})
    verdict = admit(managers, fresh(managers), named("p", guaranteed("3")))
    assert verdict.reason == "UnexpectedAdmissionError"
    assert verdict.message.startswith(
        "Allocate failed due to not enough cpus available to satisfy request: requested=3, available=2"
    )
    assert "at least 1 must stay" in verdict.message
    assert cpus_of(admitted(managers, named("p", guaranteed("2")))) == "p/app=1-2 shared=3"


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        pytest.param("0-7", "0-3", None, id="as many as must stay"),
        pytest.param("0-7", "0-2", "requested=5, available=3", id="one fewer"),
        pytest.param("0-3", "0", "requested=3, available=0", id="none could have been given"),
        pytest.param("0-2", "0-2", None, id="who takes none is not to blame that there are too few"),
        pytest.param("", "", None, id="not even where there are none"),
    ],
)
def test_a_grant_leaves_the_minimum_of_the_shared_pool(before: str, after: str, why: str | None) -> None:
    managers = replace(node(regular(8)), min_shared_cpus=4)
    pools = CPUSet.parse(before), CPUSet.parse(after)
    if why is None:
        check_minimum_shared_pool(managers, *pools, named("p"))
        return
    with pytest.raises(AllocationError, match=why) as refused:
        check_minimum_shared_pool(managers, *pools, named("p"))
    assert refused.value.rule.startswith("exclusive grants leave the shared containers their minimum")
    assert refused.value.hint.startswith("ask for fewer CPUs, or lower the minimum")


def test_without_strict_reservation_the_reserved_cpus_are_the_shared_pool() -> None:
    assert cpus_of(admitted(node(T4), named("p", guaranteed("3")))) == "p/app=1-3 shared=0"


def test_removing_the_init_containers_pod_gives_everything_back() -> None:
    """BL-27: CPUs that init and app shared return once, and only with the pod."""
    managers = node(T6)
    pod = named("j", init(whole("1"), whole("1")), guaranteed("2"))
    grants = admitted(managers, pod)
    assert cpus_of(container_started(grants, pod, "app")) == cpus_of(grants)
    assert cpus_of(remove(managers, grants, "j")) == "shared=0-5"


def test_an_odd_request_is_aligned_to_one_uncore_cache() -> None:
    """BL-21."""
    managers = node(U16, cpu_options={"prefer-align-cpus-by-uncorecache": "true"})
    assert cpus_of(admitted(managers, named("p", guaranteed("7")))) == "p/app=1-3,8-11 shared=0,4-7,12-15"


@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_a_machine_of_34_numa_nodes_is_served_under_every_policy(policy: str) -> None:
    """The kubelet enumerates 2^34 sets of nodes here, with policy none for every container."""
    managers = node(regular(68, numa=34), memory_policy="Static", memory_gib=4, topology_policy=policy)
    grants = admitted(managers, named("p", guaranteed("2", "4Gi")))
    assert memory_of(grants, "p") == "app=4@1"
    wide = admit(managers, grants, named("w", guaranteed("20", "40Gi")))
    assert wide.admitted == (policy != "single-numa-node")
    if wide.admitted:
        assert len(wide.grants.cpu.entries["w"]["app"]) == 20
        [block] = wide.grants.memory.entries["w"]["app"]
        assert block.nodes.bit_count() == 10
