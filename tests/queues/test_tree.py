from __future__ import annotations

import math

import pytest

from agent.model.queue import Queue, QueueShare, ResourceQuantities
from agent.queues.tree import Refusal, ancestry, build
from tests.queues.build import queue


def test_siblings_are_sorted_by_name_and_parents_come_first() -> None:
    tree, problems = build([queue("b", "top"), queue("a", "top"), queue("top")])
    assert not problems
    assert list(tree.queues) == ["top", "a", "b"]
    assert tree.children == {"": ("top",), "top": ("a", "b")}
    assert [each.name for each in tree.path("b")] == ["b", "top"]
    assert tree.is_leaf("a")
    assert not tree.is_leaf("top")
    assert tree.path("nobody") == ()


@pytest.mark.parametrize(
    ("queues", "refused"),
    [
        pytest.param([queue("a"), queue("a", priority=1)], {"a": Refusal.DUPLICATE}, id="the second of one name"),
        pytest.param([queue("")], {"": Refusal.NAMELESS}, id="no name"),
        pytest.param(
            [queue("a", "gone"), queue("b", "a")],
            {"a": Refusal.MISSING_PARENT, "b": Refusal.REFUSED_PARENT},
            id="orphans",
        ),
        pytest.param(
            [queue("x", "a"), queue("a", "c"), queue("b", "a"), queue("c", "b")],
            {"x": Refusal.REFUSED_PARENT, "a": Refusal.CYCLE, "b": Refusal.CYCLE, "c": Refusal.CYCLE},
            id="a cycle and what hangs on it",
        ),
        pytest.param([queue("a", "a")], {"a": Refusal.CYCLE}, id="its own parent"),
        pytest.param(
            [queue("a", cpu=math.nan), queue("b", "a")],
            {"a": Refusal.NUMBER, "b": Refusal.REFUSED_PARENT},
            id="not a number",
        ),
        pytest.param([queue("a", gpu=(1.0, math.inf))], {"a": Refusal.NUMBER}, id="an infinite limit"),
        pytest.param([queue("a", memory=1e300)], {"a": Refusal.NUMBER}, id="absurdly large"),
        pytest.param([queue("a", cpu=(1, 1, -2))], {"a": Refusal.NUMBER}, id="a negative weight"),
    ],
)
def test_what_cannot_be_part_of_a_tree_is_refused_by_name_and_the_rest_goes_on(
    queues: list[Queue], refused: dict[str, Refusal]
) -> None:
    tree, problems = build([queue("fine"), *queues])
    assert {problem.queue: problem.refusal for problem in problems} == refused
    survivors = {each.name for each in queues} - {name for name, why in refused.items() if why is not Refusal.DUPLICATE}
    assert set(tree.queues) == {"fine"} | survivors
    assert all(problem.message and problem.hint and problem.queue in str(problem) for problem in problems)


def test_the_first_of_two_queues_of_one_name_counts() -> None:
    tree, _ = build([queue("a", priority=7), queue("a", priority=8)])
    assert tree.queues["a"].priority == 7


def test_a_negative_quota_other_than_unlimited_stays_a_number_as_upstream() -> None:
    tree, problems = build([Queue("a", deserved=ResourceQuantities(-5.0, -1.0, 0.0))])
    assert not problems
    assert tree.queues["a"].deserved.cpu == -5.0


def test_a_very_deep_tree_is_built_without_recursion_and_in_order() -> None:
    tree, problems = build(queue(f"q{depth}", f"q{depth - 1}" if depth else "") for depth in reversed(range(20_000)))
    assert not problems
    assert list(tree.queues)[-1] == "q19999"
    assert len(tree.path("q19999")) == 20_000


def test_a_walk_up_ends_at_an_unknown_parent_and_in_a_cycle() -> None:
    shares = {name: QueueShare(queue(name, parent)) for name, parent in (("a", "b"), ("b", "a"), ("c", "gone"))}
    assert [each.queue.name for each in ancestry(shares, "a")] == ["a", "b"]
    assert [each.queue.name for each in ancestry(shares, "c")] == ["c"]
