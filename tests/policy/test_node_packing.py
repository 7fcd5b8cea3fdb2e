"""Which NUMA nodes several families can have in common: the same as trying who leaves out what, one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent.model.numa import node_ids
from agent.policy import node_packing
from agent.policy.hint_family import Found
from agent.policy.node_packing import Budget, Packing, Slack

NODES = 5
ONE_EACH = dict.fromkeys(range(NODES), (1,))
FIVE_EACH = Slack((5, 5), {0: (1, 3), 2: (0, 2), 3: (1, 4), 4: (4, 2)})
OTHER_COSTS = {0: (2, 0), 1: (2, 0), 3: (3, 2), 4: (4, 2)}


@st.composite
def slacks(draw: st.DrawFn) -> list[Slack]:
    """Of one to three families with one or two needs; some nodes cost nothing, some have to stay, some families are alike."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        needs = draw(st.integers(1, 2))
        amounts = st.tuples(*[st.integers(0, 4)] * needs)
        costs = {node: draw(amounts) for node in range(NODES) if draw(st.integers(0, 4))}
        found.append(Slack(draw(st.tuples(*[st.integers(0, 9)] * needs)), costs))
    return [*found, found[0]] if len(found) < 3 and draw(st.booleans()) else found


def can_be_left_out(families: list[Slack], nodes: tuple[int, ...]) -> bool:
    """Whether each of these nodes can be left out by some family, within what each can do without."""
    for owners in product(range(len(families)), repeat=len(nodes)):
        shares = [
            [node for node, owner in zip(nodes, owners, strict=True) if owner == rank] for rank in range(len(families))
        ]
        if all(affords(slack, share) for slack, share in zip(families, shares, strict=True)):
            return True
    return False


def masks_in_common(families: list[Slack], nodes: int) -> list[int]:
    """Every intersection that there is."""
    return [
        mask for mask in range(2**NODES) if not mask & ~nodes and can_be_left_out(families, node_ids(nodes & ~mask))
    ]


def affords(slack: Slack, nodes: list[int]) -> bool:
    if any(node not in slack.costs for node in nodes):
        return False
    return all(sum(slack.costs[node][need] for node in nodes) <= limit for need, limit in enumerate(slack.limits))


@example([Slack((1,), ONE_EACH), Slack((1,), ONE_EACH)], 0b11111)
@given(slacks(), st.integers(1, 2**NODES - 1))
def test_a_mask_is_common_if_all_outside_it_can_be_left_out(families: list[Slack], nodes: int) -> None:
    packing = Packing(nodes, families, Budget())
    packing.start(3**NODES)
    for mask in range(2**NODES):
        if not mask & ~nodes:
            assert packing.allows(mask) is can_be_left_out(families, node_ids(nodes & ~mask))


@given(slacks(), st.integers(1, 2**NODES - 1))
def test_the_lowest_mask_of_each_size_is_found(families: list[Slack], nodes: int) -> None:
    common = masks_in_common(families, nodes)
    for size in range(nodes.bit_count() + 1):
        found = Packing(nodes, families, Budget()).lowest(size)
        assert found.mask == min((mask for mask in common if mask.bit_count() == size), default=None)
        assert found.exact


@example([Slack((5,), {1: (3,), 3: (4,), 4: (1,)}), FIVE_EACH], 0b11111, (1, 2))
@example([Slack((5,), {2: (4,), 4: (2,)}), replace(FIVE_EACH, costs=OTHER_COSTS)], 0b11111, (1, 2))
@given(slacks(), st.integers(1, 2**NODES - 1), st.sampled_from([(1,), (2,), (1, 2)]))
def test_a_search_that_follows_few_ways_side_by_side_never_calls_proven_what_is_not_so(
    families: list[Slack], nodes: int, beams: tuple[int, ...]
) -> None:
    common = masks_in_common(families, nodes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(node_packing, "BEAMS", beams)
        for size in range(nodes.bit_count() + 1):
            found = Packing(nodes, families, Budget()).lowest(size)
            of_size = [mask for mask in common if mask.bit_count() == size]
            if found.exact:
                assert found.mask == min(of_size, default=None)
            else:
                assert found.mask is None or found.mask in of_size


def test_what_a_spent_budget_has_found_is_not_proven() -> None:
    families = [Slack((3,), ONE_EACH), Slack((1,), ONE_EACH)]
    assert Packing(0b11111, families, Budget(0)).lowest(1) == Found(None, exact=False)
    answers = {Packing(0b11111, families, Budget(steps)).lowest(1) for steps in range(1, 200)}
    assert answers == {Found(None, exact=False), Found(0b00001)}
