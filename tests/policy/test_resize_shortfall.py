"""What a pinned pod lacks to grow, in numbers: anywhere on the node, or where a strict policy wants it."""

from __future__ import annotations

from typing import Any

import pytest

from agent.model.pod import Pod
from agent.model.state import Shortfall
from agent.policy.managers import Managers
from agent.policy.removal import remove
from agent.policy.resize_shortfall import pinned_shortfall
from agent.policy.restore import refit
from tests.nodes import GIB, admitted, cpus_of, named, node
from tests.pods import app, guaranteed, init
from tests.policy.cpu_machines import regular

NONE: dict[str, Any] = {}
BEST: dict[str, Any] = {"topology_policy": "best-effort"}
RESTRICTED: dict[str, Any] = {"topology_policy": "restricted"}
SINGLE: dict[str, Any] = {"topology_policy": "single-numa-node"}
POD: dict[str, Any] = {"topology_scope": "pod"}


def p(cpus: int, memory: str = "1Gi") -> Pod:
    return named("p", guaranteed(str(cpus), memory))


def pair(one: int, two: int) -> Pod:
    """Two containers with CPUs and one that shares."""
    return named("p", guaranteed(str(one)), guaranteed(str(two), name="two"), guaranteed("500m", name="side"))


def q(cpus: int, memory: str = "1Gi") -> Pod:
    return named("q", guaranteed(str(cpus), memory))


def two(memory: str) -> Pod:
    """Two containers with memory of their own, and an init container that has as much before them."""
    own = f"cpu=1 memory={memory}"
    return named("p", init(own, own), guaranteed("1", memory), guaranteed("1", memory, "two"))


def lacks(managers: Managers, *pods: Pod) -> tuple[Shortfall, ...]:
    """What the pod lacks to grow to the last of these, beside the others."""
    return pinned_shortfall(managers, admitted(managers, *pods[:-1]), pods[-1])


@pytest.mark.parametrize(
    ("cpus", "numa", "config", "pods", "expected"),
    [
        pytest.param(8, 1, NONE, (p(2), q(4), p(3)), (), id="all there"),
        pytest.param(8, 1, NONE, (p(2), q(4), p(5)), (Shortfall("cpu", 2000),), id="anywhere"),
        pytest.param(8, 2, BEST, (p(2), q(1), p(6)), (), id="no policy wants them on one node"),
        pytest.param(8, 2, SINGLE, (p(2), q(1), p(6)), (Shortfall("cpu", 4000, 0b1),), id="on its own node"),
        pytest.param(8, 2, RESTRICTED, (p(2), q(1), p(6)), (), id="on as many nodes as it takes"),
        pytest.param(8, 2, SINGLE, (p(2), q(1), p(3)), (Shortfall("cpu", 1000, 0b1),), id="one on its own node"),
        pytest.param(
            16, 2, {**RESTRICTED, **POD}, (pair(2, 2), q(2), pair(3, 3)), (Shortfall("cpu", 1000, 0b1),),
            id="a pod as a whole",
        ),
        pytest.param(16, 2, RESTRICTED, (pair(2, 2), q(2), pair(3, 3)), (), id="each of its containers alone"),
        pytest.param(
            16, 2, {**RESTRICTED, **POD},
            (named("p", init("cpu=3 memory=1Gi", "cpu=3 memory=1Gi"), guaranteed("2")), q(5),
             named("p", init("cpu=3 memory=1Gi", "cpu=3 memory=1Gi"), guaranteed("3"))), (),
            id="what its init container had is there for it",
        ),
        pytest.param(24, 3, RESTRICTED, (p(4), q(6), p(14)), (), id="on the emptiest other node"),
        pytest.param(
            24, 3, RESTRICTED, (p(4), q(6), p(16)), (Shortfall("cpu", 1000, 0b101),), id="on its own and the emptiest node"
        ),
    ],
)  # fmt: skip
def test_the_cpus_that_a_pod_lacks(
    cpus: int, numa: int, config: dict[str, Any], pods: tuple[Pod, ...], expected: tuple[Shortfall, ...]
) -> None:
    assert lacks(node(regular(cpus, numa=numa), **config), *pods) == expected


def test_its_own_node_is_no_other_one_however_much_is_free_there() -> None:
    """Node 1 has seven CPUs more, node 2 two: both are needed."""
    managers = node(regular(24, numa=3), **RESTRICTED)
    held = admitted(managers, named("x", guaranteed("7")), named("y", guaranteed("8")), named("z", guaranteed("6")))
    held = admitted(managers, p(1), grants=remove(managers, held, "y"))
    assert cpus_of(held) == "p/app=8 x/app=1-7 z/app=16-21 shared=0,9-15,22-23"
    assert pinned_shortfall(managers, held, p(10)) == ()


def test_cpus_that_lie_on_more_nodes_than_the_policy_of_now_wants_are_not_counted() -> None:
    before, now = (node(regular(12, numa=3), **config) for config in (BEST, SINGLE))
    assert cpus_of(admitted(before, p(7))) == "p/app=1-7 shared=0,8-11"
    assert pinned_shortfall(now, refit(now, admitted(before, p(7))), p(8)) == ()


@pytest.mark.parametrize(
    ("config", "pods", "expected"),
    [
        pytest.param(SINGLE, (p(1, "10Gi"), p(1, "16Gi")), (Shortfall("memory", GIB, 0b1),), id="on its own node"),
        pytest.param(RESTRICTED, (p(1, "10Gi"), p(1, "16Gi")), (Shortfall("memory", GIB, 0b1),), id="one node could have it"),
        pytest.param(
            BEST, (p(1, "10Gi"), q(1, "10Gi"), p(1, "24Gi")), (Shortfall("memory", 3 * GIB),), id="on all nodes together"
        ),
        pytest.param(RESTRICTED, (p(1, "10Gi"), p(1, "24Gi")), (), id="on as many nodes as it takes"),
        pytest.param(
            {**BEST, **POD}, (p(1, "10Gi"), q(1, "10Gi"), p(1, "24Gi")), (Shortfall("memory", 3 * GIB),), id="as a pod"
        ),
        pytest.param(SINGLE, (p(1, "10Gi"), p(1, "10Gi")), (), id="nothing more"),
        pytest.param(SINGLE, (p(1, "10Gi"), p(1, "15Gi")), (), id="all that there is"),
        pytest.param(
            SINGLE, (p(1, "10Gi"), q(1, "10Gi"), p(1, "16Gi")), (Shortfall("memory", GIB, 0b1),),
            id="no node has room for it: its own lacks least",
        ),
        pytest.param(
            SINGLE, (two("5Gi"), q(1, "3Gi"), two("8Gi")), (Shortfall("memory", GIB, 0b1),) * 2, id="each container"
        ),
        pytest.param(
            {**SINGLE, **POD}, (two("5Gi"), q(1, "3Gi"), two("8Gi")), (Shortfall("memory", 4 * GIB, 0b1),), id="the pod"
        ),
    ],
)  # fmt: skip
def test_the_memory_that_a_pod_lacks(
    config: dict[str, Any], pods: tuple[Pod, ...], expected: tuple[Shortfall, ...]
) -> None:
    assert lacks(node(regular(8, numa=2), memory_policy="Static", memory_gib=16, **config), *pods) == expected


def test_a_pod_that_shares_lacks_nothing_of_this_kind() -> None:
    managers = node(regular(8, numa=2), memory_policy="Static", **SINGLE)
    shares = named("p", app("cpu=1", "cpu=9"))
    assert lacks(managers, shares, named("p", app("cpu=100", "cpu=200"))) == ()
