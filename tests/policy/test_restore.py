"""Grants over a restart: what running pods hold stays; pools and tables are fitted round it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from agent.model.machine import Machine
from agent.model.state import Grants
from agent.policy.admission import admit
from agent.policy.managers import ManagerConfig, Managers, start
from agent.policy.memory_static import MachineState
from agent.policy.removal import container_started, remove
from agent.policy.restore import fresh, refit
from tests.nodes import GIB, PODS_ON, admitted, cpus_of, memory_of, named, node
from tests.pods import app, guaranteed, init, sized
from tests.policy.cpu_machines import regular

T8 = regular(8, numa=2)
ONE = "cpu=1 memory=3Gi"


def running(managers: Managers) -> Grants:
    """Two pods: one with CPUs and memory, one whose init container has ended."""
    pods = (named("a", guaranteed("2", "1Gi")), named("b", init(ONE, ONE), guaranteed("1", "2Gi")))
    return container_started(admitted(managers, *pods), pods[1], "app")


def static(**config: Any) -> Managers:
    return node(T8, **{"memory_policy": "Static", "topology_policy": "best-effort", **config})


def test_under_the_same_managers_nothing_changes() -> None:
    grants = running(static())
    assert refit(static(), grants) == grants


@pytest.mark.parametrize(
    ("config", "shared"),
    [
        pytest.param({"cpu_options": {"strict-cpu-reservation": "true"}}, "4-7", id="reserved CPUs leave the pool"),
        pytest.param({"reserved": "0,7"}, "0,4-7", id="more are reserved: they stay shared"),
        pytest.param({"reserved": "1"}, "0,4-7", id="a held one is reserved now: its pod keeps it"),
        pytest.param({"topology_policy": "single-numa-node"}, "0,4-7", id="a stricter policy moves nobody"),
    ],
)
def test_the_shared_pool_is_what_nobody_holds(config: dict[str, Any], shared: str) -> None:
    grants = running(static())
    after = refit(static(**config), grants)
    assert str(after.cpu.default) == shared
    assert after.cpu.entries == grants.cpu.entries
    assert after.memory.entries == grants.memory.entries


def test_new_cpus_join_the_pool() -> None:
    grants = admitted(node(regular(4)), named("h", guaranteed("2")))
    assert cpus_of(refit(node(regular(8)), grants)) == "h/app=1-2 shared=0,3-7"


def test_while_a_policy_is_off_running_pods_keep_what_they_hold() -> None:
    before = static()
    grants = running(before)
    off = start(before.machine, ManagerConfig())
    without = refit(off, grants)
    assert cpus_of(without) == "a/app=1-2 b/init=3 b/app=3 shared="
    assert memory_of(without, "b") == "app=2@0"
    assert without.memory.machine == {}
    ended = remove(off, without, "a")
    assert cpus_of(ended) == "b/init=3 b/app=3 shared="
    assert refit(before, without) == grants
    assert refit(before, ended) == remove(before, grants, "a")


def test_while_a_policy_is_off_a_pod_keeps_the_bubble_that_it_holds() -> None:
    before = static(memory_gib=8, topology_scope="pod", feature_gates=PODS_ON)
    pod = named("b", guaranteed("1"), app(name="side"), resources=sized("cpu=3 memory=4Gi", "cpu=3 memory=4Gi"))
    grants = admitted(before, pod)
    without = refit(start(before.machine, ManagerConfig()), grants)
    assert (without.cpu.pod_entries, without.memory.pod_entries) == (grants.cpu.pod_entries, grants.memory.pod_entries)
    assert refit(before, without) == grants


def test_pages_of_a_size_that_is_new_on_the_machine_are_held_by_nobody() -> None:
    grants = running(static())
    more = node(T8, hugepages={"2Mi": 1}, memory_policy="Static", topology_policy="best-effort")
    table = refit(more, grants).memory.machine[0].memory["hugepages-2Mi"]
    assert (table.reserved, table.free, table.allocatable) == (0, GIB, GIB)


def test_smaller_memory_leaves_nothing_free_and_says_where_too_much_is_held() -> None:
    before = static(memory_gib=8)
    grants = admitted(before, named("a", guaranteed("1", "6Gi")))
    machine = Machine(T8, {0: {"memory": 4 * GIB}, 1: {"memory": 9 * GIB}}, {})
    after = refit(start(machine, config_of(before)), grants)
    assert oversubscribed(after.memory.machine) == [(0, "memory", 3 * GIB)]
    assert after.memory.machine[0].memory["memory"].free == 0
    assert after.memory.machine[1].memory["memory"].free == 9 * GIB
    assert oversubscribed(grants.memory.machine) == []


def oversubscribed(machine: MachineState) -> list[tuple[int, str, int]]:
    """(NUMA node, resource, bytes) for every table that holds more than is allocatable: after memory went away."""
    return [
        (node, resource, table.reserved - table.allocatable)
        for node, state in sorted(machine.items())
        for resource, table in sorted(state.memory.items())
        if table.reserved > table.allocatable
    ]


def config_of(managers: Managers) -> ManagerConfig:
    assert managers.cpu is not None
    return ManagerConfig(
        cpu_policy="static",
        reserved_cpus=managers.cpu.reserved,
        memory_policy="Static",
        reserved_memory={0: {"memory": GIB}},
    )


def test_a_split_over_two_nodes_survives_although_others_came_and_went() -> None:
    """BL-39: the per-node numbers depend on history, so they are kept and not worked out anew."""
    managers = static(memory_gib=22)
    grants = admitted(managers, named("p1", guaranteed("1", "24Gi")), named("p2", guaranteed("1", "2Gi")))
    grants = admitted(managers, named("p3", guaranteed("1", "1Gi")), grants=remove(managers, grants, "p2"))
    reserved = {node: row.memory["memory"].reserved for node, row in grants.memory.machine.items()}
    again = refit(managers, grants)
    assert {node: row.memory["memory"].reserved for node, row in again.memory.machine.items()} == reserved
    assert sum(reserved.values()) == 25 * GIB


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_memory_bubble_comes_back_with_its_containers(policy: str) -> None:
    """BL-03: one container's blocks are not held against the whole pod's request."""
    managers = static(memory_gib=8, topology_policy=policy, topology_scope="pod", feature_gates=PODS_ON)
    pod = named(
        "c",
        guaranteed("1", name="a"),
        guaranteed("1", name="b"),
        resources=sized("cpu=2 memory=2Gi", "cpu=2 memory=2Gi"),
    )
    grants = admitted(managers, pod)
    assert memory_of(grants, "c") == "a=1@0 b=1@0"
    verdict = admit(managers, refit(managers, grants), pod)
    assert verdict.admitted
    assert verdict.grants == grants


def test_a_pod_that_shares_is_admitted_again_like_a_new_one() -> None:
    managers = static()
    pod = named("s", app("cpu=1", ""))
    assert admit(managers, refit(managers, fresh(managers)), pod).grants == fresh(managers)


def test_held_cpus_are_slices_and_bubbles() -> None:
    managers = node(regular(8), topology_policy="restricted", topology_scope="pod", feature_gates=PODS_ON)
    bubble = named("b", guaranteed("1"), resources=sized("cpu=3 memory=2Gi", "cpu=3 memory=2Gi"))
    grants = admitted(managers, bubble, named("a", guaranteed("2")))
    assert grants.cpu.held == CPUSet.parse("1-5")
