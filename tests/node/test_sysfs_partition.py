"""Groups from what CPUs claim to share: only what all members agree on, or most of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet, union
from agent.node.sysfs_partition import key_of, partition, refine


def sets(text: str) -> dict[int, CPUSet]:
    """ "0:0-1 1:0-1" is CPU 0 and CPU 1 both claiming 0-1."""
    pairs = (word.split(":") for word in text.split())
    return {int(cpu): CPUSet.parse(claim) for cpu, claim in pairs}


@pytest.mark.parametrize(
    ("cpus", "claims", "groups", "left"),
    [
        pytest.param("0-3", "0:0-1 1:0-1 2:2-3 3:2-3", ["0-1", "2-3"], "", id="agreement"),
        pytest.param("0-3", "0:0,2 1:1,3 2:0,2 3:1,3", ["0,2", "1,3"], "", id="interleaved siblings"),
        pytest.param("0-3", "0:0-1 2:2-3 3:2-3", ["0-1", "2-3"], "", id="a silent CPU joins those that name it"),
        pytest.param("0-3", "", [], "0-3", id="nobody speaks"),
        pytest.param("0-1", "0:1 1:1", ["1"], "0", id="a set without its own CPU is silence"),
        pytest.param("0-1", "0: 1:", [], "0-1", id="empty sets are silence"),
        pytest.param("0-1", "0:0-1 1:1", ["1"], "0", id="one against one: the set that is consistent in itself stays"),
        pytest.param("0-3", "0:0-3 1:0-3 2:0-3 3:2-3", ["0-3"], "", id="one altered mask is outvoted"),
        pytest.param("0-3", "0:0-3 1:0-3 2:1-2 3:2-3", [], "0-3", id="no majority, no group"),
        pytest.param("0-1", "0:0-1,7 1:0-1,7", [], "0-1", id="a set that leaves the machine is not believed"),
    ],
)
def test_partition(cpus: str, claims: str, groups: list[str], left: str) -> None:
    found, rest = partition(sets(claims), CPUSet.parse(cpus))
    assert ([str(group) for group in found], str(rest)) == (groups, left)


@given(st.dictionaries(st.integers(0, 9), st.integers(0, 1023).map(CPUSet), max_size=10))
def test_groups_are_disjoint_and_lose_no_cpu(claims: dict[int, CPUSet]) -> None:
    cpus = CPUSet.of(range(10))
    groups, rest = partition(claims, cpus)
    assert sum(len(group) for group in groups) + len(rest) == len(cpus)
    assert union(groups) | rest == cpus
    assert list(groups) == sorted(groups, key=min)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12))
def test_honest_claims_give_the_true_groups(group_of: list[int]) -> None:
    true = refine([CPUSet.of(range(len(group_of)))], dict(enumerate(group_of)))
    claims = {cpu: group for group in true for cpu in group}
    assert partition(claims, CPUSet.of(claims)) == (true, CPUSet())


def test_the_key_of_a_group_is_its_lowest_cpu() -> None:
    assert key_of([CPUSet.parse("1,5"), CPUSet.parse("2")]) == {1: 1, 5: 1, 2: 2}
