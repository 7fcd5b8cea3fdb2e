from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agent.errors import BadInputError
from agent.model.queue import QueueShare, ResourceName, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import QueueOptions
from agent.queues.reclaim import can_reclaim, keeps_victim, reclaimable
from agent.queues.reclaim_decision import decide_reclaim
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.reclaim_verdict import Strategy, Verdict, explain, level_queues
from tests.queues.build import amounts, by_name, queue, share

OFF = QueueOptions()
ON = QueueOptions(queue_priority_in_quota_reclaim=True)


def holds(
    name: str,
    gpu: float,
    *,
    quota: float,
    fair: float,
    limit: float = -1,
    parent: str = "",
    priority: int = 100,
    fixed: float = 0,
) -> QueueShare:
    of = queue(name, parent, priority=priority, gpu=(quota, limit))
    return share(of, allocated=amounts(gpu=gpu), non_preemptible=amounts(gpu=fixed), fair=amounts(gpu=fair))


def asks(name: str, gpu: float, *, preemptible: bool = True) -> Reclaimer:
    return Reclaimer(name, amounts(gpu=gpu), preemptible)


def gone(name: str, *gpus: float) -> Victims:
    return Victims(name, tuple(amounts(gpu=gpu) for gpu in gpus))


# BL-57: capacity 12, quotas 8 and 8, B runs 8, A asks for 8.
A, B = holds("a", 0, quota=8, fair=8, priority=90), holds("b", 8, quota=8, fair=8, priority=80)


@pytest.mark.parametrize(
    ("a", "b", "ask", "options", "allowed"),
    [
        pytest.param(A, B, 8, OFF, False, id="without the flag quota protects"),
        pytest.param(A, B, 8, ON, True, id="with it the higher priority takes"),
        pytest.param(A, holds("b", 8, quota=8, fair=8, priority=90), 8, ON, False, id="equal priority"),
        pytest.param(
            holds("a", 1, quota=8, fair=9, priority=90), B, 8, ON, False, id="the reclaimer would leave its quota"
        ),
        pytest.param(
            A, holds("b", 8, quota=2, fair=2, priority=80), 8, OFF, True, id="over quota anyone in quota may take"
        ),
    ],
)
def test_who_may_take_from_a_queue_in_quota(
    a: QueueShare, b: QueueShare, ask: float, options: QueueOptions, allowed: bool
) -> None:
    shares = by_name([a, b])
    assert decide_reclaim(shares, asks("a", ask), [gone("b", 4, 4)], options).allowed is allowed


def test_after_an_in_quota_reclaim_the_victim_cannot_take_back() -> None:
    after = by_name([holds("a", 8, quota=8, fair=8, priority=90), holds("b", 0, quota=8, fair=8, priority=80)])
    for options in (OFF, ON):
        assert not decide_reclaim(after, asks("b", 8), [gone("a", 8)], options).allowed
        assert not decide_reclaim(after, asks("b", 4), [gone("a", 8)], options).allowed


def test_queues_under_different_parents_compare_the_children_of_the_common_ancestor() -> None:
    shares = by_name(
        [
            holds("north", 0, quota=8, fair=8, priority=10),
            holds("south", 8, quota=8, fair=8, priority=20),
            holds("a", 0, quota=8, fair=8, parent="north", priority=90),
            holds("b", 8, quota=8, fair=8, parent="south", priority=80),
        ]
    )
    level = level_queues(shares, "a", "b")
    assert level is not None
    assert (level.reclaimer_side.queue.name, level.victim_side.queue.name) == ("north", "south")
    assert not reclaimable(shares, asks("a", 8), [gone("b", 8)], ON).allowed
    higher = {**shares, "north": replace(shares["north"], queue=replace(shares["north"].queue, priority=30))}
    assert reclaimable(higher, asks("a", 8), [gone("b", 8)], ON).by_strategy("b") == (Strategy.IN_QUOTA_QUEUE_PRIORITY,)


def test_a_queue_and_its_ancestor_level_to_the_same_queue() -> None:
    shares = by_name([holds("top", 1, quota=1, fair=1), holds("a", 1, quota=1, fair=1, parent="top")])
    for pair in (("a", "top"), ("top", "a"), ("top", "top")):
        level = level_queues(shares, *pair)
        assert level is not None
        assert level.reclaimer_side is level.victim_side is shares["top"]
    assert level_queues(shares, "a", "gone") is None
    assert level_queues(shares, "gone", "a") is None


def test_the_strategy_is_chosen_by_what_is_held_before_each_victim_goes() -> None:
    shares = by_name([holds("a", 0, quota=4, fair=4, priority=2), holds("b", 10, quota=4, fair=8, priority=1)])
    verdict = reclaimable(shares, asks("a", 4), [gone("b", 3, 3, 3)], ON)
    assert (verdict.allowed, verdict.steps) == (True, ())
    assert verdict.by_strategy("b") == (
        Strategy.MAINTAIN_FAIR_SHARE,
        Strategy.GUARANTEE_DESERVED_QUOTA,
        Strategy.IN_QUOTA_QUEUE_PRIORITY,
    )
    steps = [explain(taken, ON) for taken in verdict.taken]
    assert [step.rule for step in steps] == [Rule.MAINTAIN_FAIR_SHARE, Rule.GUARANTEE_QUOTA, Rule.IN_QUOTA_PRIORITY]
    assert [dict(step.amounts).get("held") for step in steps] == [10, 7, None]
    assert dict(steps[2].values) == {"priority": 2, "victim's side": "b", "its priority": 1}
    assert all(step.holds for step in steps)
    refused = reclaimable(shares, asks("a", 4), [gone("b", 3, 3, 3)], OFF)
    assert not refused.allowed
    assert len(refused.taken) == 2
    assert refused.refusal is not None
    assert refused.refusal.rule is Rule.GUARANTEE_QUOTA


def test_the_gate_looks_at_the_reclaimers_own_queue_only() -> None:
    shares = by_name([holds("top", 9, quota=1, fair=1), holds("a", 1, quota=2, fair=3, parent="top", fixed=1)])
    assert can_reclaim(shares, asks("a", 2), OFF).allowed
    refused = can_reclaim(shares, asks("a", 3), OFF)
    assert (refused.allowed, refused.steps[-1].rule) == (False, Rule.CAN_RECLAIM_FAIR_SHARE)
    assert can_reclaim(shares, asks("a", 1, preemptible=False), OFF).allowed
    refused = can_reclaim(shares, asks("a", 2, preemptible=False), OFF)
    assert refused.refusal is not None
    assert refused.refusal == Step(
        Rule.CAN_RECLAIM_QUOTA, "a", False, ResourceName.GPU, (("would be", 3.0), ("bound", 2.0))
    )


@pytest.mark.parametrize(
    ("ask", "victim", "options", "kept"),
    [
        pytest.param(9, holds("b", 9, quota=4, fair=8), OFF, True, id="over quota itself: victims over their share"),
        pytest.param(9, holds("b", 8, quota=4, fair=8), OFF, False, id="over quota itself: nobody in his share"),
        pytest.param(1, holds("b", 5, quota=4, fair=8), OFF, True, id="in quota: victims over quota"),
        pytest.param(1, holds("b", 4, quota=4, fair=8), OFF, True, id="exactly at quota is no reason to drop"),
        pytest.param(1, holds("b", 3, quota=4, fair=8), OFF, False, id="in quota: nobody below quota"),
        pytest.param(1, holds("b", 3, quota=4, fair=8, priority=99), ON, True, id="flag: lower priority"),
        pytest.param(1, holds("b", 3, quota=4, fair=8), ON, False, id="flag: equal priority"),
        pytest.param(1, holds("b", 3, quota=-1, fair=8), OFF, True, id="an unlimited quota says nothing"),
    ],
)
def test_the_victim_filter(ask: float, victim: QueueShare, options: QueueOptions, kept: bool) -> None:
    shares = by_name([holds("a", 0, quota=4, fair=20), victim])
    assert keeps_victim(shares, asks("a", ask), "b", options).allowed is kept
    assert keeps_victim(shares, asks("a", ask), "gone", options) == Verdict(True, ())


def test_a_level_must_not_become_more_saturated_than_a_sibling_that_loses() -> None:
    shares = by_name([holds("a", 4, quota=1, fair=4), holds("b", 12, quota=1, fair=8)])
    assert reclaimable(shares, asks("a", 1), [gone("b", 1)], OFF).allowed  # 5/4 < 11/8
    refused = reclaimable(shares, asks("a", 1), [gone("b", 3)], OFF)  # 5/4 >= 9/8
    assert refused.refusal is not None
    assert refused.refusal == Step(
        Rule.SATURATION,
        "a",
        False,
        ResourceName.GPU,
        (("held", 5.0), ("fair share", 4.0)),
        (("saturation", 1.25), ("times", 1.0), ("sibling", "b"), ("sibling saturation", 1.125)),
    )
    assert not reclaimable(shares, asks("a", 1), [gone("b", 1)], QueueOptions(saturation_multiplier=2)).allowed
    assert QueueOptions(saturation_multiplier=0.1).saturation_multiplier == 1


def test_non_preemptible_work_must_stay_in_quota_on_every_level() -> None:
    shares = by_name(
        [
            holds("top", 4, quota=4, fair=9, fixed=4),
            holds("a", 0, quota=4, fair=4, parent="top"),
            holds("b", 9, quota=1, fair=1),
        ]
    )
    assert reclaimable(shares, asks("a", 1), [gone("b", 1)], OFF).allowed
    refused = reclaimable(shares, asks("a", 1, preemptible=False), [gone("b", 1)], OFF)
    assert refused.refusal is not None
    assert (refused.refusal.rule, refused.refusal.queue) == (Rule.NON_PREEMPTIBLE_QUOTA, "top")


def test_unknown_queues_are_errors_that_name_them() -> None:
    shares = by_name([A])
    with pytest.raises(BadInputError, match="nowhere") as ours:
        can_reclaim(shares, asks("nowhere", 1), OFF)
    with pytest.raises(BadInputError, match="nowhere") as theirs:
        reclaimable(shares, asks("a", 1), [gone("nowhere", 1)], OFF)
    assert ours.value.hint == theirs.value.hint == "name a queue of the snapshot"


def test_a_decision_says_which_victim_was_filtered_out_and_why() -> None:
    shares = by_name([A, holds("b", 7, quota=8, fair=8, priority=80)])
    decision = decide_reclaim(shares, asks("a", 8), [gone("b", 7)], OFF)
    assert not decision.allowed
    assert decision.scenario is None
    assert decision.gate.allowed
    assert decision.steps[-1].rule is Rule.QUOTA_CANDIDATE
    assert "queue b" in str(decision.filtered["b"].steps[-1])


def test_only_what_is_asked_for_makes_a_queue_a_candidate() -> None:
    """The victim is over its quota of GPUs, but under that of CPUs, and only CPUs are wanted."""
    ours = share(queue("poor", cpu=(4000, -1), gpu=(4, -1)))
    theirs = share(queue("rich", cpu=(4000, -1), gpu=(1, -1)), allocated=amounts(cpu=1000, gpu=3))
    shares, options = by_name([ours, theirs]), QueueOptions()
    for_cpu, for_gpu, for_both = (
        keeps_victim(shares, Reclaimer("poor", wanted, True), "rich", options)
        for wanted in (amounts(cpu=1000), amounts(gpu=1), amounts(cpu=1000, gpu=1))
    )
    assert (for_cpu.allowed, for_gpu.allowed, for_both.allowed) == (False, True, True)
    told = [(step.rule, step.queue, step.holds, step.resource) for step in for_cpu.steps]
    assert told == [
        (Rule.UNDER_QUOTA, "poor", True, None),
        (Rule.QUOTA_CANDIDATE, "rich", False, ResourceName.CPU),
    ]
    assert dict(for_cpu.steps[1].amounts) == {"allocated": 1000.0, "quota": 4000.0}


def test_a_queue_at_its_quota_is_a_candidate_and_the_step_says_so_without_a_resource() -> None:
    shares = by_name(
        [share(queue("poor", cpu=(4000, -1))), share(queue("even", cpu=(1000, -1)), allocated=amounts(cpu=1000))]
    )
    verdict = keeps_victim(shares, Reclaimer("poor", amounts(cpu=1000), True), "even", QueueOptions())
    assert verdict.allowed
    last = verdict.steps[-1]
    assert (last.rule, last.queue, last.holds, last.resource) == (Rule.QUOTA_CANDIDATE, "even", True, None)


def test_a_priority_that_decides_is_told_as_what_decided() -> None:
    shares = by_name(
        [
            share(queue("poor", priority=200, cpu=(4000, -1))),
            share(queue("under", priority=100, cpu=(4000, -1)), allocated=amounts(cpu=1000)),
        ]
    )
    reclaimer = Reclaimer("poor", amounts(cpu=1000), True)
    assert not keeps_victim(shares, reclaimer, "under", QueueOptions()).allowed
    verdict = keeps_victim(shares, reclaimer, "under", QueueOptions(queue_priority_in_quota_reclaim=True))
    assert verdict.allowed
    assert [step.holds for step in verdict.steps] == [True, True]
    refused = reclaimable(shares, replace(reclaimer, queue="under"), [Victims("poor", (amounts(cpu=1),))], ON).refusal
    assert refused is not None
    assert (refused.rule, refused.queue, refused.holds) == (Rule.IN_QUOTA_PRIORITY, "under", False)


def test_over_their_share_is_the_rule_for_who_leaves_its_quota() -> None:
    shares = by_name([holds("a", 0, quota=4, fair=20), holds("b", 9, quota=4, fair=8)])
    assert keeps_victim(shares, asks("a", 9), "b", OFF).steps[1] == Step(
        Rule.MAINTAIN_FAIR_SHARE, "b", True, ResourceName.GPU, (("held", 9.0), ("bound", 8.0))
    )


def test_who_is_not_over_its_share_is_named_too() -> None:
    shares = by_name([holds("a", 0, quota=4, fair=20), holds("b", 3, quota=4, fair=8)])
    assert Step(Rule.MAINTAIN_FAIR_SHARE, "b", False) in keeps_victim(shares, asks("a", 9), "b", OFF).steps


def mixed(name: str, held: Sequence[float], fair: Sequence[float], parent: str = "") -> QueueShare:
    """A queue without quotas: CPU, memory and GPU held, and the fair shares of them."""
    none = queue(name, parent, cpu=(0, -1), memory=(0, -1), gpu=(0, -1))
    return share(none, allocated=ResourceQuantities(*held), fair=ResourceQuantities(*fair))


@pytest.mark.parametrize(
    ("ours", "theirs", "ask", "given", "allowed"),
    [
        pytest.param(((1, 0, 9), (9, 9, 3)), ((9, 0, 6), (3, 9, 3)), (1, 0, 0), (1, 0, 0), True, id="only CPUs"),
        pytest.param(
            ((1, 0, 9), (9, 9, 3)), ((9, 0, 6), (3, 9, 3)), (1, 0, 0), (1, 0, 1), False, id="GPUs it gives too"
        ),
        pytest.param(
            ((1, 9, 0), (9, 3, 9)), ((9, 6, 0), (3, 3, 9)), (1, 0, 0), (1, 1, 0), False, id="memory it gives too"
        ),
        pytest.param(
            ((9, 0, 1), (3, 9, 9)), ((6, 0, 9), (3, 9, 3)), (0, 0, 1), (1, 0, 1), False, id="CPUs it gives too"
        ),
        pytest.param(((9, 1, 0), (3, 9, 9)), ((6, 9, 9), (3, 3, 3)), (0, 1, 0), (0, 1, 1), True, id="no CPUs at stake"),
        pytest.param(
            ((0, 9, 0), (9, 3, 9)), ((9, 6, 0), (3, 3, 9)), (1, 0, 0), (1, 0, 0), True, id="no memory at stake"
        ),
        pytest.param(((0, 0, 3), (9, 9, 2)), ((0, 0, 2), (9, 9, 1)), (0, 0, 1), (0, 0, 1), False, id="who is due one"),
        pytest.param(
            ((0, 0, 0), (9, 9, 9)),
            ((9, 0, 9), (0, 9, 3)),
            (1, 0, 1),
            (1, 0, 1),
            True,
            id="who is due nothing never loses",
        ),
        pytest.param(
            ((0, 0, 9), (9, 9, 3)),
            ((9, 0, 9), (0, 9, 3)),
            (1, 0, 1),
            (1, 0, 1),
            False,
            id="but looks at what else it is due",
        ),
        pytest.param(
            ((0, 0, 4), (9, 9, 3)), ((0, 0, 6), (9, 9, 3)), (0, 0, 1), (0, 0, 1), False, id="as saturated as they"
        ),
        pytest.param(
            ((0, 0, 1), (9, 9, 1)), ((0, 0, 9), (9, 9, 2)), (0, 0, 1), (0, 0, 1), True, id="a fair share of one"
        ),
        pytest.param(
            ((0, 0, 0), (9, 9, 0)), ((0, 0, 9), (9, 9, 2)), (0, 0, 0.5), (0, 0, 1), False, id="due nothing, half of one"
        ),
        pytest.param(
            ((0, 0, 0), (9, 9, 0)),
            ((9, 0, 9), (3, 9, 2)),
            (1, 0, 0),
            (1, 0, 1),
            True,
            id="due nothing, holding nothing",
        ),
        pytest.param(((0, 0, 9), (9, 9, -1)), ((0, 0, 9), (9, 9, 2)), (0, 0, 9), (0, 0, 1), True, id="due everything"),
    ],
)
def test_saturation_is_compared_in_what_is_asked_and_what_is_given(
    ours: tuple[Sequence[float], Sequence[float]],
    theirs: tuple[Sequence[float], Sequence[float]],
    ask: Sequence[float],
    given: Sequence[float],
    *,
    allowed: bool,
) -> None:
    shares = by_name([mixed("a", *ours), mixed("b", *theirs)])
    wanted, victims = ResourceQuantities(*ask), Victims("b", (ResourceQuantities(*given),))
    verdict = reclaimable(shares, Reclaimer("a", wanted), [victims], OFF)
    assert len(verdict.taken) == 1
    assert verdict.allowed is allowed


def test_what_any_victim_of_a_queue_gives_is_compared_not_only_what_the_last_one_does() -> None:
    shares = by_name([mixed("a", (1, 0, 9), (9, 9, 3)), mixed("b", (9, 0, 6), (3, 9, 3))])
    gives = Victims("b", (ResourceQuantities(0, 0, 1), ResourceQuantities(1, 0, 0)))
    verdict = reclaimable(shares, Reclaimer("a", ResourceQuantities(1, 0, 0)), [gives], OFF)
    assert len(verdict.taken) == 2
    assert verdict.refusal is not None
    assert (verdict.refusal.rule, verdict.refusal.resource) == (Rule.SATURATION, ResourceName.GPU)


def test_a_parent_that_loses_by_a_victim_of_its_own_is_measured_without_it() -> None:
    shares = by_name(
        [
            mixed("p", (0, 0, 10), (9, 9, 8)),
            mixed("a", (0, 0, 0), (9, 9, 8), "p"),
            mixed("c", (0, 0, 10), (9, 9, 2), "p"),
            mixed("q", (0, 0, 9), (9, 9, 8)),
        ]
    )
    assert reclaimable(shares, asks("a", 1), [gone("c", 5), gone("q", 1)], OFF).allowed
    assert not reclaimable(shares, asks("a", 1), [gone("c", 1), gone("q", 1)], OFF).allowed


def test_every_level_is_asked_for_its_own_quota() -> None:
    """Against its sibling the reclaimer is within quota; against another top-level queue its parent is not."""
    shares = by_name(
        [
            holds("p", 10, quota=4, fair=20),
            holds("a", 0, quota=4, fair=20, parent="p"),
            holds("c", 5, quota=2, fair=8, parent="p"),
            holds("q", 5, quota=2, fair=8),
        ]
    )
    assert reclaimable(shares, asks("a", 1), [gone("c", 1)], OFF).allowed
    refusal = reclaimable(shares, asks("a", 1), [gone("c", 1), gone("q", 1)], OFF).refusal
    assert refusal is not None
    assert (refusal.rule, refusal.queue) == (Rule.UNDER_QUOTA, "p")


def test_victims_of_a_queue_without_any_change_nothing() -> None:
    shares = by_name(
        [mixed("a", (0, 0, 2), (9, 9, 3)), mixed("b", (0, 0, 9), (9, 9, 3)), mixed("c", (0, 0, 9), (9, 9, 3))]
    )
    wanted = asks("a", 1)
    assert reclaimable(shares, wanted, [gone("b"), gone("c", 1)], OFF).allowed


def test_of_several_that_lose_on_a_level_each_is_compared() -> None:
    """The reclaimer's own parent loses too, to a queue below it; the other top-level queue must still not be overtaken."""
    shares = by_name(
        [
            mixed("top", (0, 0, 8), (9, 9, 4)),
            mixed("a", (0, 0, 0), (9, 9, 4), "top"),
            mixed("b", (0, 0, 8), (9, 9, 1), "top"),
            mixed("c", (0, 0, 9), (9, 9, 8)),
        ]
    )
    assert reclaimable(shares, asks("a", 1), [gone("b", 1)], OFF).allowed
    refused = reclaimable(shares, asks("a", 1), [gone("b", 1), gone("c", 1)], OFF)
    assert refused.refusal is not None
    assert (refused.refusal.rule, refused.refusal.queue) == (Rule.SATURATION, "top")
