"""Everything behind a verdict: what was asked, what every NUMA node has, who holds it, what would fit, who would have to go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.model.pod import Pod
from agent.model.state import Grants
from agent.policy.admission import admit
from agent.policy.managers import Managers
from agent.policy.reasons import MAX_CANDIDATES, Derivation, Nearest, derive
from agent.policy.verdict import Verdict
from tests.nodes import GIB, admitted, named, node
from tests.pods import app, guaranteed
from tests.policy.cpu_machines import regular

TWO = regular(16, numa=2)


def derived(managers: Managers, running: Sequence[Pod], pod: Pod) -> Derivation:
    grants = admitted(managers, *running)
    owners = {each.uid: f"default/{each.name}" for each in running}

    def judge(held: Grants, changed: Pod) -> Verdict:
        return admit(managers, held, changed)

    return derive(managers, grants, pod, admit(managers, grants, pod), owners, judge)


def ones(count: int, cpus: str = "1") -> list[Pod]:
    return [named(f"p{number}", guaranteed(cpus, "1Mi")) for number in range(count)]


def test_every_numa_node_is_shown_with_capacity_free_and_holders() -> None:
    managers = node(TWO, memory_policy="Static", topology_policy="single-numa-node", memory_gib=8)
    held = [named("a", guaranteed("3", "2Gi")), named("b", guaranteed("6", "1Gi"))]
    cpu, memory = derived(managers, held, named("p", guaranteed("4", "3Gi"))).resources
    assert [(n.node, n.capacity, n.free, n.held) for n in cpu.nodes] == [
        (0, 7, 4, {"default/a": 3}),
        (1, 8, 2, {"default/b": 6}),
    ]
    assert (cpu.asked, cpu.free, memory.asked) == (4, 6, 3 * GIB)
    assert [(n.node, n.free // GIB, dict(n.held)) for n in memory.nodes] == [
        (0, 5, {"default/a": 2 * GIB}),
        (1, 7, {"default/b": GIB}),
    ]


@pytest.mark.parametrize(
    ("policy", "running", "ask", "nearest"),
    [
        pytest.param("single-numa-node", ones(12), "5", Nearest("app", "cpu", 5, 3), id="the largest that fits"),
        pytest.param("none", ones(15), "2", None, id="nothing is left"),
        pytest.param("none", [], "40", Nearest("app", "cpu", 40, 15), id="the whole node"),
    ],
)
def test_the_nearest_request_that_would_fit(policy: str, running: list[Pod], ask: str, nearest: Nearest | None) -> None:
    managers = node(TWO, topology_policy=policy)
    found = derived(managers, running, named("p", guaranteed(ask)))
    assert not found.admitted
    assert found.nearest == nearest


def test_the_nearest_amount_of_memory_where_cpus_are_not_the_trouble() -> None:
    managers = node(regular(8), memory_policy="Static", memory_gib=8)
    nearest = derived(managers, [], named("p", guaranteed("1", "9Gi"))).nearest
    assert nearest == Nearest("app", "memory", 9 * GIB, 7 * GIB)


def test_pods_of_which_any_one_would_have_to_go() -> None:
    managers = node(regular(8))
    running = [named("small", guaranteed("1")), named("large", guaranteed("4")), named("also", guaranteed("2"))]
    found = derived(managers, running, named("p", guaranteed("2")))
    assert found.pods_in_the_way == ("default/large", "default/also")
    assert found.all_in_the_way == ()


def test_where_no_single_one_is_enough_the_newest_that_do_together() -> None:
    managers = node(regular(8))
    found = derived(managers, ones(7), named("p", guaranteed("3")))
    assert found.pods_in_the_way == ()
    assert found.all_in_the_way == ("default/p6", "default/p5", "default/p4")


def test_nobody_is_named_in_vain() -> None:
    """Only what is on one NUMA node together helps."""
    managers = node(TWO, topology_policy="single-numa-node")
    running = [named(f"p{n}", guaranteed("3", "1Mi")) for n in range(4)]  # two on each node
    found = derived(managers, running, named("p", guaranteed("7")))
    assert found.all_in_the_way == ("default/p3", "default/p2")


def test_a_pod_larger_than_the_node_needs_nobody_to_go() -> None:
    found = derived(node(regular(8)), ones(3), named("p", guaranteed("8")))
    assert (found.pods_in_the_way, found.all_in_the_way) == ((), ())
    assert found.nearest == Nearest("app", "cpu", 8, 4)


@pytest.mark.parametrize(
    ("policy", "pod", "rule"),
    [
        ("none", named("p", guaranteed("2")), "topologyManagerPolicy none asks for no alignment"),
        ("restricted", named("p", guaranteed("2")), "topologyManagerPolicy restricted found a preferred place"),
        ("best-effort", named("p", guaranteed("7")), "topologyManagerPolicy best-effort found no preferred place"),
        ("none", named("p", guaranteed("20")), "what is taken must be free"),
        ("none", named("a", guaranteed("2")), "a pod that holds its grants keeps them"),
    ],
)
def test_the_rule_that_decided_is_told_in_words(policy: str, pod: Pod, rule: str) -> None:
    managers = node(TWO, topology_policy=policy)
    running = [named("a", guaranteed("4")), named("b", guaranteed("4"))]
    assert derived(managers, running, pod).rule.startswith(rule)


def test_a_shared_pod_has_nothing_to_be_refused_for() -> None:
    found = derived(node(TWO), [], named("p", app("cpu=1", "cpu=2")))
    assert found.admitted
    assert [report.asked for report in found.resources] == [0]


def test_the_work_of_explaining_is_bounded() -> None:
    managers = node(regular(512))
    running = ones(MAX_CANDIDATES + 50, "2")
    tried = 0
    grants = admitted(managers, *running)
    pod = named("p", guaranteed("511"))

    def judge(held: Grants, changed: Pod) -> Verdict:
        nonlocal tried
        tried += 1
        return admit(managers, held, changed)

    derive(managers, grants, pod, admit(managers, grants, pod), {each.uid: each.name for each in running}, judge)
    assert tried <= 2 * MAX_CANDIDATES + 30
