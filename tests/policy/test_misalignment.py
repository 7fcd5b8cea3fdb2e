"""What a refusal of the topology policy says: the numbers, the rule, and what would help."""

from __future__ import annotations

from agent.policy.admission import admit
from agent.policy.device_hints import DeviceHints
from agent.policy.hint_family import Hint
from agent.policy.verdict import Verdict
from tests.nodes import GIB, admitted, named, node
from tests.pods import guaranteed, init
from tests.policy.cpu_machines import regular

ONE = "cpu=1 memory=1Gi"


def refused(verdict: Verdict) -> Verdict:
    assert verdict.reason == "TopologyAffinityError"
    assert verdict.message.startswith("Resources cannot be allocated with Topology locality: ")
    return verdict


def spread_out(policy: str, ask: str = "4") -> Verdict:
    """BL-23: three NUMA nodes of six CPUs, two free in each."""
    managers = node(regular(18, numa=3), topology_policy=policy)
    held = named("held", *(guaranteed(count, name=f"c{index}") for index, count in enumerate(("3", "4", "4"))))
    return refused(admit(managers, admitted(managers, held), named("p", guaranteed(ask))))


def test_the_message_shows_free_beside_capacity_for_every_numa_node() -> None:
    verdict = spread_out("restricted")
    assert verdict.message.endswith(
        "cpu: asked 4; NUMA node 0 has 2 free of 6, NUMA node 1 has 2 free of 6, NUMA node 2 has 2 free of 6"
    )
    assert verdict.rule == (
        "topologyManagerPolicy restricted wants as few NUMA nodes as the request needs with everything on them free (1); "
        "cpu has no such place"
    )
    assert verdict.hint.startswith("at most 2 of cpu would fit on one NUMA node now")


def test_single_numa_node_says_that_it_wants_one_node() -> None:
    assert "every resource on one and the same NUMA node; cpu has no such place" in spread_out("single-numa-node").rule
    assert spread_out("single-numa-node", "5").hint.startswith("at most 2 of cpu")


def test_a_request_wider_than_a_node_is_told_so_under_single_numa_node() -> None:
    managers = node(regular(8, numa=2), topology_policy="single-numa-node")
    verdict = refused(admit(managers, admitted(managers), named("p", guaranteed("6"))))
    assert verdict.hint == "no NUMA node is large enough; ask for less, or use topologyManagerPolicy: restricted"


def anchored() -> Verdict:
    """BL-25."""
    managers = node(regular(16, numa=2), topology_policy="single-numa-node")
    pods = [named(name, init(ONE, ONE, name="setup"), guaranteed("6")) for name in ("one", "two")]
    return refused(admit(managers, admitted(managers, pods[0]), pods[1]))


def test_an_init_container_that_ties_the_pod_down_is_named_with_what_would_help() -> None:
    hint = anchored().hint
    assert hint.startswith("the CPUs of init container setup are used again, which ties the pod to NUMA node 0")
    assert "topologyManagerScope: pod" in hint
    assert "too large for that node" in hint


def test_resources_that_fit_only_apart_are_named_together() -> None:
    """CPUs are free on node 1 only, memory on node 0 only."""
    managers = node(regular(8, numa=2), memory_gib=4, memory_policy="Static", topology_policy="single-numa-node")
    fillers = (named("cpus", guaranteed("3", "1Mi")), named("bytes", guaranteed("1", "3Gi")))
    verdict = refused(admit(managers, admitted(managers, *fillers), named("p", guaranteed("2", "2Gi"))))
    assert verdict.rule.endswith("the same ones for all; cpu and memory have none in common")
    assert f"memory: asked {2 * GIB}; NUMA node 0 has" in verdict.message
    assert verdict.hint.startswith("ask for less of cpu or memory")


def test_more_than_is_free_in_all_is_told_so() -> None:
    managers = node(regular(8, numa=2), topology_policy="restricted")
    verdict = refused(admit(managers, admitted(managers, named("a", guaranteed("2"))), named("p", guaranteed("6"))))
    assert verdict.hint == "5 of cpu are free in all: ask for less, or end other pods"


def test_many_numa_nodes_are_summed_up() -> None:
    managers = node(regular(40, numa=20), topology_policy="single-numa-node")
    verdict = refused(admit(managers, admitted(managers), named("p", guaranteed("3"))))
    assert "NUMA node 7 has 2 free of 2, 12 more nodes 24 free" in verdict.message


def test_a_provider_without_a_place_is_named() -> None:
    managers = node(regular(8, numa=2), topology_policy="restricted")
    devices = DeviceHints({"app": {"example.com/nic": (Hint(0b11, False),)}})
    verdict = admit(managers, admitted(managers), named("p", guaranteed("2")), devices)
    assert verdict.rule.endswith("example.com/nic has no such place")
