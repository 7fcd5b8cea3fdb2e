"""Which nodes the memory manager takes when the merged hint does not say, or does not suffice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.state import NUMANodeState
from agent.policy.hint_family import Hint
from agent.policy.memory_affinity import best_memory_hint, breaks_groups, has_free
from tests.policy import reference_merge
from tests.policy.hint_machines import GIB, memory_machines, memory_node, requests, reusable_memory

HELD = {
    0: memory_node(0, 1, allocatable=4, assignments=1),
    1: memory_node(1, 4, assignments=1, group=(1, 2)),
    2: memory_node(2, 4, assignments=1, group=(1, 2)),
    3: memory_node(3, 4),
    4: memory_node(4, 4),
}


@pytest.mark.parametrize(
    ("request_gib", "containing", "expected"),
    [
        pytest.param(1, 0, Hint(0b1, True), id="the lowest node that has room"),
        pytest.param(4, 0, Hint(0b1000, True), id="a node that has more"),
        pytest.param(5, 0, Hint(0b110, True), id="a group"),
        pytest.param(4, 0b10000, Hint(0b10000, True), id="the mask itself where it suffices"),
        pytest.param(6, 0b10000, Hint(0b11000, True), id="a wider mask"),
        pytest.param(6, 0b1, None, id="a node used alone is in no wider mask"),
        pytest.param(9, 0, None, id="nowhere"),
    ],
)
def test_the_best_hint_that_contains_a_mask(request_gib: int, containing: int, expected: Hint | None) -> None:
    assert best_memory_hint(HELD, {"memory": request_gib * GIB}, {}, containing=containing) == expected


def test_nothing_requested_has_no_best_hint() -> None:
    assert best_memory_hint(HELD, {}, {}) is None


def test_a_larger_machine_is_searched_without_listing() -> None:
    machine = {node: memory_node(node, 4, assignments=node < 3) for node in range(34)}
    assert best_memory_hint(machine, {"memory": 67 * GIB}, {}) == Hint(0b1_1111_1111_1111_1111 << 3, True)
    assert best_memory_hint(machine, {"memory": 7 * GIB}, {}, containing=1 << 33) == Hint(1 << 33 | 1 << 3, True)


@pytest.mark.parametrize(
    ("mask", "broken"), [(0b1, False), (0b11, True), (0b110, False), (0b1110, True), (0b11000, False), (0b10, False)]
)
def test_a_node_is_used_alone_or_in_one_group(mask: int, broken: bool) -> None:
    assert breaks_groups(HELD, mask) is broken


def test_what_is_free_counts_over_all_nodes_of_the_mask() -> None:
    assert has_free(HELD, {"memory": 8 * GIB}, 0b110)
    assert not has_free(HELD, {"memory": 8 * GIB, "hugepages-2Mi": GIB}, 0b110)
    assert has_free(HELD, {}, 0)


@given(memory_machines(6), requests(), st.data())
def test_the_best_hint_is_that_of_plain_enumeration(
    machine: dict[int, NUMANodeState], request: dict[str, int], data: st.DataObject
) -> None:
    reusable = data.draw(reusable_memory(len(machine)))
    containing = data.draw(st.one_of(st.just(0), st.integers(0, (1 << len(machine)) - 1)))
    listed = next(iter(reference_merge.memory_hints(machine, request, reusable).values()), ())
    expected = reference_merge.best_memory_hint(listed, containing)
    assert best_memory_hint(machine, request, reusable, containing=containing) == expected
