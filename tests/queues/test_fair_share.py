from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.queue import RESOURCES, Queue, QueueShare, ResourceQuantities
from agent.queues.derivation import Rule
from agent.queues.fair_share import FairShares, divide_cluster
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import requestable
from agent.queues.tree import build
from tests.queues.build import amounts, by_name, queue, share

DEFAULTS = QueueOptions()


def gpus(total: float, *shares: QueueShare, options: QueueOptions = DEFAULTS) -> dict[str, float]:
    """The GPU fair shares of these queues in a cluster of `total` GPUs."""
    tree, problems = build(each.queue for each in shares)
    assert not problems
    answer = divide_cluster(tree, by_name(shares), amounts(gpu=total), options)
    return {name: quantities.gpu for name, quantities in answer.shares.items()}


def wants(
    name: str,
    request: float,
    quota: float = 0,
    limit: float = -1,
    weight: float = 1,
    *,
    parent: str = "",
    priority: int = 100,
    created: int = 0,
    usage: float = 0,
) -> QueueShare:
    """A queue with GPU numbers."""
    of = queue(name, parent, priority=priority, created=created, gpu=(quota, limit, weight))
    return share(of, request=amounts(gpu=request), usage=amounts(gpu=usage))


@pytest.mark.parametrize(
    ("total", "shares", "expected"),
    [
        pytest.param(
            10, [wants("a", 4, 4), wants("b", 9, 4)], {"a": 4, "b": 6}, id="quota first, the rest to who wants it"
        ),
        pytest.param(4, [wants("a", 9, 4), wants("b", 9, 4)], {"a": 4, "b": 4}, id="quotas are never scaled down"),
        pytest.param(9, [wants("a", 9, weight=2), wants("b", 9)], {"a": 6, "b": 3}, id="over-quota by weight"),
        pytest.param(
            9, [wants("a", 1, weight=2), wants("b", 9)], {"a": 1, "b": 8}, id="a satisfied queue leaves more for others"
        ),
        pytest.param(9, [wants("a", 9, limit=2), wants("b", 9)], {"a": 2, "b": 7}, id="a limit caps"),
        pytest.param(
            9, [wants("a", 9, quota=-1), wants("b", 9)], {"a": 9, "b": 0}, id="an unlimited quota is the whole amount"
        ),
        pytest.param(
            9, [wants("a", 9, weight=0), wants("b", 2)], {"a": 0, "b": 2}, id="weight 0 gets nothing over quota"
        ),
        pytest.param(
            5, [wants("a", 9, priority=200), wants("b", 9)], {"a": 5, "b": 0}, id="a higher level is served first"
        ),
        pytest.param(3, [wants("b", 9), wants("a", 9)], {"a": 2, "b": 1}, id="an equal fraction goes by name"),
        pytest.param(3, [wants("b", 9), wants("a", 9, created=5)], {"a": 1, "b": 2}, id="and before that by age"),
        pytest.param(
            1,
            [wants("a", 0.5), wants("b", 0.5), wants("c", 0.5)],
            {"a": 1, "b": 0, "c": 0},
            id="a left-over unit may exceed the request",
        ),
        pytest.param(
            8,
            [wants("a", 8, usage=0.9), wants("b", 8, usage=0.1)],
            {"a": 1, "b": 7},
            id="past usage counts against a queue",
        ),
        pytest.param(
            8,
            [wants("a", 8, weight=3, usage=0.9), wants("b", 5, 1), wants("c", 2, 2, weight=3)],
            {"a": 3, "b": 3, "c": 2},
            id="the weight of a satisfied queue does not count",
        ),
        pytest.param(
            16,
            [wants("a", 2, weight=3), wants("b", 8, weight=2)],
            {"a": 2, "b": 8},
            id="a fraction is forgotten once its queue has what it wants",
        ),
        pytest.param(
            1, [wants("a", 2, weight=0.5), wants("b", 2, weight=3)], {"a": 0, "b": 1}, id="the larger fraction"
        ),
        pytest.param(
            5,
            [wants("a", 2, weight=2), wants("b", 5, weight=3), wants("c", 1, weight=0.5)],
            {"a": 2, "b": 3, "c": 0},
            id="left-overs go one by one",
        ),
        pytest.param(
            4.75,
            [wants("a", 5), wants("b", 5), wants("c", 5)],
            {"a": 2, "b": 1.75, "c": 1},
            id="the last one is a part",
        ),
        pytest.param(
            2.5,
            [wants("a", 0.5), wants("b", 9), wants("c", 9, weight=3)],
            {"a": 0.5, "b": 1, "c": 1},
            id="who gets exactly what it wants leaves no more for others",
        ),
        pytest.param(8, [wants("a", 8, usage=5.0)], {"a": 0}, id="with too much usage capacity stays unassigned"),
    ],
)
def test_gpus_are_divided(total: float, shares: list[QueueShare], expected: dict[str, float]) -> None:
    assert gpus(total, *shares) == expected


def test_children_divide_what_their_parent_is_due() -> None:
    tree = (wants("top", 9, 6), wants("other", 9, 4), wants("a", 9, parent="top"), wants("b", 9, 1, parent="top"))
    assert gpus(10, *tree) == {"top": 6, "other": 4, "a": 3, "b": 3}


def test_profile_main_hands_out_left_overs_of_a_level_before_the_next_level() -> None:
    shares = [wants("a", 9, priority=200), wants("b", 9, priority=200), wants("c", 1)]
    assert gpus(5, *shares) == {"a": 2, "b": 2, "c": 1}
    assert gpus(5, *shares, options=QueueOptions(profile=Profile.MAIN)) == {"a": 3, "b": 2, "c": 0}


def test_the_k_value_is_irrelevant_without_usage_and_never_negative() -> None:
    shares = [wants("a", 9, weight=3), wants("b", 9)]
    assert gpus(8, *shares) == gpus(8, *shares, options=QueueOptions(k_value=100.0)) == {"a": 6, "b": 2}
    assert QueueOptions(k_value=-3.0).k_value == 0.0


def test_a_derivation_names_the_three_phases_of_every_level_of_the_path() -> None:
    shares = by_name([wants("top", 9, 6), wants("a", 9, 2, parent="top"), wants("b", 9, parent="top")])
    tree, _ = build(each.queue for each in shares.values())
    answer: FairShares = divide_cluster(tree, shares, amounts(gpu=7), QueueOptions())
    steps = [step for step in answer.derivation(tree, "a") if step.resource == "gpu"]
    assert [(step.queue, step.rule) for step in steps] == [
        (name, rule) for name in ("top", "a") for rule in (Rule.DESERVED, Rule.OVER_QUOTA, Rule.LEFT_OVER)
    ]
    given_by_rule = [dict(step.amounts)["given"] for step in steps]
    assert given_by_rule == [6, 1, 0, 2, 2, 1]
    assert sum(given_by_rule[3:]) == answer.shares["a"].gpu
    assert "2 GPUs" in str(steps[3])
    assert [step.holds for step in steps] == [True, True, False, True, True, True]


def test_a_derivation_says_yes_to_half_a_gpu_too_and_a_division_what_nobody_got() -> None:
    shares = by_name([wants("a", 0.5, 4), wants("b", 1)])
    tree, _ = build(each.queue for each in shares.values())
    answer = divide_cluster(tree, shares, amounts(gpu=7), QueueOptions())
    assert [step.holds for step in answer.derivation(tree, "a") if step.resource == "gpu"] == [True, False, False]
    division = answer.divisions[""][2]
    assert (division.amount, division.deserved, division.left_over, division.unassigned) == (7, (0.5, 0), {}, 5.5)


numbers = st.one_of(st.integers(0, 20).map(float), st.sampled_from([0.5, 0.25, 1.5, 3.75]))
bounds = st.one_of(st.just(-1.0), numbers)


@st.composite
def groups(draw: st.DrawFn) -> list[QueueShare]:
    """A flat group of siblings with arbitrary GPU numbers."""
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8, unique=True))
    return [
        wants(
            name,
            draw(numbers),
            draw(bounds),
            draw(bounds),
            draw(st.sampled_from([0.0, 1.0, 2.0, 0.3])),
            priority=draw(st.sampled_from([50, 100])),
            usage=draw(st.sampled_from([0.0, 0.1, 0.9])),
        )
        for name in names
    ]


@given(groups(), st.integers(0, 60), st.sampled_from(Profile))
def test_the_over_quota_phase_never_gives_more_than_there_is(
    shares: list[QueueShare], total: int, profile: Profile
) -> None:
    tree, _ = build(each.queue for each in shares)
    answer = divide_cluster(tree, by_name(shares), amounts(gpu=total), QueueOptions(profile=profile))
    division = answer.divisions[""][2]
    over_quota = sum(division.fair_share) - sum(division.deserved)
    assert over_quota <= max(0.0, total - sum(division.deserved)) + 1e-9
    for each in shares:
        most = requestable(each.request.gpu, each.queue.limit.gpu)
        assert answer.shares[each.queue.name].gpu < most + 1  # at most a left-over unit above


@given(groups(), st.integers(0, 60), st.randoms())
def test_the_order_of_the_input_does_not_matter(shares: list[QueueShare], total: int, random: object) -> None:
    shuffled = list(shares)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types its Random as object
    assert gpus(total, *shares) == gpus(total, *shuffled)


@given(groups(), st.integers(0, 30))
def test_resources_are_independent(shares: list[QueueShare], total: int) -> None:
    """The same numbers in all three resources give the same fair share in all three."""

    def spread(quantities: ResourceQuantities) -> ResourceQuantities:
        return ResourceQuantities(*[quantities.gpu] * len(RESOURCES))

    def same(of: Queue) -> Queue:
        return replace(
            of, deserved=spread(of.deserved), limit=spread(of.limit), over_quota_weight=spread(of.over_quota_weight)
        )

    thrice = [share(same(each.queue), request=spread(each.request), usage=spread(each.usage)) for each in shares]
    tree, _ = build(each.queue for each in thrice)
    answer = divide_cluster(tree, by_name(thrice), ResourceQuantities(total, total, total), QueueOptions())
    assert all(cpu == memory == gpu for cpu, memory, gpu in answer.shares.values())
