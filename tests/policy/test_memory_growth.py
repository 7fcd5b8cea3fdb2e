"""Memory that grows and shrinks: on the nodes held, on more only where these lack it, never where it would break a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import bits
from agent.model.state import MemoryBlock, nodes_of
from agent.policy.hint_family import CapacityHints, Hint
from agent.policy.hints import memory_family
from agent.policy.memory_affinity import has_free
from agent.policy.memory_growth import bytes_of, containing, growth_hints, replace_blocks, staying_hints
from agent.policy.memory_static import MachineState
from agent.policy.refusal import AllocationError
from tests.policy.hint_machines import GIB, families, memory_machines, memory_node, requests

BLOCKS = (MemoryBlock("hugepages-2Mi", GIB, 0b10), MemoryBlock("memory", 4 * GIB, 0b101))
UNALIGNED = Hint(None, False)
FOUR = {node: memory_node(node, free) for node, free in enumerate((4, 8, 4, 8))}  # nobody else on it
NEIGHBOUR = {**FOUR, 1: memory_node(1, 4, allocatable=8, assignments=1)}  # one pod has a part of node 1
GROUP = {  # one pod has a part of nodes 0 and 1 together
    **FOUR,
    0: memory_node(0, 4, assignments=1, group=(0, 1)),
    1: memory_node(1, 4, assignments=1, group=(0, 1)),
}


def test_the_nodes_and_bytes_of_blocks() -> None:
    assert nodes_of(BLOCKS) == 0b111
    assert nodes_of(()) == 0
    assert bytes_of({"app": (*BLOCKS, MemoryBlock("memory", GIB, 0b1))}, "app") == {
        "hugepages-2Mi": GIB,
        "memory": 5 * GIB,
    }
    assert bytes_of({"app": BLOCKS}, "other") == {}


@pytest.mark.parametrize(
    ("machine", "gib", "held", "floor", "affinity", "nodes"),
    [
        pytest.param(FOUR, 2, 0b11, 0b01, None, 0b01, id="a shrink returns to the nodes of the first admission"),
        pytest.param(FOUR, 6, 0b11, 0b01, None, 0b11, id="and stays where these lack room"),
        pytest.param(FOUR, 2, 0b11, 0, None, 0b11, id="and stays where no first admission is known"),
        pytest.param(NEIGHBOUR, 2, 0b1100, 0b11, None, 0b1100, id="and stays where the first nodes serve another now"),
        pytest.param(GROUP, 2, 0b1100, 0b1, None, 0b1100, id="and stays where the first node is in a group now"),
        pytest.param(FOUR, 4, 0b01, 0b01, Hint(0b11, False), 0b01, id="a growth stays on the nodes held while it can"),
        pytest.param(FOUR, 6, 0b01, 0b01, Hint(0b1001, False), 0b1001, id="then the hint's nodes are added"),
        pytest.param(FOUR, 6, 0b01, 0b01, Hint(0b1000, False), 0b1001, id="and never those held left out"),
        pytest.param(FOUR, 6, 0b01, 0b01, UNALIGNED, 0b11, id="without a hint as few more as will do"),
        pytest.param(FOUR, 10, 0b100, 0b100, UNALIGNED, 0b110, id="and these need not be the first of the machine"),
        pytest.param(NEIGHBOUR, 6, 0b01, 0b01, UNALIGNED, 0b101, id="round a node that serves another alone"),
        pytest.param(FOUR, 20, 0b01, 0b01, Hint(0b11, False), 0b1011, id="a hint that is too small is extended"),
        pytest.param(NEIGHBOUR, 6, 0b1, 0b1, Hint(0b11, False), None, id="a hint that breaks a group is no way"),
        pytest.param(FOUR, 6, 0b110001, 0b1, UNALIGNED, 0b11, id="nodes that are gone are left"),
        pytest.param(FOUR, 2, 0b10000, 0b10000, None, 0b1, id="also when there is nothing else"),
        pytest.param(FOUR, 25, 0b01, 0b01, UNALIGNED, None, id="more than the machine has"),
    ],
)  # fmt: skip
def test_where_resized_memory_goes(
    machine: MachineState, gib: int, held: int, floor: int, affinity: Hint | None, nodes: int | None
) -> None:
    request = {"memory": gib * GIB}
    if nodes is None:
        with pytest.raises(AllocationError, match="failed to find NUMA nodes to extend"):
            replace_blocks(machine, request, held, floor, affinity)
        return
    blocks, _ = replace_blocks(machine, request, held, floor, affinity)
    assert blocks == (MemoryBlock("memory", gib * GIB, nodes),)


def test_a_preferred_hint_must_not_become_one_that_is_not() -> None:
    """Two containers of one pod are aligned together; one of them alone would fit the large node, where it is not."""
    machine = {0: memory_node(0, 4), 1: memory_node(1, 8), 2: memory_node(2, 32)}
    request = {"memory": 6 * GIB}
    with pytest.raises(AllocationError, match="failed to find the extended preferred hint"):
        replace_blocks(machine, request, 0b1, 0b1, Hint(0b1, True))
    assert replace_blocks(machine, request, 0b1, 0b1, Hint(0b1, False))[0][0].nodes == 0b11


@given(memory_machines(5), requests(), st.integers(1, 31), st.integers(0, 31), st.sampled_from([None, False, True]))
def test_resized_memory_has_room_and_breaks_no_group(
    machine: MachineState, request: dict[str, int], held: int, other: int, preferred: bool | None
) -> None:
    """preferred: of the hint on the nodes `other`; None for a shrink, with `other` as the nodes of the first admission."""
    here = (1 << len(machine)) - 1
    affinity = None if preferred is None else Hint(other & here, preferred)
    try:
        blocks, after = replace_blocks(machine, request, held, other, affinity)
    except AllocationError:
        held &= here
        assert not held or not has_free(machine, request, held) or is_apart(machine, held)
        return
    nodes = nodes_of(blocks)
    assert {block.type: block.size for block in blocks} == request
    assert has_free(machine, request, nodes)
    assert not is_apart(machine, nodes)
    assert affinity is None or not held & here & ~nodes
    for node, state in after.items():
        taken = {kind: machine[node].memory[kind].free - table.free for kind, table in state.memory.items()}
        assert all(size >= 0 for size in taken.values())
        assert nodes >> node & 1 or not any(taken.values())


def is_apart(machine: MachineState, nodes: int) -> bool:
    """Whether one of these nodes serves other pods, and not in this very group."""
    return any(machine[node].assignments and machine[node].cells != nodes for node in bits(nodes))


# --- hints --------------------------------------------------------------------------------------------------------------


@given(families(4), st.integers(0, 15))
def test_the_hints_that_contain_the_nodes_held_are_those_of_the_family_that_do(
    family: CapacityHints, held: int
) -> None:
    narrowed = containing(family, held)
    expected = [mask for mask in range(1, 16) if family.admits(mask) and not held & ~mask]
    if isinstance(narrowed, tuple):
        assert not expected
    else:
        assert [mask for mask in range(1, 16) if narrowed.admits(mask)] == expected
        assert [narrowed.prefers(mask) for mask in expected] == [family.prefers(mask) for mask in expected]


def test_where_a_growing_request_can_go() -> None:
    request = {"memory": 6 * GIB, "hugepages-2Mi": 0}
    hints = growth_hints(NEIGHBOUR, request, 0b100)
    assert hints is not None
    family = memory_family(NEIGHBOUR, request, {})
    assert family is not None
    assert hints == dict.fromkeys(request, containing(family, 0b100))
    assert growth_hints(NEIGHBOUR, {"memory": 30 * GIB}, 0b100) == {"memory": ()}
    assert growth_hints(NEIGHBOUR, {"memory": 6 * GIB}, 0b10) == {"memory": ()}  # others hold that node, alone


@pytest.mark.parametrize(
    ("gib", "held", "hints"),
    [
        pytest.param(6, 0b10, {"memory": (Hint(0b10, True),)}, id="one node, and one could do"),
        pytest.param(6, 0b101, {"memory": (Hint(0b101, False),)}, id="two nodes, and one could do"),
        pytest.param(12, 0b101, {"memory": (Hint(0b101, True),)}, id="two nodes, and one could not do"),
        pytest.param(30, 0b1, {"memory": (Hint(0b1, True),)}, id="more than there is now: where it is is best"),
        pytest.param(6, 0, None, id="nothing is held"),
    ],
)
def test_memory_that_stays_says_where_it_is(gib: int, held: int, hints: object) -> None:
    assert staying_hints(FOUR, {"memory": gib * GIB}, held) == hints
