"""How much of a promise lies on each NUMA node, where one block spans several."""

from __future__ import annotations

import pytest

from agent.model.state import Blocks, MemoryBlock, MemoryState, MemoryTable, NUMANodeState
from agent.policy.memory_split import Split, cut, pod_splits


def block(size: int, nodes: int, kind: str = "memory") -> MemoryBlock:
    return MemoryBlock(kind, size, nodes)


def node(reserved: int, nodes: int) -> NUMANodeState:
    return NUMANodeState(1, nodes, {"memory": MemoryTable(100, 0, 100, reserved, 100 - reserved)})


def test_single_nodes_come_first_and_groups_share_what_the_tables_have_left() -> None:
    machine = {0: node(30, 0b11), 1: node(20, 0b11), 2: node(5, 0b100)}
    held = {"a": {"app": (block(25, 0b11),)}, "b": {"app": (block(20, 0b11),)}, "c": {"app": (block(5, 0b100),)}}
    state = MemoryState(machine, held, {"d": (block(5, 0b1),)})
    assert pod_splits(state, ["b", "a"]) == {
        "b": {"app": {0: {"memory": 20}}},
        "a": {"app": {0: {"memory": 5}, 1: {"memory": 20}}},
        "c": {"app": {2: {"memory": 5}}},
        "d": {"": {0: {"memory": 5}}},
    }


def test_what_the_tables_no_longer_have_is_shown_where_the_group_ends() -> None:
    state = MemoryState({0: node(10, 0b11), 1: node(0, 0b11)}, {"a": {"app": (block(25, 0b11),)}})
    assert pod_splits(state, ["a"]) == {"a": {"app": {0: {"memory": 10}, 1: {"memory": 15}}}}


def test_a_node_that_has_gone_changes_nothing_for_the_others() -> None:
    state = MemoryState({1: node(10, 0b10)}, {"a": {"app": (block(5, 0b1), block(10, 0b10))}})
    assert pod_splits(state, ["gone", "a"]) == {"a": {"app": {0: {"memory": 5}, 1: {"memory": 10}}}}


@pytest.mark.parametrize(
    ("left", "blocks", "part", "then"),
    [
        pytest.param({0: {"memory": 9}}, (block(4, 1),), {0: {"memory": 4}}, {0: {"memory": 5}}, id="from its node"),
        pytest.param(
            {0: {"memory": 3}, 1: {"memory": 9}},
            (block(5, 0b11),),
            {0: {"memory": 3}, 1: {"memory": 2}},
            {0: {"memory": 0}, 1: {"memory": 7}},
            id="in the order of the nodes",
        ),
        pytest.param(
            {0: {"memory": 3}}, (block(5, 1),), {0: {"memory": 3}}, {0: {"memory": 0}}, id="no more than there is"
        ),
        pytest.param(
            {0: {"memory": 3}}, (block(5, 0b10),), {}, {0: {"memory": 3}}, id="nothing where the bubble is not"
        ),
        pytest.param({0: {"memory": 3}}, (block(5, 1, "huge"),), {}, {0: {"memory": 3}}, id="nothing of another kind"),
        pytest.param(
            {0: {"memory": 9}}, (block(2, 1), block(3, 1)), {0: {"memory": 5}}, {0: {"memory": 4}}, id="blocks add up"
        ),
    ],
)
def test_a_slice_is_cut_out_of_its_bubble(left: Split, blocks: Blocks, part: Split, then: Split) -> None:
    rest = {number: dict(tables) for number, tables in left.items()}
    assert cut(rest, blocks) == part
    assert rest == then
