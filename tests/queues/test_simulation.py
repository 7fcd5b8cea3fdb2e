from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.queue import ZERO, Queue
from agent.queues.jobs import Job
from agent.queues.options import QueueOptions
from agent.queues.reclaim_verdict import Strategy
from agent.queues.simulation import EventKind, Outcome, simulate
from agent.queues.take_back import TakeBackKind
from agent.queues.tree import build
from tests.queues.build import amounts, queue

OFF = QueueOptions()
ON = QueueOptions(queue_priority_in_quota_reclaim=True)


def runs(name: str, of: str, *gpus: float, preemptible: bool = True) -> Job:
    return Job(name, of, preemptible, ZERO, tuple(amounts(gpu=gpu) for gpu in gpus))


def waits(name: str, of: str, gpu: float, *, preemptible: bool = True) -> Job:
    return Job(name, of, preemptible, amounts(gpu=gpu))


def play(total: float, queues: list[Queue], jobs: list[Job], options: QueueOptions = ON) -> Outcome:
    tree, problems = build(queues)
    assert not problems
    return simulate(tree, jobs, amounts(gpu=total), options, max_rounds=40)


def told(outcome: Outcome) -> list[tuple[int, str, str]]:
    return [(event.round, event.kind.value, event.job) for event in outcome.events]


def test_what_fits_starts_without_reclaim() -> None:
    outcome = play(12, [queue("a", gpu=(8, -1)), queue("b", gpu=(8, -1))], [runs("b1", "b", 4), waits("a1", "a", 8)])
    assert told(outcome) == [(1, "allocated", "a1")]
    assert not outcome.looped


# BL-57: capacity 12, quotas 8 and 8; B (priority 80) runs 8, A (priority 90) asks for 8.
TWO = [queue("a", gpu=(8, -1), priority=90), queue("b", gpu=(8, -1), priority=80)]


@pytest.mark.parametrize(
    ("queues", "jobs", "options", "reclaims"),
    [
        pytest.param(TWO, [runs("b1", "b", 8), waits("a1", "a", 8)], ON, True, id="higher priority in quota"),
        pytest.param(TWO, [runs("b1", "b", 8), waits("a1", "a", 8)], OFF, False, id="not without the flag"),
        pytest.param(
            [replace(each, priority=90) for each in TWO],
            [runs("b1", "b", 8), waits("a1", "a", 8)],
            ON,
            False,
            id="not at equal priority",
        ),
        pytest.param(
            TWO,
            [runs("b1", "b", 8, preemptible=False), waits("a1", "a", 8)],
            ON,
            False,
            id="not what cannot be preempted",
        ),
        pytest.param(TWO, [runs("b1", "b", 8), waits("a1", "a", 9)], ON, False, id="not beyond its own quota"),
    ],
)
def test_in_quota_reclaim_happens_once_and_nothing_comes_back(
    queues: list[Queue], jobs: list[Job], options: QueueOptions, reclaims: bool
) -> None:
    outcome = play(12, queues, jobs, options)
    assert told(outcome) == ([(1, "reclaimed", "a1")] if reclaims else [])
    assert not outcome.looped
    held = {name: share.allocated.gpu for name, share in outcome.shares.items()}
    assert held == ({"a": 8, "b": 0} if reclaims else {"a": 0, "b": 8})


def test_after_it_the_loser_still_gets_what_is_free() -> None:
    outcome = play(12, TWO, [runs("b1", "b", 4, 4), waits("a1", "a", 8), waits("b2", "b", 4)])
    held = {name: share.allocated.gpu for name, share in outcome.shares.items()}
    assert held == {"a": 8, "b": 4}
    assert not outcome.looped


# Found by chance: `high` refills beyond its quota after it took back, so `low` reclaims its fair share again, and so on.
ENDLESS = (
    6,
    [queue("high", gpu=(2, -1), priority=90), queue("low", gpu=(5, -1), priority=50)],
    [waits("h1", "high", 2), waits("l1", "low", 5), waits("h2", "high", 4)],
)


def test_upstreams_priority_bounce_can_go_round_for_ever() -> None:
    outcome = play(*ENDLESS)
    assert outcome.looped
    kinds = [back.kind for event in outcome.events for back in event.take_backs]
    assert set(kinds) == {TakeBackKind.PRIORITY_BOUNCE}
    reclaims = [event for event in outcome.events if event.kind is EventKind.RECLAIMED]
    assert [event.strategies for event in reclaims] == [
        (Strategy.MAINTAIN_FAIR_SHARE,),
        (Strategy.IN_QUOTA_QUEUE_PRIORITY,),
        (Strategy.MAINTAIN_FAIR_SHARE,),
    ]


def test_the_option_and_the_flag_off_end_it() -> None:
    assert not play(*ENDLESS, options=replace(ON, forbid_take_back=True)).looped
    assert not play(*ENDLESS, options=OFF).looped


def world(random: Random) -> tuple[int, list[Queue], list[Job]]:
    """A few queues in one or two levels and jobs that fit the cluster at the start."""
    queues = []
    for top in range(random.randint(1, 3)):
        children = range(random.choice((0, 0, 2)))
        for name, parent in [(f"t{top}", ""), *((f"t{top}-{child}", f"t{top}") for child in children)]:
            gpu = (float(random.randint(0, 6)), -1.0, random.choice((0.0, 1.0, 2.0)))
            queues.append(queue(name, parent, priority=random.choice((50, 90)), gpu=gpu))
    parents = {each.parent for each in queues}
    leaves = [each.name for each in queues if each.name not in parents]
    total, jobs = random.randint(4, 12), list[Job]()
    free = float(total)
    for number in range(random.randint(2, 6)):
        size, name = float(random.randint(1, 5)), random.choice(leaves)
        if size <= free and random.random() < 0.5:
            free -= size
            jobs.append(runs(f"j{number}", name, size))
        else:
            jobs.append(waits(f"j{number}", name, size))
    return total, queues, jobs


worlds = st.builds(world, st.randoms(use_true_random=False))


@given(worlds, st.booleans())
def test_with_the_option_no_arbitrary_tree_goes_round(found: tuple[int, list[Queue], list[Job]], flag: bool) -> None:
    options = QueueOptions(queue_priority_in_quota_reclaim=flag, forbid_take_back=True)
    assert not play(*found, options=options).looped


@given(worlds)
def test_without_the_option_only_a_named_exception_goes_round(found: tuple[int, list[Queue], list[Job]]) -> None:
    outcome = play(*found)
    if outcome.looped:
        assert any(event.take_backs for event in outcome.events)


@given(worlds, st.booleans())
def test_nothing_is_lost_or_doubled(found: tuple[int, list[Queue], list[Job]], flag: bool) -> None:
    total, queues, jobs = found
    outcome = play(total, queues, jobs, QueueOptions(queue_priority_in_quota_reclaim=flag))

    def sizes(these: list[Job]) -> dict[str, float]:
        return {job.name: job.pending.gpu + sum(piece.gpu for piece in job.running) for job in these}

    assert sizes(list(outcome.jobs)) == sizes(jobs)
    assert sum(share.allocated.gpu for share in outcome.shares.values() if not share.queue.parent) <= total
