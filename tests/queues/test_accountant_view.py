"""A view made from an earlier one: the same answer as one made from nothing, and nothing made again that has not changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from agent.formats.queue_objects import QueueObjects
from agent.model.quantity import Quantity
from agent.model.queue import ClusterNode, PodGroup, Preemptibility, Queue, QueueStatus, ResourceQuantities
from agent.queues.accountant import Accountant
from agent.queues.accountant_view import AccountantView, capture, view_of
from agent.queues.options import QueueOptions
from tests.queues.build import queue
from tests.queues.test_accountant import CORES, accountant, everybody_reports, full, objects, reported, resize

NAMES = ("top", "dept", "leaf", "other", "third")
GROUPS = ("pg", "g1", "g2")
BOUNDS = st.sampled_from([(-1, -1), (0, 3000), (2000, 5000), (4000, -1)])
PARENTS = {"dept": ("", "top"), "leaf": ("", "top", "dept"), "other": ("", "dept", "missing"), "third": ("", "leaf")}


@st.composite
def queues(draw: st.DrawFn) -> tuple[Queue, ...]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True))
    return tuple(
        replace(
            queue(name, draw(st.sampled_from(PARENTS.get(name, ("",)))), cpu=draw(BOUNDS)),
            priority=draw(st.sampled_from([100, 200])),
        )
        for name in names
    )


@st.composite
def clusters(draw: st.DrawFn) -> QueueObjects:
    groups = [
        PodGroup("prod", name, draw(st.sampled_from([*NAMES, ""])), "", draw(st.sampled_from(Preemptibility)))
        for name in GROUPS
    ]
    count = draw(st.integers(0, 3))
    return QueueObjects(
        draw(queues()), tuple(groups), nodes=tuple(ClusterNode(f"n{number}", CORES) for number in range(count))
    )


@dataclass
class World:
    """An accountant, and the view that was made last from the one before it."""

    found: Accountant = field(default_factory=lambda: everybody_reports(accountant(ledger=True)))
    view: AccountantView | None = None
    generation: int = 1
    now: float = 0

    def step(self, data: st.DataObject) -> None:
        self.now += data.draw(st.sampled_from([1, 100]), "seconds")
        self.generation += 1
        node = f"n{data.draw(st.integers(0, 2), 'node')}"
        match data.draw(st.sampled_from(["objects", "report", "report", "tick", "release", "resize"]), "step"):
            case "objects":
                self.found.take_objects(data.draw(clusters()), self.now)
            case "report":
                sizes = data.draw(st.dictionaries(st.sampled_from("abc"), st.sampled_from([0.5, 1, 4])))
                pods = {f"{node}-{name}": reported(cores, name, GROUPS[ord(name) % 3]) for name, cores in sizes.items()}
                self.found.take_report(full(node, self.generation, **pods), self.now)
            case "tick":
                self.found.tick(self.now)
            case "release":
                self.found.release(node, self.now)
            case _:
                resize(self.found, f"{node}-a", 1, 2, self.now)

    def look(self, total: ResourceQuantities | None) -> None:
        taken = capture(self.found, self.now)
        made = view_of(taken, total, self.view)
        assert made == view_of(taken, total)
        assert list(made.shares) == list(made.tree.queues)
        self.view = made


@given(st.data(), st.sampled_from([None, ResourceQuantities(9000, 1e10, 2)]))
def test_a_view_of_a_view_is_what_a_view_of_nothing_is(data: st.DataObject, total: ResourceQuantities | None) -> None:
    world = World()
    world.look(total)
    for _ in range(data.draw(st.integers(1, 12), "steps")):
        world.step(data)
        world.look(total)


def test_only_the_path_of_what_has_changed_is_made_anew() -> None:
    found = everybody_reports(accountant())
    before = view_of(capture(found, 1))
    found.take_report(full("n0", 2, u0=reported(3, "p0")), 2)
    after = view_of(capture(found, 2), None, before)
    assert after.shares["leaf"].allocated.cpu == 7000
    assert {name for name, share in after.shares.items() if share is not before.shares[name]} == {"leaf", "dept"}
    assert view_of(capture(found, 3), None, after).shares == after.shares


def test_a_sibling_whose_fair_share_changes_is_made_anew_too() -> None:
    both = (PodGroup("prod", "pg", "leaf"), PodGroup("prod", "po", "other"))
    found = everybody_reports(accountant(taken=replace(objects(*_poor()), pod_groups=both)))
    found.take_report(full("n1", 2, u8=reported(40, "p8", "po")), 1)
    total = ResourceQuantities(10_000, 1e12, 0)
    before = view_of(capture(found, 1), total)
    found.take_report(full("n0", 2, u0=reported(30, "p0")), 2)
    after = view_of(capture(found, 2), total, before)
    assert after.shares["other"].fair_share.cpu < before.shares["other"].fair_share.cpu
    assert after == view_of(after.capture, total)


def _poor() -> tuple[Queue, ...]:
    return (queue("dept", cpu=(0, -1)), queue("leaf", "dept", cpu=(0, -1)), queue("other", "dept", cpu=(0, -1)))


def nothing_of(view: AccountantView) -> AccountantView:
    """A view whose fair shares would be seen wherever they were taken over."""
    return replace(view, fair=replace(view.fair, shares=dict.fromkeys(view.shares, ResourceQuantities(7, 7, 7))))


def test_other_rules_take_nothing_over() -> None:
    found = everybody_reports(accountant())
    before = nothing_of(view_of(capture(found, 1)))
    other = replace(capture(found, 1), options=QueueOptions(k_value=3))
    assert view_of(other, None, before) == view_of(other)
    assert view_of(capture(found, 1), None, before) != view_of(capture(found, 1)), "nor would this test see it"


def test_what_the_status_says_is_not_mixed_with_what_reports_say() -> None:
    status = QueueStatus(allocated={"cpu": Quantity.parse("5")})
    queues = (queue("dept", cpu=(-1, 20_000)), replace(queue("leaf", "dept"), status=status))
    found = accountant(taken=objects(*queues, nodes=()))
    by_status = view_of(capture(found, 1))
    assert by_status.shares["leaf"].allocated.cpu == 5000
    found.take_report(full("n0", 1, u0=reported(2, "p0", group="", label="dept")), 1)
    by_report = view_of(capture(found, 2), None, by_status)
    assert by_report.shares["leaf"].allocated.cpu == 0
    found.release("n0", 3)
    assert view_of(capture(found, 3), None, by_report).shares == by_status.shares
