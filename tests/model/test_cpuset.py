"""CPU sets as values, and the kernel's list format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import MAX_CPUS, CPUListError, CPUSet, format_list, union

ids = st.sets(st.integers(0, 200))


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("", []),
        ("\n", []),
        ("0", [0]),
        ("0-3,8", [0, 1, 2, 3, 8]),
        ("3-3", [3]),
        ("8,0-1", [0, 1, 8]),
        ("1,1-2", [1, 2]),
        ("8191", [8191]),
        (" 0-1\n", [0, 1]),
    ],
)
def test_parse(text: str, members: list[int]) -> None:
    assert list(CPUSet.parse(text)) == members


@pytest.mark.parametrize(
    "text", ["a", "1-", "-1", "3-1", "0,,1", ",", "0 1", "0-3:1/2", "8192", "0-99999999999", "0x1", "١"]
)
def test_what_is_no_list_is_refused_with_the_part_that_is_wrong(text: str) -> None:
    with pytest.raises(CPUListError) as refusal:
        CPUSet.parse(text)
    assert repr(text) in str(refusal.value)
    assert str(MAX_CPUS) in str(refusal.value)
    assert refusal.value.exit_status == 2


@pytest.mark.parametrize(
    ("members", "text"),
    [([], ""), ([0], "0"), ([0, 1], "0-1"), ([0, 1, 2, 8], "0-2,8"), ([1, 3, 5], "1,3,5"), ([63, 64, 65], "63-65")],
)
def test_text_is_the_kernels(members: list[int], text: str) -> None:
    assert str(CPUSet.of(members)) == text
    assert format_list(sum(1 << cpu for cpu in members)) == text


@given(ids)
def test_text_reads_back(members: set[int]) -> None:
    cpus = CPUSet.of(members)
    assert CPUSet.parse(str(cpus)) == cpus
    assert list(cpus) == sorted(members)


@given(ids, ids)
def test_a_set_of_cpus_behaves_as_a_set(left: set[int], right: set[int]) -> None:
    one, other = CPUSet.of(left), CPUSet.of(right)
    assert set(one | other) == left | right
    assert set(one & other) == left & right
    assert set(one - other) == left - right
    assert (one <= other) == (left <= right)
    assert len(one) == len(left)
    assert bool(one) == bool(left)
    assert all((cpu in one) == (cpu in left) for cpu in left | right)
    assert (one == other) == (left == right)
    assert union([one, other]) == one | other
