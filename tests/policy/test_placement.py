"""How containers run under the grants: CPUs, memory nodes, isolation, CFS quota (KEP-5526, KEP-2625)."""

from __future__ import annotations

from agent.model.isolation import Isolation
from agent.model.pod import Pod
from agent.policy.feature_gates import FeatureGates
from agent.policy.managers import Managers
from agent.policy.placement import Placement, placements
from tests.nodes import GIB, PODS_ON, admitted, named, node
from tests.pods import app, guaranteed, sized
from tests.policy.cpu_machines import regular

BUDGET = sized("cpu=4 memory=4Gi", "cpu=4 memory=4Gi")


def placed(managers: Managers, pod: Pod, gates: FeatureGates | None = None) -> dict[str, Placement]:
    grants = admitted(managers, pod)
    return {each.container: each for each in placements(grants, pod, gates or managers.gates)}


def test_a_container_of_its_own_cpus_has_no_quota_and_one_that_shares_keeps_it() -> None:
    found = placed(
        node(regular(8)), named("p", guaranteed("2"), app("cpu=500m memory=1Gi", "cpu=500m memory=1Gi", "b"))
    )
    own, shared = found["app"], found["b"]
    assert (str(own.cpus), own.isolation, own.quota_disabled) == ("1-2", Isolation.CONTAINER, True)
    assert (shared.assigned, str(shared.cpus), shared.isolation) == (None, "0,3-7", Isolation.HOST)
    assert not shared.quota_disabled


def test_the_gate_keeps_the_quota_of_exclusive_cpus() -> None:
    gates = FeatureGates.of({"DisableCPUQuotaWithExclusiveCPUs": False})
    assert not placed(node(regular(8)), named("p", guaranteed("2")), gates)["app"].quota_disabled


def test_members_of_a_pods_shared_pool_keep_their_quota() -> None:
    """The kubelet 1.36 lifts it, although they share their CPUs with each other."""
    managers = node(regular(8), topology_policy="restricted", topology_scope="pod", feature_gates=PODS_ON)
    found = placed(managers, named("p", guaranteed("2", name="main"), app(name="side"), resources=BUDGET))
    assert (found["main"].isolation, found["main"].quota_disabled) == (Isolation.CONTAINER, True)
    side = found["side"]
    assert (str(side.assigned), side.isolation, side.quota_disabled) == ("3-4", Isolation.POD, False)


def test_in_container_scope_the_rest_of_such_a_pod_runs_in_the_nodes_pool() -> None:
    managers = node(regular(8), topology_policy="restricted", feature_gates=PODS_ON)
    found = placed(managers, named("p", guaranteed("2", name="main"), app(name="side"), resources=BUDGET))
    assert (found["side"].isolation, str(found["side"].cpus)) == (Isolation.HOST, "0,3-7")


def test_memory_nodes_are_those_of_all_blocks() -> None:
    managers = node(regular(8, numa=2), memory_policy="Static", memory_gib=4)
    found = placed(managers, named("p", guaranteed("1", "6Gi")))
    assert found["app"].mems == 0b11
    assert [block.size for block in found["app"].memory] == [6 * GIB]
    assert placed(node(regular(8)), named("p", guaranteed("1")))["app"].mems is None
