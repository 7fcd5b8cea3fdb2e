"""The no-reclaim-loop claim of the in-quota design, tried on arbitrary trees, and the exceptions that upstream has, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.queue import UNLIMITED, Queue, QueueShare, QueueShares, ResourceQuantities
from agent.queues.fair_share import divide_cluster
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import plus
from agent.queues.reclaim import reclaimable
from agent.queues.reclaim_decision import decide_reclaim
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.reclaim_verdict import Strategy, level_queues
from agent.queues.take_back import TakeBackKind, after_reclaim, take_backs
from agent.queues.tree import ancestry, build
from tests.queues.build import amounts, by_name, queue, share

ON = QueueOptions(queue_priority_in_quota_reclaim=True)


def test_after_a_reclaim_every_level_holds_what_moved() -> None:
    shares = by_name(
        [
            share(queue("top"), allocated=amounts(gpu=5)),
            share(queue("a", "top")),
            share(queue("b", "top"), allocated=amounts(gpu=5)),
        ]
    )
    after = after_reclaim(
        shares, Reclaimer("a", amounts(gpu=2), preemptible=False), [Victims("b", (amounts(gpu=1), amounts(gpu=2)))]
    )
    assert {name: each.allocated.gpu for name, each in after.items()} == {"top": 4, "a": 2, "b": 2}
    assert {name: each.allocated_non_preemptible.gpu for name, each in after.items()} == {"top": 2, "a": 2, "b": 0}


def quota_of(
    name: str, gpu: float, held: float, *, fair: float = 0, limit: float = -1, priority: int = 100
) -> QueueShare:
    return share(queue(name, priority=priority, gpu=(gpu, limit)), allocated=amounts(gpu=held), fair=amounts(gpu=fair))


@pytest.mark.parametrize(
    ("shares", "ask", "victims", "kind"),
    [
        pytest.param(
            [quota_of("a", 4, 0, fair=4, priority=50), quota_of("b", 4, 5, fair=5, priority=90)],
            4,
            [Victims("b", (amounts(gpu=1), amounts(gpu=4)))],
            None,
            id="the second victim is protected: no reclaim at all",
        ),
        pytest.param(
            [quota_of("a", 4, 0, fair=4, priority=50), quota_of("b", 4, 6, fair=6, priority=90)],
            4,
            [Victims("b", (amounts(gpu=1), amounts(gpu=4)))],
            TakeBackKind.PRIORITY_BOUNCE,
            id="an oversized victim drops the higher priority below quota",
        ),
        pytest.param(
            [
                quota_of("a", 8, 0, fair=8, priority=50),
                quota_of("b", 4, 6, fair=6, priority=90),
                quota_of("c", 4, 4, fair=4, priority=10),
            ],
            8,
            [Victims("c", (amounts(gpu=4),)), Victims("b", (amounts(gpu=1), amounts(gpu=4)))],
            TakeBackKind.MIXED_STRATEGIES,
            id="the same in a scenario that also took a lower priority's quota",
        ),
        pytest.param(
            [quota_of("a", 8, 0, fair=8, limit=2, priority=90), quota_of("b", 8, 8, fair=8, priority=80)],
            8,
            [Victims("b", (amounts(gpu=8),))],
            TakeBackKind.LIMIT_BELOW_QUOTA,
            id="a limit below the quota makes the reclaimer count as over its share",
        ),
        pytest.param(
            [quota_of("a", 0, 0), quota_of("b", 0, 1)],
            1,
            [Victims("b", (amounts(gpu=1),))],
            None,
            id="without any fair share the gate stops the reclaimer",
        ),
    ],
)
def test_the_exceptions_have_names_and_the_option_forbids_them(
    shares: list[QueueShare], ask: float, victims: list[Victims], kind: TakeBackKind | None
) -> None:
    reclaimer = Reclaimer("a", amounts(gpu=ask))
    decision = decide_reclaim(by_name(shares), reclaimer, victims, ON)
    assert decision.allowed is (kind is not None)
    assert {found.kind for found in decision.take_backs} == ({kind} if kind else set())
    strict = decide_reclaim(by_name(shares), reclaimer, victims, replace(ON, forbid_take_back=True))
    assert not strict.allowed
    if kind is not None:
        assert kind in str(strict.steps[-1])


def test_two_departments_without_fair_share_take_from_each_other_even_without_the_flag() -> None:
    shares = by_name(
        [
            quota_of("north", 0, 0),
            quota_of("south", 0, 1),
            share(queue("a", "north", gpu=1), fair=amounts(gpu=1)),
            share(queue("b", "south", gpu=1), allocated=amounts(gpu=1), fair=amounts(gpu=1)),
        ]
    )
    decision = decide_reclaim(shares, Reclaimer("a", amounts(gpu=1)), [Victims("b", (amounts(gpu=1),))], QueueOptions())
    assert decision.allowed
    assert [found.kind for found in decision.take_backs] == [TakeBackKind.WITHOUT_PRIORITY]


@dataclass(frozen=True)
class Scene:
    """A tree with computed fair shares, a pending job of one leaf, and running preemptible jobs it would take."""

    shares: QueueShares
    reclaimer: Reclaimer
    victims: list[Victims]


SIZES = (0.0, 1.0, 2.0, 4.0, 8.0)


def scene(random: Random, *, sane_limits: bool) -> Scene:
    """An arbitrary scene; with `sane_limits` no limit is below a quota."""
    queues: list[Queue] = []
    for top in range(random.randint(1, 3)):
        leaves = range(random.randint(0, 3))
        for name, parent in [(f"t{top}", ""), *((f"t{top}-{leaf}", f"t{top}") for leaf in leaves)]:
            quota, limit = random.choice((*SIZES, -1.0)), -1.0
            if random.random() < 0.4 and not (sane_limits and quota < 0):
                limit = random.choice(SIZES) + (quota if sane_limits else 0.0)
            gpu = (quota, max(limit, -1.0), random.choice((0.0, 1.0, 3.0)))
            queues.append(queue(name, parent, priority=random.choice((50, 90, 100)), gpu=gpu))
    parents = {each.parent for each in queues}
    leaf_names = [each.name for each in queues if each.name not in parents]
    running = [(random.choice(leaf_names), float(random.randint(1, 4))) for _ in range(random.randint(1, 8))]
    reclaimer = Reclaimer(random.choice(leaf_names), amounts(gpu=random.choice((1, 2, 4, 8))))
    shares = charged(queues, running, reclaimer, total=random.randint(1, 24))
    others = [job for job in running if job[0] != reclaimer.queue]
    groups: dict[str, list[ResourceQuantities]] = {}
    for name, gpus in random.sample(others, min(len(others), random.randint(1, 4))):
        groups.setdefault(name, []).append(amounts(gpu=gpus))
    return Scene(shares, reclaimer, [Victims(name, tuple(taken)) for name, taken in groups.items()])


def charged(queues: list[Queue], running: list[tuple[str, float]], reclaimer: Reclaimer, total: int) -> QueueShares:
    """The shares of these queues with running jobs and one pending job charged, and fair shares divided."""
    shares = {each.name: QueueShare(each) for each in queues}
    for name, gpus in running:
        for each in ancestry(shares, name):
            gpu = amounts(gpu=gpus)
            shares[each.queue.name] = replace(
                each, allocated=plus(each.allocated, gpu), request=plus(each.request, gpu)
            )
    for each in ancestry(shares, reclaimer.queue):
        shares[each.queue.name] = replace(each, request=plus(each.request, reclaimer.resources))
    tree, problems = build(queues)
    assert not problems
    fair = divide_cluster(tree, shares, amounts(gpu=total), QueueOptions()).shares
    return {name: replace(each, fair_share=fair[name]) for name, each in shares.items()}


sane = st.builds(partial(scene, sane_limits=True), st.randoms(use_true_random=False))
arbitrary = st.builds(partial(scene, sane_limits=False), st.randoms(use_true_random=False))


@given(sane, st.sampled_from(Profile))
def test_no_victim_that_only_the_new_strategy_released_can_take_back(found: Scene, profile: Profile) -> None:
    options = replace(ON, profile=profile)
    for back in decide_reclaim(found.shares, found.reclaimer, found.victims, options).take_backs:
        assert set(back.released_by) != {Strategy.IN_QUOTA_QUEUE_PRIORITY}
        assert back.kind is not TakeBackKind.LIMIT_BELOW_QUOTA


def limit_below_quota(share: QueueShare) -> bool:
    """Whether a limit is below the quota of the same resource; an unlimited quota is above every finite limit."""
    return any(
        limit != UNLIMITED and (quota == UNLIMITED or limit < quota)
        for quota, limit in zip(share.queue.deserved, share.queue.limit, strict=True)
    )


@given(arbitrary)
def test_with_arbitrary_limits_the_only_exception_is_a_limit_below_the_quota(found: Scene) -> None:
    for back in decide_reclaim(found.shares, found.reclaimer, found.victims, ON).take_backs:
        if back.kind is TakeBackKind.LIMIT_BELOW_QUOTA:
            level = level_queues(found.shares, found.reclaimer.queue, back.queue)
            assert level is not None
            assert limit_below_quota(level.reclaimer_side)


@given(arbitrary)
def test_what_is_accepted_with_the_flag_off_is_accepted_with_it_on(found: Scene) -> None:
    if reclaimable(found.shares, found.reclaimer, found.victims, QueueOptions()).allowed:
        assert reclaimable(found.shares, found.reclaimer, found.victims, ON).allowed


@given(arbitrary, st.booleans())
def test_with_the_option_nothing_accepted_can_be_undone(found: Scene, flag: bool) -> None:
    options = QueueOptions(queue_priority_in_quota_reclaim=flag, forbid_take_back=True)
    decision = decide_reclaim(found.shares, found.reclaimer, found.victims, options)
    if decision.allowed and decision.scenario is not None:
        assert not list(take_backs(found.shares, found.reclaimer, found.victims, decision.scenario, options))


@pytest.mark.parametrize("scenes", [4_000, pytest.param(60_000, marks=pytest.mark.long)])
def test_the_exceptions_are_rare_and_counted(scenes: int, record_property: Callable[[str, object], None]) -> None:
    random, counts = Random(7), Counter[str]()
    for _ in range(scenes):
        found = scene(random, sane_limits=False)
        decision = decide_reclaim(found.shares, found.reclaimer, found.victims, ON)
        counts["accepted"] += decision.allowed
        counts.update({back.kind.value for back in decision.take_backs})
    record_property("take_backs", dict(counts))
    assert counts["accepted"] > scenes / 20
    assert sum(counts[kind] for kind in TakeBackKind) < counts["accepted"] / 50
    if scenes > 50_000:  # the fourth needs a request that fills a quota exactly: the table above has it
        assert all(counts[kind] for kind in TakeBackKind if kind is not TakeBackKind.LIMIT_BELOW_QUOTA), counts
