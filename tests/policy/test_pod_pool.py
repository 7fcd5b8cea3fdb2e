"""A pod's bubble: slices for some containers, a shared pool for the rest, and what must not become empty (KEP-5526)."""

from __future__ import annotations

import pytest

from agent.model.cpuset import CPUSet
from agent.model.pod import Container
from agent.model.state import Blocks
from agent.policy.cpu_assignment import NotEnoughCPUs
from agent.policy.pod_pool import check_shared_pool, slice_cpus, slice_memory
from agent.policy.refusal import EmptyPodSharedPoolError
from tests.nodes import named, node
from tests.pods import app, init, sidecar
from tests.policy.cpu_machines import regular

BUBBLE = CPUSet.parse("1-4")
LONG = "sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers"
INIT = "pod has shared init containers but no cpus available for them"


@pytest.mark.parametrize(
    ("containers", "slices", "refused"),
    [
        pytest.param([app(name="a"), app(name="b")], {"a": 4}, LONG, id="an app that shares finds nothing"),
        pytest.param([app(name="a"), sidecar(name="s")], {"a": 4}, LONG, id="a sidecar that shares neither"),
        pytest.param([app(name="a"), app(name="b")], {"a": 3, "b": 1}, None, id="nobody shares: exactly full is fine"),
        pytest.param([app(name="a"), app(name="b")], {"a": 3}, None, id="one CPU is left"),
        pytest.param([init(name="i"), app(name="a")], {"i": 4}, None, id="an init container gives everything back"),
        pytest.param([sidecar(name="s"), init(name="i")], {"s": 4}, INIT, id="an init container finds none"),
        pytest.param(
            [init(name="i"), sidecar(name="s")], {"s": 4}, None, id="an init container before the sidecar does"
        ),
        pytest.param([app(name="a"), app(name="b")], {"a": 9}, LONG, id="more than the budget"),
        pytest.param(
            [sidecar(name="s"), init(name="i"), app(name="a")], {"s": 3, "a": 1}, None, id="one CPU beside the sidecar"
        ),
        pytest.param(
            [sidecar(name="s"), sidecar(name="t"), init(name="i")],
            {"s": 2, "t": 2},
            INIT,
            id="two sidecars hold it all",
        ),
        pytest.param(
            [sidecar(name="s"), sidecar(name="t"), init(name="i")],
            {"t": 3},
            None,
            id="a sidecar that shares holds none",
        ),
    ],
)
def test_who_shares_must_find_something(
    containers: list[Container], slices: dict[str, int], refused: str | None
) -> None:
    if refused is None:
        check_shared_pool("cpu", tuple(containers), slices, 4)
        return
    with pytest.raises(EmptyPodSharedPoolError) as caught:
        check_shared_pool("cpu", tuple(containers), slices, 4)
    assert str(caught.value) == f"pod rejected, {refused}"
    assert caught.value.reason == "EmptyPodSharedPoolError"


def test_the_message_names_the_resource() -> None:
    with pytest.raises(EmptyPodSharedPoolError, match="leaving no memory for shared containers"):
        check_shared_pool("memory", (app(name="a"), app(name="b")), {"a": 4}, 4)


@pytest.mark.parametrize(
    ("containers", "slices", "expected"),
    [
        pytest.param([app(name="a"), app(name="b")], {"a": 2}, "a=1-2 b=3-4", id="slice and pool"),
        pytest.param([app(name="a")], {"a": 2}, "a=1-2", id="what is left over is idle"),
        pytest.param([app(name="a"), app(name="b")], {}, "a=1-4 b=1-4", id="nobody has a slice"),
        pytest.param(
            [sidecar(name="s"), init(name="i"), app(name="a"), app(name="b")],
            {"s": 1, "i": 3, "a": 2},
            "s=1 i=2-4 a=2-3 b=4",
            id="a sidecar's slice is gone, an init container's comes back",
        ),
        pytest.param(
            [init(name="i"), sidecar(name="s"), init(name="j"), app(name="a")],
            {"s": 1, "a": 2},
            "i=1-4 s=1 j=2-4 a=2-3",
            id="a shared init container runs on what is there then",
        ),
        pytest.param(
            [sidecar(name="t"), app(name="a")], {"a": 3}, "t=4 a=1-3", id="a shared sidecar has the final pool"
        ),
    ],
)
def test_cpus_inside_a_bubble(containers: list[Container], slices: dict[str, int], expected: str) -> None:
    manager = node(regular(8)).cpu
    assert manager is not None
    pod = named("p", *containers)
    cut = slice_cpus(manager, pod, slices, BUBBLE)
    assert " ".join(f"{container.name}={cut[container.name]}" for container in pod.containers) == expected


def test_slices_beyond_the_bubble_are_refused() -> None:
    manager = node(regular(8)).cpu
    assert manager is not None
    with pytest.raises(NotEnoughCPUs, match="requested=3, available=1"):
        slice_cpus(manager, named("p", app(name="a"), app(name="b")), {"a": 3, "b": 3}, BUBBLE)


def sizes(entries: dict[str, Blocks]) -> dict[str, dict[str, int]]:
    return {name: {block.type: block.size for block in blocks} for name, blocks in entries.items()}


def test_memory_follows_the_same_order_on_the_pods_nodes() -> None:
    pod = named("p", sidecar(name="s"), init(name="i"), app(name="a"), app(name="b"))
    slices = {"s": {"memory": 10}, "a": {"memory": 30, "hugepages-2Mi": 4}}
    entries = slice_memory(pod, slices, {"memory": 100, "hugepages-2Mi": 8}, 0b10)
    assert sizes(entries) == {
        "s": {"memory": 10},
        "i": {"memory": 90, "hugepages-2Mi": 8},
        "a": {"memory": 30, "hugepages-2Mi": 4},
        "b": {"memory": 60, "hugepages-2Mi": 4},
    }
    assert {block.nodes for blocks in entries.values() for block in blocks} == {0b10}
