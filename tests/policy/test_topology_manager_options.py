"""Which topology manager configurations start, and in which words the others are refused."""

from __future__ import annotations

import pytest

from agent.policy.topology_options import (
    TopologyOptionError,
    TopologyPolicy,
    TopologyPolicyName,
    TopologyScope,
    validate_topology_options,
)
from tests.policy.hint_machines import flat_distances


@pytest.mark.parametrize(
    ("policy", "scope", "options", "message"),
    [
        ("best-effort", "pod", {"foo": "1"}, 'unknown Topology Manager Policy option: "foo"'),
        (
            "best-effort",
            "pod",
            {"prefer-closest-numa-nodes": "maybe"},
            'bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "maybe": invalid syntax',
        ),
        (
            "restricted",
            "pod",
            {"max-allowable-numa-nodes": "1_0"},
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": '
                'strconv.Atoi: parsing "1_0": invalid syntax'
            ),
        ),
        (
            "restricted",
            "pod",
            {"max-allowable-numa-nodes": "9223372036854775808"},
            (
                'unable to convert policy option to integer "max-allowable-numa-nodes": '
                'strconv.Atoi: parsing "9223372036854775808": value out of range'
            ),
        ),
        (
            "restricted",
            "pod",
            {"max-allowable-numa-nodes": "7"},
            'the minimum value of "max-allowable-numa-nodes" should not be less than 8',
        ),
        ("strict", "pod", {}, 'unknown policy: "strict"'),
        ("restricted", "Pod", {}, 'unknown scope: "Pod"'),
        ("strict", "Pod", {"foo": "1"}, 'unknown Topology Manager Policy option: "foo"'),
    ],
)
def test_a_wrong_configuration_is_refused_in_the_kubelets_words(
    policy: str, scope: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(TopologyOptionError) as caught:
        validate_topology_options(policy, scope, options, 0b11, flat_distances(2))
    assert str(caught.value) == message
    assert caught.value.hint


def test_prefer_closest_needs_the_distances_of_every_node() -> None:
    rows = {0: (10, 20)}
    validate_topology_options("restricted", "pod", {"prefer-closest-numa-nodes": "false"}, 0b11, rows)
    with pytest.raises(TopologyOptionError, match="error getting NUMA distances from cadvisor") as caught:
        validate_topology_options("restricted", "pod", {"prefer-closest-numa-nodes": "t"}, 0b11, rows)
    assert "NUMA node 1" in caught.value.hint


def test_options_become_the_policy() -> None:
    options = {"prefer-closest-numa-nodes": "1", "max-allowable-numa-nodes": "+12"}
    assert validate_topology_options("single-numa-node", "pod", options, 0b11, flat_distances(2)) == TopologyPolicy(
        TopologyPolicyName.SINGLE_NUMA_NODE, True, TopologyScope.POD
    )


def test_policy_none_looks_at_nothing_else() -> None:
    assert validate_topology_options("none", "Pod", {"foo": "1"}, 0b1, {}) == TopologyPolicy()


def test_more_nodes_than_the_kubelet_allows_are_accepted() -> None:
    policy = validate_topology_options("restricted", "container", {}, (1 << 34) - 1, {})
    assert policy.name is TopologyPolicyName.RESTRICTED
