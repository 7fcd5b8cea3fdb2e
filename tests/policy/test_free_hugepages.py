"""Hugepages that are promised to nobody, and yet not there."""

from __future__ import annotations

import pytest

from agent.model.pod import Pod
from agent.model.quantity import Quantity
from agent.model.state import Epoch, State
from agent.policy.admission import admit
from agent.policy.free_hugepages import (
    FreeHugepages,
    FreeHugepagesRule,
    asks_for_hugepages,
    missing_hugepages,
)
from agent.policy.managers import Managers
from agent.policy.node_fit import NodeCapacity
from agent.policy.observation import Event, Observation, Plan, Wanted
from agent.policy.plan import decide
from agent.policy.restore import fresh
from tests.nodes import GIB, named, node
from tests.pods import app, guaranteed, init
from tests.policy.cpu_machines import regular

HUGE = "cpu=1 memory=1Gi hugepages-2Mi=512Mi"
MIB = 2**20
ROOM = NodeCapacity({}, {name: Quantity.of(2**50) for name in ("cpu", "memory", "hugepages-2Mi", "pods")})


def machine(memory_policy: str = "Static") -> Managers:
    return node(
        regular(8, numa=2), hugepages={"2Mi": 1}, memory_policy=memory_policy, topology_policy="single-numa-node"
    )


def huge(name: str = "p") -> Pod:
    return named(name, app(HUGE, HUGE))


def free(*mib: int) -> dict[int, dict[str, int]]:
    return {index: {"hugepages-2Mi": amount * MIB} for index, amount in enumerate(mib)}


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param(free(1024, 0), [], id="only the pod's own node counts"),
        pytest.param(free(512, 0), [], id="just enough"),
        pytest.param(
            free(510, 1024),
            ["hugepages-2Mi: requested=536870912, really free=534773760 on NUMA nodes 0"],
            id="another node does not help",
        ),
        pytest.param(
            {0: {}, 1: {}},
            ["hugepages-2Mi: requested=536870912, really free=0 on NUMA nodes 0"],
            id="a size the kernel does not count has none free",
        ),
        pytest.param({1: {}}, [], id="a node of which nothing is known misses nothing"),
    ],
)
def test_what_the_kernel_has_free_is_held_against_the_pods_own_nodes(
    there: dict[int, dict[str, int]], expected: list[str]
) -> None:
    managers = machine()
    grants = admit(managers, fresh(managers), huge()).grants
    assert [str(each) for each in missing_hugepages(grants, huge(), there)] == expected


def test_pages_of_an_init_container_are_used_again_and_count_once() -> None:
    managers = machine()
    pod = named("p", init(HUGE, HUGE), app(HUGE, HUGE))
    grants = admit(managers, fresh(managers), pod).grants
    assert missing_hugepages(grants, pod, free(512, 0)) == ()


def test_without_the_memory_manager_all_nodes_together_must_have_them() -> None:
    managers = machine("None")
    grants = admit(managers, fresh(managers), huge()).grants
    assert missing_hugepages(grants, huge(), free(256, 256)) == ()
    assert [each.free for each in missing_hugepages(grants, huge(), free(256, 255))] == [511 * MIB]


def test_only_pods_that_want_hugepages_are_worth_a_look() -> None:
    assert asks_for_hugepages(huge())
    assert not asks_for_hugepages(named("p", guaranteed("1")))
    assert not asks_for_hugepages(named("p", app("hugepages-2Mi=0", "hugepages-2Mi=0")))


def look(rule: FreeHugepagesRule | None, *mib: int) -> Plan:
    managers = machine()
    facts = None if rule is None else FreeHugepages(rule, free(*mib))
    state = State(Epoch(0, "0" * 16), grants=fresh(managers))
    return decide(managers, ROOM, state, Observation([Wanted(huge())], hugepages=facts), {})


def test_by_rule_such_a_pod_is_admitted_admitted_with_a_warning_or_refused() -> None:
    [silent] = look(None).decisions
    assert (silent.event, silent.reason) == (Event.ADMITTED, "")
    [ignored] = look(FreeHugepagesRule.IGNORE, 0, 1024).decisions
    assert (ignored.event, ignored.reason, ignored.message) == (Event.ADMITTED, "", "")
    [warned] = look(FreeHugepagesRule.WARN, 0, 1024).decisions
    assert (warned.event, warned.reason) == (Event.ADMITTED, "HugepagesInUse")
    assert "requested=536870912, really free=0 on NUMA nodes 0" in warned.message
    plan = look(FreeHugepagesRule.REFUSE, 0, 1024)
    [refused] = plan.decisions
    assert (refused.event, refused.reason) == (Event.REFUSED, "UnexpectedAdmissionError")
    assert refused.message == (
        "Allocate failed due to not enough free hugepages, hugepages-2Mi: requested=536870912, really free=0 "
        "on NUMA nodes 0, which is unexpected"
    )
    assert "free_hugepages" in refused.hint
    assert plan.state.grants == fresh(machine())


def test_with_enough_free_nothing_is_said() -> None:
    for rule in FreeHugepagesRule:
        [decision] = look(rule, GIB // MIB, 0).decisions
        assert (decision.event, decision.reason) == (Event.ADMITTED, "")
