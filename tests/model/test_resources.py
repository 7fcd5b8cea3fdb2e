"""Resource lists: sums, maxima, and what containers need together."""

from __future__ import annotations

import pytest
from hypothesis import given

from agent.model.pod import Container, ContainerKind
from agent.model.resources import add, aggregate, is_pod_level_resource, maximum
from tests.pods import amounts, app, containers, init, sidecar, spelt


def test_a_sum_and_a_maximum_name_what_any_list_names() -> None:
    one, other = amounts("cpu=1 memory=1Gi"), amounts("cpu=500m hugepages-2Mi=0")
    assert spelt(add(one, other)) == "cpu=1500m hugepages-2Mi=0 memory=1Gi"
    assert spelt(maximum(one, other)) == "cpu=1 hugepages-2Mi=0 memory=1Gi"
    assert add() == maximum() == {}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([app("cpu=1"), app("cpu=2")], "cpu=3", id="apps run together"),
        pytest.param([init("cpu=5"), init("cpu=4"), app("cpu=1")], "cpu=5", id="init containers run one by one"),
        pytest.param([init("cpu=2"), app("cpu=3")], "cpu=3", id="and before the apps"),
        pytest.param([sidecar("cpu=1"), app("cpu=2")], "cpu=3", id="sidecars stay"),
        pytest.param(
            [sidecar("cpu=1"), init("cpu=4"), app("cpu=1")], "cpu=5", id="an init container runs beside earlier ones"
        ),
        pytest.param([init("cpu=4"), sidecar("cpu=1"), app("cpu=1")], "cpu=4", id="but not beside later ones"),
        pytest.param(
            [init("cpu=4 memory=1"), app("cpu=1 memory=2")], "cpu=4 memory=2", id="each resource has its moment"
        ),
        pytest.param([init("cpu=0"), app()], "cpu=0", id="zero is not absent"),
        pytest.param([], "", id="no containers"),
    ],
)
def test_containers_need_what_their_busiest_moment_needs(parts: list[Container], expected: str) -> None:
    assert spelt(aggregate((part.kind, part.resources.requests) for part in parts)) == expected


@given(containers)
def test_no_moment_of_a_pod_exceeds_the_aggregate(parts: tuple[Container, ...]) -> None:
    total = aggregate((part.kind, part.resources.requests) for part in parts)
    running: list[Container] = []
    for part in parts:
        for name, amount in add(*(each.resources.requests for each in running), part.resources.requests).items():
            assert amount <= total[name]
        if part.kind is not ContainerKind.INIT:
            running.append(part)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("cpu", True), ("memory", True), ("hugepages-1Gi", True), ("ephemeral-storage", False), ("a.b/c", False)],
)
def test_pod_level_resources_are_cpu_memory_and_hugepages(name: str, expected: bool) -> None:
    assert is_pod_level_resource(name) is expected
