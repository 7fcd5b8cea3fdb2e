"""Fair share: what every queue is due of the cluster's CPU, memory and GPU, level by level of the hierarchy.

Source: KAI-Scheduler plugins/proportion/resource_division. Upstream iterates over hash maps; here siblings always go in
the order of their names, so the answer is the same every time (upstream's differ only in the last bits of float sums,
see `docs/queues.md`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import floor
from operator import add, itemgetter, sub

from agent.model.queue import RESOURCES, UNLIMITED, QueueShare, QueueShares, ResourceName, ResourceQuantities
from agent.queues.derivation import Rule, Step
from agent.queues.options import Profile, QueueOptions
from agent.queues.quantities import requestable
from agent.queues.tree import QueueTree


@dataclass(frozen=True, slots=True)
class Division:
    """One resource divided among siblings, in the order of `names`.

    amount: what there was to divide. deserved: what the first phase gave. left_over: what the last phase gave, by
    position. fair_share: everything. unassigned: what nobody got; negative where quotas alone exceed the amount.
    """

    resource: ResourceName
    amount: float
    names: tuple[str, ...]
    deserved: Sequence[float]
    left_over: Mapping[int, float]
    fair_share: Sequence[float]
    unassigned: float


@dataclass(frozen=True, slots=True)
class FairShares:
    """The fair share of every queue, and the divisions behind it by parent name ("" divides the cluster)."""

    shares: Mapping[str, ResourceQuantities]
    divisions: Mapping[str, tuple[Division, Division, Division]]

    def derivation(self, tree: QueueTree, name: str) -> tuple[Step, ...]:
        """How the fair share of one queue came about: the divisions on its path, from the top, and the three phases of
        each.
        """
        path = reversed(tree.path(name))
        return tuple(step for queue in path for phases in self.phases(tree, queue.name) for step in phases)

    def phases(self, tree: QueueTree, name: str) -> tuple[tuple[Step, Step, Step], ...]:
        """What the three phases gave the queue itself (deserved, over-quota, left-over), for each resource."""
        return tuple(_steps(division, name) for division in self.divisions[tree.queues[name].parent])


def divide_cluster(
    tree: QueueTree,
    shares: QueueShares,
    total: ResourceQuantities,
    options: QueueOptions,
    *,
    before: FairShares | None = None,
    changed: Collection[str] = (),
) -> FairShares:
    """The fair share of every queue of the tree.

    The total is divided among the top-level queues, then each queue's fair share among its children. Of `shares` the
    request (allocated and pending, children included) and the usage are read; each resource is divided independently.
    Quotas are never scaled down: the fair shares of siblings may add up to more than there is.

    before: an earlier division with the same options, of a tree with the same children. `changed` are the queues that have
    another share than then; siblings that divide what they did then, none of them changed, keep what they got.
    """
    result = {} if before is None else dict(before.shares)
    divisions = {} if before is None else dict(before.divisions)
    due = _parents_to_divide(tree, total, before, changed)
    for parent in ("", *tree.queues):  # parents before children
        if parent not in due or not (names := tree.children.get(parent)):
            continue
        amounts = result[parent] if parent else total
        group = [shares[name] for name in names]
        levels = _levels(group)
        cpu, memory, gpu = (
            _divide(resource, position, amount, names, group, levels, options)
            for position, (resource, amount) in enumerate(zip(RESOURCES, amounts, strict=True))
        )
        divisions[parent] = (cpu, memory, gpu)
        for name, *given in zip(names, cpu.fair_share, memory.fair_share, gpu.fair_share, strict=True):
            fair_share = ResourceQuantities(*given)
            if result.get(name) != fair_share:
                result[name] = fair_share
                due.add(name)
    return FairShares(result, divisions)


def _parents_to_divide(
    tree: QueueTree, total: ResourceQuantities, before: FairShares | None, changed: Collection[str]
) -> set[str]:
    """Whose children get something else than before, before any fair share has changed."""
    if before is None:
        return {""}
    due = {tree.queues[name].parent for name in changed}
    top = before.divisions.get("")
    if top is not None and tuple(division.amount for division in top) != total:
        due.add("")
    return due


def _levels(group: Sequence[QueueShare]) -> list[list[int]]:
    """Positions of the queues of each priority, highest priority first."""
    by_priority: dict[int, list[int]] = {}
    for position, share in enumerate(group):
        by_priority.setdefault(share.queue.priority, []).append(position)
    return [by_priority[priority] for priority in sorted(by_priority, reverse=True)]


def _divide(
    resource: ResourceName,
    index: int,
    amount: float,
    names: tuple[str, ...],
    group: Sequence[QueueShare],
    levels: Sequence[Sequence[int]],
    options: QueueOptions,
) -> Division:
    """Divide one resource among one sibling group: quota first, then over-quota by level, then left-over units."""
    most = [requestable(share.request[index], share.queue.limit[index]) for share in group]
    quota = [share.queue.deserved[index] for share in group]
    fair = [
        want if want < due else due
        for want, due in zip(most, (amount if q == UNLIMITED else q for q in quota), strict=True)
    ]
    deserved = tuple(fair)
    left_over: dict[int, float] = {}
    remainder = reduce(sub, fair, amount)
    if remainder > 0:
        weights = [share.queue.over_quota_weight[index] for share in group]
        usage = [share.usage[index] for share in group]
        owed: list[dict[int, float]] = []  # by level: position -> the fraction of a unit that rounding down held back
        for level in levels:
            remainder, fractions = _over_quota(remainder, level, most, weights, usage, fair, options.k_value)
            if options.profile is Profile.MAIN:
                remainder = _left_over(remainder, fractions, group, fair, left_over)
            else:
                owed.append(fractions)
            if remainder <= 0:
                break
        for fractions in owed:
            remainder = _left_over(remainder, fractions, group, fair, left_over)
    return Division(resource, amount, names, deserved, left_over, fair, remainder)


def _over_quota(
    remainder: float,
    level: Sequence[int],
    most: Sequence[float],
    weights: Sequence[float],
    usage: Sequence[float],
    fair: list[float],
    k_value: float,
) -> tuple[float, dict[int, float]]:
    """Rounds over the unsatisfied queues of one priority level; adds to `fair`. Returns what is left, and the held-back
    fractions.
    """
    fractions: dict[int, float] = {}
    unsatisfied = [position for position in level if most[position] > fair[position]]
    another = True
    while another and unsatisfied and remainder != 0:
        another = False
        total_weight = reduce(add, [weights[position] for position in unsatisfied])
        if total_weight == 0:
            break
        wishes = [
            wish if (wish := (n := weights[position] / total_weight) + k_value * (n - usage[position])) > 0 else 0.0
            for position in unsatisfied
        ]
        total_wish = reduce(add, wishes)  # not sum(): it compensates since Python 3.12, upstream does not
        if total_wish == 0:
            break
        pool = remainder
        for position, wish in zip(unsatisfied, wishes, strict=True):
            if weights[position] == 0:
                continue
            portion = pool * (wish / total_wish)
            wanted = most[position] - fair[position]
            if wanted <= portion:
                fractions.pop(position, None)
                give = wanted
                another = another or wanted < portion
            else:
                give = floor(portion) if portion >= 1 else 0
                if portion > give:
                    fractions[position] = portion - give
            fair[position] += give
            remainder -= give
            if remainder == 0:
                break
        unsatisfied = [position for position in unsatisfied if most[position] > fair[position]]
    return remainder, fractions


def _left_over(
    remainder: float,
    fractions: Mapping[int, float],
    group: Sequence[QueueShare],
    fair: list[float],
    left_over: dict[int, float],
) -> float:
    """A unit, or what is left of one, to each queue with a held-back fraction: largest first, then the older queue,
    then by name.
    """
    if remainder <= 0 or not fractions:
        return remainder
    # positions are in the order of names
    order = sorted((-fraction, group[position].queue.created, position) for position, fraction in fractions.items())
    for position in map(itemgetter(2), order):
        if remainder <= 0:
            break
        give = remainder if remainder < 1 else 1.0
        fair[position] += give
        left_over[position] = left_over.get(position, 0.0) + give
        remainder -= give
    return remainder


def _steps(division: Division, name: str) -> tuple[Step, Step, Step]:
    position = division.names.index(name)
    deserved, fair = division.deserved[position], division.fair_share[position]
    left_over = division.left_over.get(position, 0.0)
    over_quota = fair - deserved - left_over

    def step(rule: Rule, given: float) -> Step:
        amounts = (("given", given), ("of", division.amount), ("fair share", fair))
        return Step(rule, name, given > 0, division.resource, amounts)

    return step(Rule.DESERVED, deserved), step(Rule.OVER_QUOTA, over_quota), step(Rule.LEFT_OVER, left_over)
