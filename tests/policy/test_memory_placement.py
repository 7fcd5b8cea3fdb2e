"""Where memory goes once hints are merged: under the hint, widened, or refused with the kubelet's words."""

from __future__ import annotations

import pytest

from agent.model.machine import Machine
from agent.model.numa import node_mask
from agent.model.state import NUMANodeState
from agent.policy.hint_family import Hint
from agent.policy.memory_placement import allocate_memory, check_page_sizes
from agent.policy.memory_static import charge, fresh_machine_state, reserve
from agent.policy.refusal import AllocationError
from tests.nodes import GIB
from tests.policy.cpu_machines import regular

FOUR = Machine(regular(8, numa=4), {node: {"memory": 4 * GIB} for node in range(4)}, {})
ANY = Hint(None, False)


def machine(**held: int) -> dict[int, NUMANodeState]:
    """held: n0=3 puts a block of 3 GiB on node 0, n01=5 one of 5 GiB on nodes 0 and 1."""
    state = fresh_machine_state(reserve(FOUR, {0: {"memory": GIB}}, {"memory": GIB}))
    for nodes, gib in held.items():
        state = charge(state, node_mask(int(digit) for digit in nodes[1:]), "memory", gib * GIB)
    return state


def placed(state: dict[int, NUMANodeState], gib: int, hint: Hint, reusable_gib: int = 0) -> list[int]:
    """The NUMA nodes of the block."""
    spare = {hint.affinity: {"memory": reusable_gib * GIB}} if hint.affinity and reusable_gib else {}
    [block], _ = allocate_memory(state, {"memory": gib * GIB}, hint, spare)
    return [node for node in range(4) if block.nodes >> node & 1]


@pytest.mark.parametrize(
    ("held", "gib", "hint", "nodes"),
    [
        pytest.param({}, 2, Hint(0b100, True), [2], id="where the hint says"),
        pytest.param({}, 2, ANY, [0], id="no hint: its own best"),
        pytest.param({}, 4, ANY, [1], id="the first node that has it"),
        pytest.param({}, 2, Hint(None, True), [0], id="any node, preferred: its own best is too"),
        pytest.param({"n0": 2, "n1": 2, "n2": 2, "n3": 2}, 2, Hint(None, True), [1], id="any node that still has it"),
        pytest.param({"n01": 2, "n23": 2}, 3, ANY, [0, 1], id="its own best, although more than would be needed"),
        pytest.param({}, 6, ANY, [0, 1], id="the fewest nodes"),
        pytest.param({}, 6, Hint(0b10, False), [0, 1], id="a hint without room is extended"),
        pytest.param({}, 6, Hint(0b10, True), [0, 1], id="a preferred one is, to one that is preferred too"),
        pytest.param({}, 4, Hint(0b1, False), [0, 1], id="one that is not may become one that is not"),
        pytest.param({}, 9, Hint(0b1000, False), [0, 1, 3], id="extended by the lowest nodes that do"),
        pytest.param({"n01": 2}, 1, Hint(0b11, False), [0, 1], id="a group takes more"),
    ],
)
def test_memory_goes_where_there_is_room(held: dict[str, int], gib: int, hint: Hint, nodes: list[int]) -> None:
    assert placed(machine(**held), gib, hint) == nodes


@pytest.mark.parametrize(
    ("held", "gib", "hint", "why"),
    [
        pytest.param(
            {},
            16,
            ANY,
            "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available",
            id="nowhere",
        ),
        pytest.param(
            {"n1": 1, "n2": 1, "n3": 1},
            4,
            Hint(0b1, False),
            "failed to find NUMA nodes to extend the current topology hint",
            id="nothing to extend to",
        ),
        pytest.param({"n0": 1}, 1, Hint(0b11, False), "preferred hint violates NUMA node allocation", id="mixed use"),
        pytest.param(
            {"n01": 1}, 1, Hint(0b110, False), "preferred hint violates NUMA node allocation", id="another group"
        ),
        pytest.param(
            {"n1": 1, "n2": 1, "n3": 1}, 4, Hint(None, True), "failed to get the default NUMA affinity", id="preferred"
        ),
    ],
)
def test_a_refusal_is_in_the_kubelets_words(held: dict[str, int], gib: int, hint: Hint, why: str) -> None:
    with pytest.raises(AllocationError) as caught:
        placed(machine(**held), gib, hint)
    assert str(caught.value).startswith(f"Allocate failed due to [memorymanager] {why}")
    assert caught.value.hint


def test_any_node_preferred_is_no_place_that_is_not() -> None:
    with pytest.raises(AllocationError, match="failed to find the default preferred hint"):
        placed(machine(n01=2, n23=2), 3, Hint(None, True))


def test_a_preferred_hint_is_not_extended_to_one_that_is_not() -> None:
    with pytest.raises(AllocationError, match="failed to find the extended preferred hint"):
        placed(machine(), 4, Hint(0b1, True))


def test_the_numbers_of_a_lack_are_told_per_node() -> None:
    with pytest.raises(AllocationError) as caught:
        placed(machine(n1=1), 16, ANY)
    assert caught.value.hint == (
        f"memory: asked {16 * GIB} bytes, free NUMA node 0 {3 * GIB}, NUMA node 1 {3 * GIB}, "
        f"NUMA node 2 {4 * GIB}, NUMA node 3 {4 * GIB}"
    )


def test_a_page_size_that_the_machine_does_not_list_is_refused_by_name() -> None:
    """The kubelet 1.36 crashes on it."""
    with pytest.raises(AllocationError) as caught:
        check_page_sizes(machine(), {"memory": 1, "hugepages-1Gi": GIB})
    assert "no NUMA node has hugepages-1Gi" in str(caught.value)
    assert "this machine lists: memory" in caught.value.hint
    check_page_sizes(machine(), {"hugepages-1Gi": 0})
