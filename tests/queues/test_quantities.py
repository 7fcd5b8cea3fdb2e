"""Amounts of queues: read from an operator, compared as upstream does, written for people."""

from __future__ import annotations

import pytest

from agent.model.quantity import QuantityError
from agent.model.queue import ResourceName, ResourceQuantities
from agent.queues.quantities import (
    allocatable,
    exceeds,
    first_excess,
    fits,
    format_amount,
    over_fair_share,
    parse_total,
    requestable,
)
from tests.queues.build import amounts, queue, share

CPU, MEMORY, GPU = ResourceName


def test_a_total_is_read_in_kubernetes_amounts_and_what_is_not_named_is_nothing() -> None:
    assert parse_total("cpu=1.5, memory=1Gi,gpu=8") == ResourceQuantities(1500.0, float(2**30), 8.0)
    assert parse_total("gpu=1") == ResourceQuantities(0.0, 0.0, 1.0)


@pytest.mark.parametrize("text", ["", "cpu", "cpu:4", "disk=4", "cpu=4,,gpu=1"])
def test_a_total_in_another_form_is_refused_with_the_part_that_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match="is not cpu=AMOUNT, memory=AMOUNT or gpu=AMOUNT"):
        parse_total(text)


def test_a_total_that_is_no_quantity_is_refused() -> None:
    with pytest.raises(QuantityError):
        parse_total("cpu=four")


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        (CPU, -1.0, "unlimited"),
        (CPU, 0.0, "0 cores"),
        (CPU, 2500.0, "2.5 cores"),
        (CPU, 2010.0, "2.01 cores"),
        (CPU, 1234.0, "1234m"),
        (CPU, 12_345_670.0, "12345.67 cores"),
        (CPU, 1_000_000_010.0, "1000000.01 cores"),
        (CPU, 1e9, "1000000 cores"),
        (CPU, -2500.0, "-2.5 cores"),
        (CPU, 0.1, "0.1m"),
        (GPU, 2.0, "2 GPUs"),
        (GPU, 0.1 + 0.2, "0.30000000000000004 GPUs"),
        (MEMORY, 0.0, "0 bytes"),
        (MEMORY, 0.5, "0.5 bytes"),
        (MEMORY, 1.0, "1 bytes"),
        (MEMORY, 1023.0, "1023 bytes"),
        (MEMORY, 1536.0 * 2**20, "1536 Mi"),
        (MEMORY, 3.0 * 2**30, "3 Gi"),
        (MEMORY, 2.0 * 2**40, "2 Ti"),
        (MEMORY, 5e9, "5 GB"),
        (MEMORY, 5e6, "5 MB"),
        (MEMORY, 5e3, "5000 bytes"),
    ],
)
def test_an_amount_is_written_exactly(resource: ResourceName, amount: float, text: str) -> None:
    assert format_amount(resource, amount) == text


@pytest.mark.parametrize(
    ("amount", "bound", "tolerance", "larger"),
    [
        (1, 1, 0, False),
        (2, 1, 0, True),
        (2, 1, 1, False),
        (2.5, 1, 1, True),
        (-1, 5, 0, True),
        (5, -1, 0, False),
        (-1, -1, 0, False),
        (0, 1, 0, False),
    ],
)
def test_unlimited_is_larger_than_every_number(amount: float, bound: float, tolerance: float, *, larger: bool) -> None:
    assert exceeds(amount, bound, tolerance) is larger
    for position in range(3):
        all_amounts = ResourceQuantities(*(amount if each == position else 0.0 for each in range(3)))
        all_bounds = ResourceQuantities(*(bound if each == position else 0.0 for each in range(3)))
        assert fits(all_amounts, all_bounds, tolerance) is not larger
        found = first_excess(all_amounts, all_bounds, tolerance)
        assert found == ((list(ResourceName)[position], amount, bound) if larger else None)


@pytest.mark.parametrize(("request_", "limit", "through"), [(5, -1, 5), (5, 9, 5), (5, 5, 5), (5, 3, 3), (0, 0, 0)])
def test_a_request_is_let_through_up_to_the_limit(request_: float, limit: float, through: float) -> None:
    assert requestable(request_, limit) == through


@pytest.mark.parametrize(
    ("deserved", "limit", "fair", "held"),
    [(-1, 7, 3, 7), (-1, -1, 3, -1), (2, -1, 3, 3), (4, -1, 3, 4), (2, 2, 3, 2), (2, 9, 3, 3), (3, 3, 3, 3)],
)
def test_a_queue_may_hold_its_share_but_at_least_its_quota_and_at_most_its_limit(
    deserved: float, limit: float, fair: float, held: float
) -> None:
    assert allocatable(deserved, limit, fair) == held


def test_over_its_fair_share_is_a_queue_that_is_over_it_in_every_resource() -> None:
    def over(**held: float) -> bool:
        return over_fair_share(share(queue("q"), allocated=amounts(**held), fair=amounts(cpu=1, memory=1, gpu=1)))

    assert over(cpu=2, memory=2, gpu=2)
    assert not over(cpu=2, memory=2, gpu=1)
    assert not over(cpu=1, memory=2, gpu=2)
