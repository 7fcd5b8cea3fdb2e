"""Which configurations start. Every refusal with the kubelet's words is in tests/replay/records/startup.jsonl."""

from __future__ import annotations

from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from agent.policy.managers import ManagerConfig, StartError, start
from agent.policy.topology_options import TopologyScope
from tests.nodes import GIB, machine, node
from tests.policy.cpu_machines import drawn, regular


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        pytest.param({}, 0, id="without strict reservation the reserved CPUs are shared"),
        pytest.param({"cpu_options": {"strict-cpu-reservation": "true"}}, 1, id="with it one CPU stays"),
        pytest.param({"min_shared_cpus": 3}, 3, id="as configured"),
        pytest.param(
            {"cpu_options": {"strict-cpu-reservation": "true"}, "min_shared_cpus": 0}, 0, id="none, on purpose"
        ),
        pytest.param({"cpu_policy": "none", "reserved_cpus": CPUSet()}, 0, id="policy none"),
    ],
)
def test_the_minimum_shared_pool(config: dict[str, Any], expected: int) -> None:
    assert node(regular(8), **config).min_shared_cpus == expected


@pytest.mark.parametrize(
    ("policy", "scope", "effective"),
    [
        ("restricted", "pod", TopologyScope.POD),
        ("best-effort", "container", TopologyScope.CONTAINER),
        ("none", "pod", TopologyScope.CONTAINER),
    ],
)
def test_without_alignment_there_is_no_pod_scope(policy: str, scope: str, effective: TopologyScope) -> None:
    managers = node(regular(8), topology_policy=policy, topology_scope=scope)
    assert (managers.effective_scope, managers.aligned) == (effective, policy != "none")


@pytest.mark.parametrize(
    ("version", "gates", "expected"),
    [
        ("1.36", {}, False),
        ("1.37", {}, True),
        ("1.37", {"PodLevelResourceManagers": False}, False),
        ("1.36", {"PodLevelResourceManagers": True}, True),
    ],
)
def test_a_release_sets_what_is_on_by_default(version: str, gates: dict[str, bool], expected: bool) -> None:
    config = ManagerConfig(feature_gates=gates, kubelet_version=version)
    assert start(machine(regular(4)), config).gates.pod_level_resource_managers is expected


def test_reserved_cpus_are_picked_with_the_policys_own_options() -> None:
    threads = regular(8, smt=2)
    packed = node(threads, "", reserved_cpu_millis=1500)
    spread = node(
        threads,
        "",
        reserved_cpu_millis=1500,
        cpu_options={"distribute-cpus-across-cores": "true"},
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )
    assert packed.cpu is not None
    assert spread.cpu is not None
    assert (str(packed.cpu.reserved), str(packed.cpu.reserved_physical)) == ("0,4", "0,4")
    assert (str(spread.cpu.reserved), str(spread.cpu.reserved_physical)) == ("0-1", "0-1,4-5")


def test_the_reservations_sum_is_checked_against_the_nodes() -> None:
    config: dict[str, Any] = {"memory_policy": "Static", "reserved_memory": {0: {"memory": GIB}}}
    with pytest.raises(StartError) as caught:
        node(regular(8), node_reserved_memory={"memory": 2 * GIB}, **config)
    assert caught.value.stage == "memory_manager_new"
    assert "2Gi" in caught.value.hint
    assert node(regular(8), node_reserved_memory={"memory": GIB}, **config).memory is not None


def test_uneven_cores_are_noticed() -> None:
    even, uneven = node(regular(8, smt=2)).cpu, node(drawn("0+4 1+5 2 3")).cpu
    assert even is not None
    assert uneven is not None
    assert (even.uneven_cores, uneven.uneven_cores) == (False, True)


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ({"cpu_policy": "dynamic"}, "none or static"),
        ({"cpu_options": {"fast": "true"}}, "full-pcpus-only"),
        ({"memory_policy": "BestEffort"}, "None or Static"),
        ({"topology_policy": "strict"}, "single-numa-node"),
        ({"feature_gates": {"PodLevelResources": False, "PodLevelResourceManagers": True}}, "enable PodLevelResources"),
        ({"reserved_cpus": CPUSet(), "reserved_cpu_millis": 0}, "reservedSystemCPUs"),
    ],
)
def test_a_refused_start_says_what_to_do(config: dict[str, Any], hint: str) -> None:
    with pytest.raises(StartError) as caught:
        node(regular(8), **config)
    assert hint in caught.value.hint
    assert caught.value.exit_status == 2
