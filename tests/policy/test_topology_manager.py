"""Many hints become one: the rules by example, and everything against plain enumeration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask, node_mask
from agent.policy.hint_family import CapacityHints, Hint, Need, ProviderHints, ResourceHints
from agent.policy.hints import cpu_hints, enumerate_hints, memory_hints
from agent.policy.topology_manager import Considered, Merged, deciding, merge
from agent.policy.topology_options import TopologyPolicy, TopologyPolicyName
from tests.policy import reference_merge
from tests.policy.hint_machines import (
    Rows,
    cpu_subsets,
    distances,
    families,
    flat_distances,
    listed_hints,
    memory_machines,
    requests,
    reusable_memory,
    topologies,
)

BEST_EFFORT = TopologyPolicy(TopologyPolicyName.BEST_EFFORT)
RESTRICTED = TopologyPolicy(TopologyPolicyName.RESTRICTED)
SINGLE = TopologyPolicy(TopologyPolicyName.SINGLE_NUMA_NODE)
NONE = TopologyPolicy(TopologyPolicyName.NONE)


def hints(text: str) -> ResourceHints:
    """Hints on one line: "0 01+ any" is node 0, nodes 0 and 1 preferred, any node; "-" is no preference, "" impossible."""
    if text == "-":
        return None
    result = []
    for word in text.split():
        nodes = word.rstrip("+")
        affinity = None if nodes == "any" else node_mask(map(int, nodes))
        result.append(Hint(affinity, word.endswith("+")))
    return tuple(result)


def shown(merged: Merged) -> str:
    """The result in the same form, and whether it is admitted."""
    affinity = merged.best.affinity
    nodes = "any" if affinity is None else "".join(str(node) for node in range(16) if affinity >> node & 1)
    return nodes + "+" * merged.best.preferred + (" admitted" if merged.admit else " refused")


def merged(
    policy: TopologyPolicy, *resources: str, nodes: int = 3, rows: Mapping[int, tuple[int, ...]] | None = None
) -> Merged:
    """Each resource from a provider of its own."""
    providers = [{f"r{rank}": hints(text)} for rank, text in enumerate(resources)]
    return merge((1 << nodes) - 1, rows or flat_distances(nodes), policy, providers)


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param(["0+ 1+ 01"], "0+ admitted", id="the lowest of the narrowest preferred masks"),
        pytest.param(["0+ 1+", "1+ 2+"], "1+ admitted", id="what all prefer"),
        pytest.param(["0+ 01+", "01+ 012"], "01+ admitted", id="equal masks only: an overlap is not preferred"),
        pytest.param(["0+ 01", "12+ 012"], "01 refused", id="no common preferred mask: sized for the wider need"),
        pytest.param(["0 1", "2"], "012 refused", id="no overlap at all: every node, not preferred"),
        pytest.param(["0+", "-"], "0+ admitted", id="no preference restricts nothing"),
        pytest.param(["0+", ""], "0 refused", id="an impossible resource keeps the result from being preferred"),
        pytest.param(["-", "-"], "012+ admitted", id="nobody cares: every node, preferred"),
        pytest.param([""], "012 refused", id="impossible alone: every node, not preferred"),
        pytest.param(["any+ 01", "02+"], "02+ admitted", id="any node is one of the choices"),
        pytest.param(["any 01+", "02+"], "02 refused", id="any node, not preferred"),
        pytest.param(["012", "012"], "012 refused", id="full masks stay masks"),
        pytest.param(["0 1 2", "012"], "0 refused", id="nothing as wide as the wider need: the widest below"),
        pytest.param(["01 02", "12 012"], "01 refused", id="as wide as the wider need, lowest value"),
        pytest.param(["012", "0 1", "2 12"], "1 refused", id="the widest below, of three"),
        pytest.param([], "012+ admitted", id="no providers"),
    ],
)
def test_restricted(resources: list[str], expected: str) -> None:
    result = merged(RESTRICTED, *resources)
    assert shown(result) == expected
    assert result.exact


def test_best_effort_makes_the_same_choice_and_admits_it() -> None:
    assert shown(merged(BEST_EFFORT, "0+ 01", "12+ 012")) == "01 admitted"
    assert shown(merged(BEST_EFFORT, "")) == "012 admitted"


@pytest.mark.parametrize(
    ("resources", "nodes", "expected"),
    [
        pytest.param(["0+ 1+", "1+ 01+"], 2, "1+ admitted", id="a node that all prefer"),
        pytest.param(["0 1+", "0+ 1"], 2, "any refused", id="what is not preferred is not looked at"),
        pytest.param(["01+", "01+"], 2, "any refused", id="nor are two nodes"),
        pytest.param(["-", "1+"], 2, "1+ admitted", id="no preference restricts nothing"),
        pytest.param(["-"], 2, "any+ admitted", id="nobody cares"),
        pytest.param(["", "1+"], 2, "any refused", id="an impossible resource"),
        pytest.param(["0+"], 1, "any+ admitted", id="the only node is every node, and that is any node"),
        pytest.param(["any+", "any+ 1+"], 2, "1+ admitted", id="a node rather than any"),
    ],
)
def test_single_numa_node(resources: list[str], nodes: int, expected: str) -> None:
    assert shown(merged(SINGLE, *resources, nodes=nodes)) == expected


def test_policy_none_merges_nothing() -> None:
    assert shown(merged(NONE, "0+")) == "any admitted"


def test_a_provider_without_resources_has_no_preference() -> None:
    silent: list[ProviderHints] = [None, {}]
    for provider in silent:
        assert shown(merge(0b11, {}, RESTRICTED, [provider, {"cpu": hints("1+")}])) == "1+ admitted"


@pytest.mark.parametrize("policy", [NONE, BEST_EFFORT, SINGLE])
def test_what_every_provider_said_is_kept_for_people(policy: TopologyPolicy) -> None:
    result = merge(0b11, {}, policy, [None, {"cpu": hints("0+"), "gpu": hints("")}])
    assert result.considered == (
        Considered(0, "", None),
        Considered(1, "cpu", hints("0+")),
        Considered(1, "gpu", ()),
    )


def closest(policy: TopologyPolicy) -> TopologyPolicy:
    return TopologyPolicy(policy.name, prefer_closest_numa_nodes=True)


def test_with_prefer_closest_the_nearer_of_equally_wide_masks_wins() -> None:
    rows = {0: (10, 30, 20), 1: (30, 10, 11), 2: (20, 11, 10)}
    assert shown(merged(RESTRICTED, "01+ 02+ 12+", rows=rows)) == "01+ admitted"
    assert shown(merged(closest(RESTRICTED), "01+ 02+ 12+", rows=rows)) == "12+ admitted"
    assert shown(merged(closest(RESTRICTED), "01+ 02+ 12+ 2+", rows=rows)) == "2+ admitted"
    assert shown(merged(closest(SINGLE), "0+ 1+", rows=rows)) == "0+ admitted"


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(
            {0: (10, 40, 20), 2: (40, 10, 11), 8: (20, 11, 10)}, id="a column per online node, as Linux writes"
        ),
        pytest.param(
            {0: (10, 0, 40, *[0] * 5, 20), 2: (40, 0, 10, *[0] * 5, 11), 8: (20, 0, 11, *[0] * 5, 10)}, id="by id"
        ),
        pytest.param(
            {0: (10,), 2: (40, 0, 10, *[0] * 5, 11), 8: (20, 0, 11, *[0] * 5, 10)}, id="a distance is missing"
        ),
    ],
)
def test_distances_are_understood_although_node_ids_have_gaps(rows: Mapping[int, tuple[int, ...]]) -> None:
    providers: list[ProviderHints] = [{"cpu": hints("02+ 08+ 28+")}]
    assert shown(merge(node_mask([0, 2, 8]), rows, closest(RESTRICTED), providers)) == "28+ admitted"


def test_a_refusal_names_the_resources_that_have_no_preferred_hint() -> None:
    result = merge(0b11, {}, RESTRICTED, [{"cpu": hints("01"), "memory": hints("0+ 1+")}, {"gpu": hints("")}])
    assert [item.resource for item in deciding(result, 0b11, RESTRICTED)] == ["cpu", "gpu"]


def test_a_refusal_names_all_resources_where_each_prefers_another_mask() -> None:
    result = merge(0b11, {}, RESTRICTED, [None, {"cpu": hints("01+"), "memory": hints("0+ 1+")}])
    assert [item.resource for item in deciding(result, 0b11, RESTRICTED)] == ["cpu", "memory"]


def test_under_single_numa_node_a_refusal_names_who_needs_more_nodes() -> None:
    result = merge(0b11, {}, SINGLE, [{"cpu": hints("01+"), "memory": hints("0+ 1+")}])
    assert [item.resource for item in deciding(result, 0b11, SINGLE)] == ["cpu"]


def test_nothing_decides_against_a_preferred_hint() -> None:
    assert deciding(merged(RESTRICTED, "0+"), 0b111, RESTRICTED) == ()
    assert deciding(merged(NONE, "0"), 0b111, NONE) == ()


def listed(providers: Sequence[ProviderHints]) -> reference_merge.Providers:
    return [
        {resource: None if h is None else enumerate_hints(h) for resource, h in (provider or {}).items()}
        for provider in providers
    ]


def policies() -> st.SearchStrategy[TopologyPolicy]:
    return st.builds(TopologyPolicy, st.sampled_from(TopologyPolicyName), st.booleans())


def manager_hints(data: st.DataObject, most: int, least: int = 1) -> tuple[list[ProviderHints], int]:
    """What the CPU and memory managers say on a machine with up to `most` NUMA nodes, some without CPUs; its node count."""
    machine = data.draw(memory_machines(most, least))
    topology = data.draw(topologies(len(machine), least))
    free, n = data.draw(cpu_subsets(topology)), data.draw(st.integers(1, topology.num_cpus))
    cpu = cpu_hints(topology, free, CPUSet(), n, align_by_socket=data.draw(st.booleans()))
    memory = memory_hints(machine, data.draw(requests()), data.draw(reusable_memory(len(machine))))
    return [{"cpu": cpu}, memory], len(machine)


@given(policies(), st.data())
def test_managers_and_devices_together_are_merged_as_plain_enumeration_does(
    policy: TopologyPolicy, data: st.DataObject
) -> None:
    providers, nodes = manager_hints(data, 4)
    if data.draw(st.booleans()):
        providers.insert(0, data.draw(st.sampled_from([None, {}, {"gpu": data.draw(listed_hints(nodes))}])))
    check(providers, policy, (1 << nodes) - 1, data.draw(distances(nodes)))


@given(policies(), st.integers(1, 5), st.data())
def test_listed_hints_are_merged_as_plain_enumeration_does(
    policy: TopologyPolicy, nodes: int, data: st.DataObject
) -> None:
    device = st.dictionaries(st.sampled_from(["gpu", "nic"]), st.one_of(st.none(), listed_hints(nodes)), max_size=2)
    providers: list[ProviderHints] = list(data.draw(st.lists(st.one_of(st.none(), device), max_size=3)))
    # devices may report nodes that are not online
    check(providers, policy, data.draw(st.integers(1, (1 << nodes) - 1)), data.draw(distances(nodes)))


def check(providers: Sequence[ProviderHints], policy: TopologyPolicy, nodes: NodeMask, rows: Rows) -> None:
    result = merge(nodes, rows, policy, providers)
    expected = reference_merge.merge(nodes, rows, policy, listed(providers))
    assert result.exact
    assert (result.best, result.admit) == expected
    assert reference_merge.merge_folded(nodes, rows, policy, listed(providers)) == expected


@settings(max_examples=25)
@given(policies(), st.data())
def test_eight_nodes_are_merged_as_enumeration_does(policy: TopologyPolicy, data: st.DataObject) -> None:
    check_folded(policy, data, 8)


@pytest.mark.long
@settings(max_examples=60)
@given(policies(), st.data())
def test_twelve_nodes_are_merged_as_enumeration_does(policy: TopologyPolicy, data: st.DataObject) -> None:
    check_folded(policy, data, 12)


def check_folded(policy: TopologyPolicy, data: st.DataObject, most_nodes: int) -> None:
    providers, nodes = manager_hints(data, most_nodes, most_nodes - 2)
    rows = data.draw(distances(nodes))
    result = merge((1 << nodes) - 1, rows, policy, providers)
    assert result.exact
    assert (result.best, result.admit) == reference_merge.merge_folded(
        (1 << nodes) - 1, rows, policy, listed(providers)
    )


def test_an_unproven_width_of_the_memory_manager_marks_the_result() -> None:
    family = CapacityHints(0b11, (Need({0: 1, 1: 1}, 1),), 1, exact=False)
    assert not merge(0b11, {}, RESTRICTED, [{"memory": family}]).exact
    proven = replace(family, exact=True)
    assert not merge(0b11, {}, RESTRICTED, [{"memory": family}, {"cpu": proven}]).exact
    assert merge(0b11, {}, RESTRICTED, [{"memory": proven}, {"cpu": proven}]).exact


@given(st.sampled_from([BEST_EFFORT, RESTRICTED]), st.booleans(), st.data())
def test_on_a_large_machine_a_preferred_hint_is_one_that_every_manager_prefers(
    policy: TopologyPolicy, prefer_closest: bool, data: st.DataObject
) -> None:
    cpu, memory = data.draw(families(24)), data.draw(families(24))
    policy = TopologyPolicy(policy.name, prefer_closest)
    result = merge((1 << 24) - 1, data.draw(distances(24)), policy, [{"cpu": cpu}, {"memory": memory}])
    mask = result.best.affinity
    assert mask
    if result.best.preferred:
        assert all(family.admits(mask) and family.prefers(mask) for family in (cpu, memory))
