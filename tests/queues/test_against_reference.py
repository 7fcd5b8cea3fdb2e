"""The rules against a plain second writing of them, on arbitrary trees with three resources and awkward numbers."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.model.queue import Queue, QueueShare, ResourceQuantities
from agent.queues.fair_share import divide_cluster
from agent.queues.options import Profile, QueueOptions
from agent.queues.reclaim import reclaimable
from agent.queues.reclaim_scenario import Reclaimer, Victims
from agent.queues.tree import build
from tests.queues.reference import reference_fair_shares, reference_reclaimable

AMOUNTS = (-1.0, 0.0, 0.1, 0.3, 1.0, 2.0, 2.5, 7.0, 1e9)


def three(random: Random, choices: tuple[float, ...]) -> ResourceQuantities:
    return ResourceQuantities(*(random.choice(choices) for _ in range(3)))


def forest(random: Random) -> dict[str, QueueShare]:
    """Queues up to four levels deep."""
    names, shares = [""], dict[str, QueueShare]()
    for number in range(random.randint(1, 12)):
        name = f"q{number}"
        queue = Queue(
            name,
            random.choice(names[-6:]),
            random.choice((50, 100, 100)),
            random.choice((0, 1)),
            three(random, AMOUNTS),
            three(random, (-1.0, *AMOUNTS)),
            three(random, (0.0, 0.3, 1.0, 2.0)),
        )
        held = three(random, AMOUNTS[1:])
        shares[name] = QueueShare(
            queue,
            held,
            three(random, AMOUNTS[1:]),
            three(random, AMOUNTS[1:]),
            three(random, (0.0, 0.1, 0.7)),
            three(random, AMOUNTS),
        )
        names.append(name)
    return shares


forests = st.builds(forest, st.randoms(use_true_random=False))
options = st.builds(
    QueueOptions,
    k_value=st.sampled_from([0.0, 1.0, 3.0]),
    saturation_multiplier=st.sampled_from([1.0, 2.0]),
    queue_priority_in_quota_reclaim=st.booleans(),
    profile=st.sampled_from(Profile),
)


@given(forests, options, st.sampled_from([0.0, 0.3, 5.0, 10.0, 33.3, 1e6]))
def test_fair_shares_agree(shares: dict[str, QueueShare], chosen: QueueOptions, total: float) -> None:
    cluster = ResourceQuantities(total, total, total)
    tree, problems = build(share.queue for share in shares.values())
    assert not problems
    assert divide_cluster(tree, shares, cluster, chosen).shares == reference_fair_shares(shares, cluster, chosen)


TOTALS = st.sampled_from([0.0, 5.0, 10.0, 33.3])


@given(forests, options, TOTALS, TOTALS, st.randoms(use_true_random=False))
def test_dividing_what_has_changed_is_dividing_everything(
    shares: dict[str, QueueShare], chosen: QueueOptions, total: float, later: float, random: Random
) -> None:
    def cluster(amount: float) -> ResourceQuantities:
        return ResourceQuantities(amount, amount, amount)

    tree, _ = build(share.queue for share in shares.values())
    before = divide_cluster(tree, shares, cluster(total), chosen)
    changed = random.sample(list(shares), random.randint(0, min(3, len(shares))))
    new = dict(shares)
    for name in changed:
        queue = replace(shares[name].queue, deserved=three(random, AMOUNTS), priority=random.choice((50, 100)))
        new[name] = replace(shares[name], queue=queue, request=three(random, AMOUNTS[1:]))
    tree, _ = build(share.queue for share in new.values())
    again = divide_cluster(tree, new, cluster(later), chosen, before=before, changed=changed)
    assert again == divide_cluster(tree, new, cluster(later), chosen)


@given(forests, options, st.randoms(use_true_random=False))
def test_reclaim_agrees(shares: dict[str, QueueShare], chosen: QueueOptions, random: Random) -> None:
    names = list(shares)
    reclaimer = Reclaimer(random.choice(names), three(random, (0.0, 0.1, 1.0, 2.0)), random.random() < 0.5)
    victims = [
        Victims(name, tuple(three(random, (0.0, 0.1, 0.2, 1.0)) for _ in range(random.randint(1, 3))))
        for name in random.sample(names, random.randint(0, min(4, len(names))))
    ]
    assert reclaimable(shares, reclaimer, victims, chosen).allowed is reference_reclaimable(
        shares, reclaimer, victims, chosen
    )
