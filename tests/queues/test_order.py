from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.queue import ResourceQuantities
from agent.queues.options import Profile, QueueOptions
from agent.queues.order import Contender, OrderRule, compare, in_order
from tests.queues.build import amounts, queue, share

TOTAL = ResourceQuantities(8000.0, 64e9, 8.0)
FLAG = QueueOptions(queue_priority_in_quota_reclaim=True)


def contender(
    name: str,
    held: float = 0,
    fair: float = 2,
    quota: float = 2,
    limit: float = -1,
    priority: int = 100,
    created: int = 0,
    job: float = 0,
    victims: tuple[float, ...] = (),
    busy: bool = False,
) -> Contender:
    """A queue with GPU numbers; `busy`: over its fair share of CPU and memory too."""
    of = share(
        queue(name, priority=priority, created=created, gpu=(quota, limit)),
        allocated=amounts(cpu=9 * busy, memory=9 * busy, gpu=held),
        fair=amounts(gpu=fair),
    )
    return Contender(of, amounts(gpu=job), tuple(amounts(gpu=each) for each in victims))


@pytest.mark.parametrize(
    ("left", "right", "left_first", "rule"),
    [
        pytest.param(
            contender("l", held=3, busy=True),
            contender("r", held=2),
            False,
            OrderRule.UNDER_FAIR_SHARE,
            id="over its fair share goes last",
        ),
        pytest.param(
            contender("l", held=3),
            contender("r", held=2),
            False,
            OrderRule.UNDER_QUOTA_WITH_JOB,
            id="one idle resource keeps a queue from being over",
        ),
        pytest.param(
            contender("l", held=2, job=1),
            contender("r", held=2),
            False,
            OrderRule.UNDER_QUOTA_WITH_JOB,
            id="the job counts",
        ),
        pytest.param(contender("l", priority=1), contender("r", priority=2), False, OrderRule.PRIORITY, id="priority"),
        pytest.param(
            contender("l", job=1, quota=0, fair=0),
            contender("r", job=1, quota=0, fair=1),
            False,
            OrderRule.ZERO_SHARE,
            id="who would use what it is not due",
        ),
        pytest.param(
            contender("l", held=1, quota=2),
            contender("r", held=1, quota=4, fair=4),
            False,
            OrderRule.DOMINANT_SHARE_WITH_JOB,
            id="the less saturated one",
        ),
        pytest.param(
            contender("l", held=2, victims=(1,)),
            contender("r", held=2),
            True,
            OrderRule.DOMINANT_SHARE_WITH_JOB,
            id="victims count",
        ),
        pytest.param(
            contender("l", held=1, job=1), contender("r", held=2), True, OrderRule.DOMINANT_SHARE, id="what is held now"
        ),
        pytest.param(
            contender("l", quota=2, fair=2),
            contender("r", quota=3, fair=2),
            True,
            OrderRule.ALLOCATABLE_SHARE,
            id="the smaller share",
        ),
        pytest.param(
            contender("l", created=1), contender("r", created=2), True, OrderRule.CREATION_TIME, id="the older one"
        ),
        pytest.param(contender("l"), contender("r"), False, OrderRule.CREATION_TIME, id="equal: right first"),
    ],
)
def test_the_first_rule_that_tells_them_apart_decides(
    left: Contender, right: Contender, left_first: bool, rule: OrderRule
) -> None:
    order = compare(left, right, TOTAL, QueueOptions())
    assert (order.left_first, order.rule) == (left_first, rule)


def test_the_flag_puts_priority_first_between_two_queues_in_quota() -> None:
    low, high = contender("low", held=1, priority=1), contender("high", held=1, fair=0, priority=2, busy=True)
    assert compare(low, high, TOTAL, QueueOptions()).rule is OrderRule.UNDER_FAIR_SHARE
    order = compare(low, high, TOTAL, FLAG)
    assert (order.left_first, order.rule) == (False, OrderRule.IN_QUOTA_PRIORITY)
    over = replace(high, job=amounts(gpu=2))
    assert compare(low, over, TOTAL, FLAG).rule is OrderRule.UNDER_FAIR_SHARE


def test_profile_main_forgives_float_noise() -> None:
    left, right = contender("l", held=0.2, quota=0.3, job=0.1), contender("r", quota=0.3, held=0.3)
    assert compare(left, right, TOTAL, QueueOptions()).rule is OrderRule.UNDER_QUOTA_WITH_JOB
    later = compare(left, right, TOTAL, QueueOptions(profile=Profile.MAIN))
    assert later.rule is not OrderRule.UNDER_QUOTA_WITH_JOB


contenders = st.lists(
    st.builds(
        contender,
        st.sampled_from("abcdefgh"),
        held=st.sampled_from([0, 1, 2, 3]),
        priority=st.sampled_from([1, 2]),
        created=st.integers(0, 2),
        job=st.sampled_from([0, 1]),
    ),
    max_size=6,
    unique_by=lambda each: each.share.queue.name,
)


@given(contenders, st.randoms(), st.booleans())
def test_an_order_does_not_depend_on_where_the_queues_started(
    queues: list[Contender], random: object, flag: bool
) -> None:
    options = QueueOptions(queue_priority_in_quota_reclaim=flag)
    shuffled = list(queues)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis types its Random as object
    assert in_order(queues, TOTAL, options) == in_order(shuffled, TOTAL, options)
