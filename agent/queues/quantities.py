"""Arithmetic and comparison of queue amounts, with -1 as "unlimited", exactly as upstream does it in float64.

Source: KAI-Scheduler plugins/proportion/resource_share.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from agent.model.quantity import Quantity
from agent.model.queue import RESOURCES, UNLIMITED, ZERO, QueueShare, ResourceName, ResourceQuantities


def parse_total(text: str) -> ResourceQuantities:
    """`cpu=64,memory=512Gi,gpu=8`, Kubernetes' amounts, in the scheduler's units. Raises ValueError, QuantityError."""
    amounts: dict[str, float] = {}
    for part in text.split(","):
        name, equals, amount = part.strip().partition("=")
        if not equals or name not in [resource.value for resource in RESOURCES]:
            raise ValueError(f"{part!r} is not cpu=AMOUNT, memory=AMOUNT or gpu=AMOUNT")
        amounts[name] = float(Quantity.parse(amount).number)
    return ResourceQuantities(amounts.get("cpu", 0.0) * 1000, amounts.get("memory", 0.0), amounts.get("gpu", 0.0))


def plus(a: ResourceQuantities, b: ResourceQuantities) -> ResourceQuantities:
    """a + b, resource by resource."""
    return ResourceQuantities(a[0] + b[0], a[1] + b[1], a[2] + b[2])


def summed(amounts: Iterable[ResourceQuantities]) -> ResourceQuantities:
    """All of them together, added up in this order: sums of floats depend on it in the last digit."""
    return reduce(plus, amounts, ZERO)


def minus(a: ResourceQuantities, b: ResourceQuantities) -> ResourceQuantities:
    """a - b, resource by resource."""
    return ResourceQuantities(a[0] - b[0], a[1] - b[1], a[2] - b[2])


def exceeds(amount: float, bound: float, tolerance: float) -> bool:
    """Whether `amount` is larger than `bound`. -1 on either side is larger than every number and equal to itself.

    An amount that is -1 by subtraction is read as unlimited too, as upstream does.
    """
    if bound == UNLIMITED:
        return False
    if amount == UNLIMITED:
        return True
    return amount > bound and amount - bound > tolerance


def first_excess(
    amounts: ResourceQuantities, bounds: ResourceQuantities, tolerance: float
) -> tuple[ResourceName, float, float] | None:
    """The first resource in which `amounts` does not fit `bounds`, with both numbers; None where all of it fits."""
    for name, amount, bound in zip(RESOURCES, amounts, bounds, strict=True):
        if exceeds(amount, bound, tolerance):
            return name, amount, bound
    return None


def fits(amounts: ResourceQuantities, bounds: ResourceQuantities, tolerance: float) -> bool:
    """Whether every amount fits its bound. All three resources count, also those nobody asks for."""
    return not (
        exceeds(amounts[0], bounds[0], tolerance)
        or exceeds(amounts[1], bounds[1], tolerance)
        or exceeds(amounts[2], bounds[2], tolerance)
    )


def requestable(request: float, limit: float) -> float:
    """What of a request the limit lets through."""
    return request if limit == UNLIMITED or request < limit else limit


def allocatable(deserved: float, limit: float, fair_share: float) -> float:
    """What a queue may hold of one resource before it counts as over its share: fair share, at least the quota, at most
    the limit.
    """
    if deserved == UNLIMITED:
        return limit
    share = deserved if deserved > fair_share else fair_share
    return share if limit == UNLIMITED or share < limit else limit


def allocatable_share(share: QueueShare) -> ResourceQuantities:
    """`allocatable` of all three resources."""
    return ResourceQuantities(*map(allocatable, share.queue.deserved, share.queue.limit, share.fair_share))


def over_fair_share(share: QueueShare) -> bool:
    """Whether a queue holds more than its fair share of every resource. Plain numbers: -1 is just small here."""
    return all(fair < held for fair, held in zip(share.fair_share, share.allocated, strict=True))


_BINARY = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20))
_DECIMAL = (("GB", 10**9), ("MB", 10**6))


def format_amount(resource: ResourceName, amount: float) -> str:
    """An amount for people, exact: "1 core", "2.5 cores", "1536 Mi", "0.30000000000000004 GPUs"; -1 is "unlimited".

    Nothing is rounded: an amount that fails against a bound must not print like the bound.
    """
    if amount == UNLIMITED:
        return "unlimited"
    whole = int(amount) if amount == int(amount) else None
    if resource is ResourceName.CPU:
        if whole is None or whole % 10:
            return f"{amount if whole is None else whole}m"
        return f"{_thousandths(whole)} {'core' if whole == 1000 else 'cores'}"
    if resource is ResourceName.GPU:
        return f"{amount if whole is None else whole} {'GPU' if whole == 1 else 'GPUs'}"
    if whole is None:
        return f"{amount!r} bytes"
    for unit, size in _BINARY + _DECIMAL:
        if whole and whole % size == 0:
            return f"{whole // size} {unit}"
    return f"{whole} bytes"


def _thousandths(number: int) -> str:
    """A number of thousandths, as ones. A float would round from the seventh digit on."""
    whole, rest = divmod(abs(number), 1000)
    return f"{'-' if number < 0 else ''}{whole}{f'.{rest:03}'.rstrip('0') if rest else ''}"
