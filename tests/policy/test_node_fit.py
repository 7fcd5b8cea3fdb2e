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
        pytest.param([], named("p", app("ephemeral-storage=9Gi")), None, None, id="disks are the scheduler's business"),
        pytest.param(
            [named("a", guaranteed("8"))],
            named("p", app("cpu=0 memory=1Gi")),
            None,
            None,
            id="none of what is already overdrawn",
        ),
        pytest.param([named(uid) for uid in "ab"], named("p"), None, None, id="as many pods as there may be"),
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
    assert (caught.value.resource, caught.value.lacking) == (
        reason.removeprefix("OutOf"),
        requested + used - capacity,
    )


def test_what_running_pods_request_is_looked_at_anew_once_they_change() -> None:
    new = named("p", guaranteed("1"))
    for size, fits in (("7", False), ("6", True), ("7", False)):
        running = [named("a", guaranteed(size)), named("b")]
        if fits:
            check_node_fit(ROOM, running, new)
        else:
            with pytest.raises(OutOfResource, match="requested: 1000, used: 7000"):
                check_node_fit(ROOM, running, new)


def test_a_pod_that_has_gone_is_not_counted_and_one_that_came_is() -> None:
    new = named("p", guaranteed("1"))
    first, second = named("a", guaranteed("4")), named("b", guaranteed("3"))
    check_node_fit(ROOM, [first], new)
    with pytest.raises(OutOfResource, match="used: 7000"):
        check_node_fit(ROOM, [first, second], new)
    check_node_fit(ROOM, [second], new)
    with pytest.raises(OutOfResource, match="used: 7000"):
        check_node_fit(ROOM, [first, second], named("q", app("cpu=501m")))


def test_a_running_pod_counts_with_the_size_it_has_now() -> None:
    coming = named("p", app("cpu=1"))
    small, large = named("a", guaranteed("1")), named("a", guaranteed("7"))
    check_node_fit(ROOM, [small], coming)
    with pytest.raises(OutOfResource):
        check_node_fit(ROOM, [large], coming)
    check_node_fit(ROOM, [small], coming)
