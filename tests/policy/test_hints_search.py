"""Tables and packing give the same answer, both the one of plain enumeration; packing stays small on large machines."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.numa import NodeMask, node_mask
from agent.policy import hint_intersections, hint_narrowest, hint_preferred, hint_search
from agent.policy.hint_family import CapacityHints, Found, Hint, Need, Offer, ProviderHints
from agent.policy.hint_search import CommonMasks, narrowest, narrowest_size
from agent.policy.hint_tables import TableSearch, Universe, hint_table, intersections, numbers, table_of
from agent.policy.node_packing import Budget, BudgetExhaustedError
from agent.policy.numa_distances import NUMADistances, numa_distances
from agent.policy.topology_manager import merge
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName
from tests.policy.hint_machines import distances, families, flat_distances, offers, socket_distances


def everything(nodes: int) -> NodeMask:
    return (1 << nodes) - 1


def drawn_distances(data: st.DataObject, nodes: int) -> NUMADistances | None:
    if data.draw(st.booleans()):
        return None
    return numa_distances(everything(nodes), data.draw(distances(nodes)))


@pytest.fixture(scope="session")
def most_nodes(pytestconfig: pytest.Config) -> int:
    """How many nodes the properties are tried on."""
    return 11 if pytestconfig.getoption("--long") else 7


@given(st.data())
def test_packing_finds_what_tables_find(most_nodes: int, data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, most_nodes))
    given_offers, closest = data.draw(offers(nodes)), drawn_distances(data, nodes)
    tables = TableSearch(given_offers, everything(nodes), everything(nodes), closest)
    preferred = hint_preferred.best_preferred(given_offers, everything(nodes), closest)
    common = hint_intersections.best_intersection(given_offers, everything(nodes), closest)
    assert preferred.exact
    assert common.exact
    assert preferred == tables.best_preferred()
    assert common == tables.best_intersection()


@given(st.data())
def test_the_narrowest_mask_is_found_either_way(most_nodes: int, data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, most_nodes))
    hints = data.draw(families(nodes))
    containing = data.draw(st.sampled_from([0, 0, 1, hints.nodes & -hints.nodes]))
    listed = [mask for mask in range(1, 1 << nodes) if hints.admits(mask) and not containing & ~mask]
    best = min(listed, key=lambda mask: (mask.bit_count(), mask), default=None)
    assert hint_narrowest.narrowest(hints, containing).mask == best
    assert narrowest(hints, containing).mask == best
    if not containing:
        assert narrowest_size(hints) == (best.bit_count() if best else 0, True)


ONLY_1 = CapacityHints(0b01, (), 1)


@pytest.mark.parametrize(
    ("given_offers", "preferred", "common"),
    [
        pytest.param(
            [Offer((Hint(0b1, True), Hint(0b10, False))), Offer(CapacityHints(0b11, (), 1))], 0b1, 0b1,
            id="a listed hint that is preferred",
        ),
        pytest.param(
            [Offer((Hint(0b1, False), Hint(0b10, True))), Offer(ONLY_1)], None, 0b1, id="not one that is not",
        ),
        pytest.param(
            [Offer(CapacityHints(0b11, (), 1)), Offer(CapacityHints(0b1, (), 1, others=(0b10,)))], 0b1, 0b1,
            id="the lower of one by the rule and a listed one",
        ),
        pytest.param(
            [Offer(CapacityHints(0b111, (), 9, sockets={0: 0b10, 2: 0b10}, socket_count=1))], 0b1, 0b1,
            id="a node in no socket beside aligned ones",
        ),
        pytest.param([Offer((Hint(0b1000001, True), Hint(0b10, True)))], 0b1, 0b1, id="nodes that the machine has not"),
        pytest.param(
            [Offer((Hint(0b1000000, True), Hint(0b10, True)))], 0b10, 0b10, id="a hint of nothing but such nodes"
        ),
        pytest.param(
            [Offer((Hint(0b11, False), Hint(0b110, False))), Offer((Hint(0b101, False), Hint(0b111, False)))],
            None, 0b11, id="an overlap as wide as the wider of the narrowest",
        ),
        pytest.param([Offer((Hint(0b111, False),)), Offer((Hint(0b1, False),))], None, 0b1, id="narrower where it must"),
        pytest.param(
            [Offer((), anywhere=True), Offer((Hint(0b110, False),), anywhere=True)], None, 0b110, id="any node is all"
        ),
        pytest.param([Offer((Hint(0b110, True), Hint(0b1, True)))], 0b1, 0b1, id="the narrower of two that are preferred"),
        pytest.param(
            [Offer((Hint(0b11, False),), anywhere=True, anywhere_preferred=True)], None, 0b11,
            id="a mask that nobody prefers where any node would be preferred",
        ),
        pytest.param(
            [Offer((Hint(0b1, True),)), Offer((Hint(0b10, False),), anywhere=True, anywhere_preferred=True)], 0b1, 0b1,
            id="one is enough to prefer it where the others prefer any node",
        ),
        pytest.param(
            [Offer(CapacityHints(0b110, (Need({1: 1, 2: 1}, 2),), 2, others=(0b011,)))], 0b011, 0b011,
            id="a listed one that is lower than one by the rule",
        ),
    ],
)  # fmt: skip
def test_both_ways_find_the_mask_in_small(
    given_offers: list[Offer], preferred: NodeMask | None, common: NodeMask
) -> None:
    named = [offer for offer in given_offers if offer.hints]
    tables = TableSearch(named, 0b111, 0b1000111, None)
    assert (tables.best_preferred().mask, tables.best_intersection().mask) == (preferred, common)
    assert hint_preferred.best_preferred(named, 0b111, None).mask == preferred
    assert hint_intersections.best_intersection(named, 0b111, None).mask == common


def test_a_preferred_hint_of_nodes_that_the_machine_has_not_is_none() -> None:
    offers_ = [Offer((Hint(0b1000000, True),))]
    assert hint_preferred.best_preferred(offers_, 0b111, None) == Found(None)
    assert TableSearch(offers_, 0b111, 0b1000111, None).best_preferred() == Found(None)


@pytest.mark.parametrize(
    ("given_offers", "common"),
    [
        pytest.param(
            [
                Offer((Hint(0b000000011, False), Hint(0b001111100, False))),
                Offer((Hint(0b110000000, False), Hint(0b001111100, False))),
            ],
            0b001111100,
            id="wider than the wider need where all narrower ones miss each other",
        ),
        pytest.param(
            [
                Offer((Hint(0b000000011, False), Hint(0b000011100, False))),
                Offer((Hint(0b110000000, False), Hint(0b000011100, False))),
            ],
            0b000011100,
            id="wider by one node",
        ),
        pytest.param(
            [Offer((Hint(0b10000, False),)), Offer(CapacityHints(0b1001101, (Need({3: 8}, 8),), 1))],
            None,
            id="a listed mask and a family that miss each other",
        ),
        pytest.param(
            [
                Offer((Hint(0b000110000, False), Hint(0b011000011, False))),
                Offer(CapacityHints(everything(9), (Need(dict.fromkeys(range(9), 1), 2),), 1)),
            ],
            0b000000011,
            id="the lowest nodes of a mask that also has high ones",
        ),
        pytest.param(
            [
                Offer(CapacityHints(0b110101010, (Need({1: 3}, 3),), 4, others=(0b100001001,))),
                Offer(CapacityHints(everything(9), (Need({0: 2, 1: 1, 4: 1, 5: 1}, 3),), 4)),
            ],
            0b000001001,
            id="a part of a listed mask that is lower than what the rules have in common",
        ),
        pytest.param(
            [
                Offer(
                    CapacityHints(everything(9), (Need({1: 1, 4: 5, 6: 9, 8: 8}, 6),), 4, others=(0b11001010, 0b110110))
                ),
                Offer(CapacityHints(everything(9), (Need({4: 1, 7: 1}, 2),), 3)),
            ],
            0b000000011,
            id="nodes that nobody needs, where they are the lowest",
        ),
    ],
)
def test_both_ways_find_the_intersection_on_nine_nodes(given_offers: list[Offer], common: NodeMask | None) -> None:
    assert TableSearch(given_offers, everything(9), everything(9), None).best_intersection().mask == common
    assert hint_intersections.best_intersection(given_offers, everything(9), None) == Found(common)


@pytest.mark.parametrize(
    ("listed", "least", "common"),
    [
        pytest.param([0b1001, 0b110000], 1, 0b110000, id="of two masks"),
        pytest.param([0b1001, 0b111000000], 2, 0b011000000, id="a part of a wider one"),
        pytest.param([0b1001, 0b110000], 3, 0b110000, id="narrower ones than are aimed at"),
    ],
)
def test_both_ways_find_the_closest_intersection(listed: list[NodeMask], least: int, common: NodeMask) -> None:
    """Nine nodes in three sockets, and a family of all masks of so many nodes."""
    close = numa_distances(everything(9), socket_distances(9, 3))
    family = CapacityHints(everything(9), (Need(dict.fromkeys(range(9), 1), least),), 1)
    pair = [Offer(tuple(Hint(mask, False) for mask in listed)), Offer(family)]
    assert TableSearch(pair, everything(9), everything(9), close).best_intersection() == Found(common)
    assert hint_intersections.best_intersection(pair, everything(9), close) == Found(common)


def test_the_narrowest_mask_with_a_node_that_adds_nothing() -> None:
    hints = CapacityHints(0b111, (Need({2: 5}, 5),), 1)
    assert hint_narrowest.narrowest(hints, 0b1) == Found(0b101, True)
    assert hint_narrowest.narrowest(hints, 0) == Found(0b100, True)


def test_of_nodes_that_the_machine_has_the_closest_count() -> None:
    near = numa_distances(0b111, {0: (10, 30, 20), 1: (30, 10, 11), 2: (20, 11, 10)})
    listed = [Offer((Hint(0b1000011, True), Hint(0b1000110, True)))]
    assert TableSearch(listed, 0b111, 0b1000111, near).best_preferred().mask == 0b110
    assert hint_preferred.best_preferred(listed, 0b111, near).mask == 0b110


@given(st.sets(st.integers(0, 31)), st.sets(st.integers(0, 31)))
def test_a_table_of_intersections_has_the_intersection_of_every_pair(one: set[int], other: set[int]) -> None:
    universe = Universe.of(0b11111)
    table = intersections(table_of(one, universe), table_of(other, universe), universe)
    assert set(numbers(table, universe)) == {a & b for a, b in product(one, other)}


@given(families(5))
def test_a_table_holds_the_masks_that_the_family_admits(hints: CapacityHints) -> None:
    universe = Universe.of(0b11111)
    assert numbers(hint_table(hints, universe), universe) == [m for m in range(1, 32) if hints.admits(m)]


def test_masks_of_one_family_reach_beyond_the_nodes_of_the_other() -> None:
    anchored = CapacityHints(0b111, (Need({2: 1}, 1),), 1)
    search = CommonMasks([Offer(anchored), Offer(CapacityHints(0b011, (), 1))], 0b111, None)
    assert search.best_intersection() == Found(0b001)
    assert search.best_preferred() == Found(None)


@pytest.mark.parametrize("required", [0b0100, 0b1000])
def test_a_table_is_empty_where_a_node_is_required_that_the_family_has_not(required: NodeMask) -> None:
    assert hint_table(CapacityHints(0b11, (), 1, required=required), Universe.of(0b111)) == 0


def test_gaps_in_the_node_ids_do_not_change_the_order_of_masks() -> None:
    universe = Universe.of(1 << 0 | 1 << 8 | 1 << 9)
    masks = [1 << 8, 1 << 9 | 1, 1 << 9 | 1 << 8]
    assert [universe.mask(number) for number in numbers(table_of(masks, universe), universe)] == masks


def uniform(nodes: int, amount: int, at_least: int, preferred: int) -> CapacityHints:
    return CapacityHints(everything(nodes), (Need(dict.fromkeys(range(nodes), amount), at_least),), preferred)


@pytest.mark.parametrize("nodes", [16, 34, 64])
def test_on_a_large_machine_the_lowest_nodes_that_suit_all_are_proven_to_be_best(nodes: int) -> None:
    half = nodes // 2
    cpu, memory = uniform(nodes, 8, 8 * half, half), uniform(nodes, 31, 31 * half - 5, half)
    for closest in (None, numa_distances(everything(nodes), socket_distances(nodes, 2))):
        search = CommonMasks([Offer(cpu), Offer(memory), Offer(memory)], everything(nodes), closest)
        found = search.best_preferred()
        assert (found.mask, found.exact) == (everything(half), True)


@pytest.mark.parametrize("nodes", [16, 34, 64])
def test_on_a_large_machine_masks_that_only_overlap_are_proven_too(nodes: int) -> None:
    cpu = CapacityHints(everything(nodes), (Need({nodes - 1: 4, nodes - 2: 4}, 4),), 1)
    memory = CapacityHints(everything(nodes) ^ 1, (Need(dict.fromkeys(range(1, nodes), 2), 6),), 3)
    found = CommonMasks([Offer(cpu), Offer(memory)], everything(nodes), None).best_intersection()
    # three nodes, as memory needs three; its mask may hold nodes 4 and up only because the CPUs' mask leaves them out
    assert (found.mask, found.exact) == (0b1110, True)


def test_far_nodes_are_left_out_where_distance_counts() -> None:
    rows = socket_distances(16, 4)
    cpu = CapacityHints(everything(16), (Need({node: 1 for node in range(16) if node not in (1, 2)}, 3),), 3)
    search = CommonMasks([Offer(cpu)], everything(16), numa_distances(everything(16), rows))
    assert search.best_preferred().mask == 0b111_0000
    assert CommonMasks([Offer(cpu)], everything(16), None).best_preferred().mask == 0b11001
    assert search.best_intersection().mask == 0b111_0000


def test_on_a_large_machine_a_socket_aligned_mask_is_found() -> None:
    """Three nodes are needed: all of one socket, or some of each of two; not nodes 3, 4, 5, nor 0, 1, 2."""
    topology = {node: 1 << node // 4 for node in range(16)}
    cpu = CapacityHints(everything(16), (Need(dict.fromkeys(range(3, 16), 2), 5),), 1, sockets=topology, socket_count=1)
    found = CommonMasks([Offer(cpu)], everything(16), None).best_preferred()
    assert (found.mask, found.exact) == (0b111_0000, True)
    two = CapacityHints(everything(16), (Need(dict.fromkeys(range(16), 2), 5),), 1, sockets=topology, socket_count=2)
    assert CommonMasks([Offer(two)], everything(16), None).best_preferred() == Found(0b1_0011)
    few = CapacityHints(everything(16), (Need({3: 2, 4: 2}, 4),), 2, sockets=topology, socket_count=1)
    assert CommonMasks([Offer(few)], everything(16), None).best_preferred() == Found(0b1_1000), "as few as are needed"


def test_a_single_node_held_by_itself_is_weighed_with_the_rule_of_the_others() -> None:
    memory = CapacityHints(everything(16) ^ 1, (Need(dict.fromkeys(range(1, 16), 1), 2),), 1, others=(1,))
    cpu = uniform(16, 1, 2, 2)
    found = CommonMasks([Offer(cpu), Offer(memory)], everything(16), None).best_intersection()
    assert (found.mask, found.exact) == (0b110, True)


def awkward(nodes: int) -> list[Offer]:
    """Amounts without any pattern in three needs at once, tight: what packing cannot prove within its budget."""
    needs = [
        Need({node: node * 7919 * factor % 8191 for node in range(nodes)}, 4000 * nodes // 2) for factor in (1, 31, 577)
    ]
    one = CapacityHints(everything(nodes), tuple(needs[:2]), nodes // 2)
    other = CapacityHints(everything(nodes), tuple(needs[1:]), nodes // 2 + 1)
    return [Offer(one), Offer(other), Offer(other)]


def test_when_the_budget_ends_the_answer_says_so_and_is_still_an_intersection() -> None:
    offers_ = awkward(64)
    found = CommonMasks(offers_, everything(64), None).best_intersection()
    assert not found.exact
    assert found.mask is not None
    equal = [Offer(replace(o.hints, preferred_size=23)) for o in offers_ if isinstance(o.hints, CapacityHints)]
    assert not CommonMasks(equal, everything(64), None).best_preferred().exact
    # every node outside can be left out by one of them: together they hold at least what is in the mask
    assert any(isinstance(o.hints, CapacityHints) and o.hints.admits(everything(64)) for o in offers_)


def test_the_merged_hint_says_that_the_budget_ended_although_nothing_can_be_preferred() -> None:
    said: list[ProviderHints] = [{"r": offer.hints} for offer in awkward(64)]
    policy = TopologyPolicy(TopologyPolicyName.BEST_EFFORT)
    assert not merge(everything(64), {}, policy, [*said, {"impossible": ()}]).exact


def test_within_twelve_nodes_nothing_is_left_unproven() -> None:
    search = CommonMasks(awkward(12), everything(12), numa_distances(everything(12), flat_distances(12)))
    assert search.best_preferred().exact
    assert search.best_intersection().exact


@pytest.mark.parametrize(("nodes", "proven"), [(9, True), (12, True), (13, False)])
def test_where_packing_proves_nothing_tables_answer_for_up_to_twelve_nodes(
    monkeypatch: pytest.MonkeyPatch, nodes: int, *, proven: bool
) -> None:
    for module in (hint_search, hint_narrowest, hint_preferred, hint_intersections):
        monkeypatch.setattr(module, "Budget", lambda steps=0: Budget(0))
    amounts = [{node: node * 7919 * factor % 8191 for node in range(nodes)} for factor in (3, 31, 577, 1009)]
    hints = CapacityHints(everything(nodes), tuple(Need(each, 2000 * nodes) for each in amounts), nodes // 2)
    for containing in (0, 1):
        found = narrowest(hints, containing)
        assert found.exact is proven
        if proven:
            listed = (m for m in range(1, 1 << nodes) if hints.admits(m) and not containing & ~m)
            assert found.mask == min(listed, key=lambda mask: (mask.bit_count(), mask))
    least, exact = narrowest_size(hints)
    assert exact is proven
    if proven:
        assert least == min(m.bit_count() for m in range(1, 1 << nodes) if hints.admits(m))
    pair = [Offer(hints), Offer(CapacityHints(hints.nodes, hints.needs[1:], hints.preferred_size))]
    search = CommonMasks(pair, everything(nodes), None)
    tables = TableSearch(pair, everything(nodes), everything(nodes), None)
    for found, expected in (
        (search.best_preferred(), tables.best_preferred()),
        (search.best_intersection(), tables.best_intersection()),
    ):
        assert found.exact is proven
        assert not proven or found == expected


FEW = dict.fromkeys(range(10), 1)


@pytest.mark.parametrize(
    ("needs", "containing", "nodes"),
    [
        pytest.param([Need({**FEW, 4: 10}, 10)], [], [4], id="the node that has most"),
        pytest.param([Need({**FEW, 4: 10}, 10)], [2], [2, 4], id="beside those that have to be in it"),
        pytest.param([Need({0: 5, 1: 5, 2: 5}, 10)], [0], [0, 1], id="which count"),
        pytest.param([Need({1: 9, 2: 1}, 10)], [0], [0, 1, 2], id="for what they have"),
        pytest.param(
            [Need({4: 1000, 6: 600}, 1000), Need({5: 2}, 2)],
            [],
            [4, 5],
            id="the largest shares, not the largest amounts",
        ),
        pytest.param([Need({1: 9, 2: 1}, 10), Need({3: 5}, 5)], [], [1, 2, 3], id="until every need is met"),
        pytest.param([Need({5: 1}, 1)], [], [5], id="a single one that is needed"),
    ],
)
def test_without_a_budget_there_is_still_a_mask_of_few_nodes(
    monkeypatch: pytest.MonkeyPatch, needs: list[Need], containing: list[int], nodes: list[int]
) -> None:
    monkeypatch.setattr(hint_narrowest, "Budget", lambda: Budget(0))
    found = hint_narrowest.narrowest(CapacityHints(everything(10), tuple(needs), 1), node_mask(containing))
    assert found == Found(node_mask(nodes), False)


def test_the_narrowest_size_is_not_that_of_the_first_mask_that_comes_to_hand() -> None:
    """Node 0 has the largest share, node 3 has enough of both; and node 0 is none of a family that has not got it."""
    both = CapacityHints(everything(9), (Need({0: 1, 3: 5, 8: 3}, 5), Need({0: 9, 1: 1, 3: 1}, 1)), 1)
    assert narrowest_size(both) == (1, True)
    assert narrowest_size(CapacityHints(0b1110, (Need({0: 8, 1: 5, 3: 1}, 6),), 1)) == (2, True)


def test_a_family_without_a_mask_has_no_narrowest_size_and_that_is_proven() -> None:
    impossible = CapacityHints(everything(20), (Need(FEW, 11),), 1)
    assert narrowest_size(impossible) == (0, True)
    assert narrowest_size(replace(impossible, others=(0b11, 0b111))) == (2, True)


def test_a_provider_that_lists_thousands_of_masks_does_not_multiply_the_work() -> None:
    lists = [
        Offer(tuple(Hint((seed * k * 2654435761 >> 3) & everything(34) or 1, False) for k in range(1, 3000)))
        for seed in (3, 7, 11)
    ]
    found = CommonMasks(lists, everything(34), None).best_intersection()
    assert found.mask is not None
    assert not found.exact


def test_a_budget_ends_the_search_that_spends_it() -> None:
    budget = Budget(2)
    budget.spend(2)
    with pytest.raises(BudgetExhaustedError):
        budget.spend(1)
