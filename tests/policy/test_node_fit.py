"""The last check of an admission: what the node has left for pods."""

from __future__ import annotations

import pytest

from agent.model.pod import Pod
from agent.policy.node_fit import NodeCapacity, OutOfResource, check_node_fit
from tests.nodes import named
from tests.pods import amounts, app, guaranteed, init, sized

ROOM = NodeCapacity(
    amounts("cpu=8 memory=16Gi pods=3"),
    amounts("cpu=7500m memory=15Gi hugepages-2Mi=64Mi ephemeral-storage=1Gi pods=3"),
)


@pytest.mark.parametrize(
    ("running", "pod", "reason", "numbers"),
    [
        pytest.param([], named("p", guaranteed("7500m")), None, None, id="exactly full"),
        pytest.param([], named("p", guaranteed("8")), "OutOfcpu", (8000, 0, 7500), id="cpu in millicores"),
        pytest.param(
            [named("a", guaranteed("7"))],
            named("p", app("cpu=501m")),
            "OutOfcpu",
            (501, 7000, 7500),
            id="beside others",
        ),
        pytest.param(
            [named("a", guaranteed("1", "10Gi"))],
            named("p", app("memory=6Gi")),
            "OutOfmemory",
            (6 * 2**30, 10 * 2**30, 15 * 2**30),
            id="memory in bytes",
        ),
        pytest.param(
            [],
            named("p", app("hugepages-2Mi=128Mi")),
            "OutOfhugepages-2Mi",
            (128 * 2**20, 0, 64 * 2**20),
            id="hugepages",
        ),
        pytest.param([], named("p", app("example.com/nic=1")), "OutOfexample.com/nic", (1, 0, 0), id="unknown devices"),
        pytest.param([], named("p", app("example.com/nic=0")), None, None, id="none of an unknown device"),
        pytest.param([named(uid) for uid in "abc"], named("p"), "OutOfpods", (1, 3, 3), id="pods"),
        pytest.param(
            [named("p", guaranteed("7"))], named("p", guaranteed("7")), None, None, id="a pod is not in its own way"
        ),
        pytest.param(
            [],
            named("p", init("cpu=7"), init("cpu=6"), app("cpu=2")),
            None,
            None,
            id="init containers run one after the other",
        ),
        pytest.param(
            [],
            named("p", app("cpu=1"), resources=sized("cpu=8", "cpu=8")),
            "OutOfcpu",
            (8000, 0, 7500),
            id="the pod's own request counts",
        ),
    ],
)
def test_what_fits(running: list[Pod], pod: Pod, reason: str | None, numbers: tuple[int, int, int] | None) -> None:
    if reason is None:
        check_node_fit(ROOM, running, pod)
        return
    with pytest.raises(OutOfResource) as caught:
        check_node_fit(ROOM, running, pod)
    assert caught.value.reason == reason
    assert numbers is not None
    requested, used, capacity = numbers
    assert str(caught.value) == (
        f"Node didn't have enough resource: {reason.removeprefix('OutOf')}, requested: {requested}, used: {used}, "
        f"capacity: {capacity}"
    )
    assert f"{max(capacity - used, 0)} of" in caught.value.hint
