"""The page of queues: what it says first, every trouble by its words, and bars that show what the numbers beside them say."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agent.model.queue import Queue
from agent.queues.accountant import Accountant
from agent.queues.accountant_view import AccountantView
from agent.queues.page import render_page
from tests.html_outline import Outline
from tests.queues.build import amounts, queue, share
from tests.queues.test_accountant import accountant, everybody_reports, objects, resize, view

GIB = 1 << 30


def seen(found: Accountant, now: float = 1) -> Outline:
    page = Outline(render_page(view(found, now)))
    assert not page.wrong
    assert not page.open
    return page


def shown(found: AccountantView) -> str:
    return Outline(render_page(found)).text


def with_queues(*queues: Queue) -> AccountantView:
    """Every node has reported nothing, of these queues."""
    return view(everybody_reports(accountant(taken=objects(*queues)), cores=0))


def test_the_page_loads_nothing_from_elsewhere_and_tells_when_it_is_from() -> None:
    text = render_page(view(everybody_reports(accountant())))
    assert not re.search(r'(src|href)="(https?:|//)', text)
    assert "<script" not in text
    assert "as of 1970-01-01 00:00:01 UTC" in Outline(text).text


# --- what it says first -------------------------------------------------------------------------------------------------


def test_when_all_is_well_it_says_so_and_nothing_else() -> None:
    page = seen(everybody_reports(accountant()))
    assert [a["class"] for tag, a in page.elements if "pill" in a.get("class", "")] == ["pill good"]
    assert "every node accounted for" in page.text
    assert "To divide: cpu 192 cores , memory 768 Gi , gpu 0 GPUs" in page.text
    assert "Queues: 3 Nodes: 3 Reservations: 0" in page.text
    assert "Not as it should be" not in page.text
    assert "Growth admitted" not in page.text


@pytest.mark.parametrize(
    ("missing", "from_status", "said"),
    [
        ({"n2", "n1"}, False, "2 nodes have not reported"),
        (set(), True, "no node reports: charges as Queue.status says"),
        (set(), False, "waiting for nodes"),
    ],
)
def test_what_is_not_known_of_nodes_is_said_first(missing: set[str], from_status: bool, said: str) -> None:
    whole = view(everybody_reports(accountant()))
    taken = replace(whole.capture, complete=False, missing=frozenset(missing))
    text = shown(replace(whole, capture=taken, from_status=from_status))
    assert said in text
    assert "every node accounted for" not in text
    assert [name for name in ("n1", "n2") if f"missing: node {name} has not reported" in text] == sorted(missing)


def test_silent_nodes_are_said_with_the_queues_whose_charge_is_old() -> None:
    found = everybody_reports(accountant())
    found.tick(10_000)
    text = seen(found, 10_000).text
    assert "3 silent nodes, their charge is kept" in text
    assert re.search(r"silent: node n0 since \d\d:\d\d:\d\d UTC", text)
    assert text.count("stale part") == 2  # leaf, and dept above it


# --- troubles -----------------------------------------------------------------------------------------------------------


def test_every_trouble_is_a_line_and_strangers_texts_are_no_markup() -> None:
    found = accountant(taken=objects(queue("<s>dept"), queue("lost", "<s>nowhere")))
    everybody_reports(found)
    whole = view(found)
    page = Outline(render_page(replace(whole, capture=replace(whole.capture, status_differs={"<u>dept": 61.0}))))
    assert not page.wrong
    assert "uncharged: 3 pods of queue leaf, which does not exist" in page.text
    assert "refused: queue lost:" in page.text
    assert "<s>nowhere" in page.text
    assert "disagreement: Queue.status of <u>dept differs since 00:01:01 UTC" in page.text
    assert not {"s", "u"} & {tag for tag, _ in page.elements}


def test_pods_of_no_queue_are_told_apart_from_those_of_one_that_does_not_exist() -> None:
    found = everybody_reports(accountant(taken=replace(objects(), pod_groups=())))
    assert "uncharged: 3 pods of no queue" in seen(found).text


def test_a_bound_that_is_exceeded_is_told_with_its_numbers_and_marked_in_its_bar() -> None:
    page = seen(everybody_reports(accountant(), cores=5))
    assert "1 bounds exceeded" in page.text
    assert "over: queue leaf: cpu allocated 15 cores, limit 10 cores" in page.text
    assert bars(page, "held over") == [("width", 100.0)]


@pytest.mark.parametrize(("count", "more"), [(50, ""), (53, "and 3 more: see JSON")])
def test_a_long_list_of_troubles_ends(count: int, more: str) -> None:
    whole = view(everybody_reports(accountant()))
    taken = replace(whole.capture, missing=frozenset(f"n{number:02}" for number in range(count)))
    text = shown(replace(whole, capture=taken))
    assert text.count("missing: node") == 50
    assert ("more: see JSON" in text) is bool(more)
    assert more in text


# --- the tree -----------------------------------------------------------------------------------------------------------


def test_without_queues_there_is_no_tree() -> None:
    whole = view(accountant())
    assert "There are none." in shown(replace(whole, shares={}))


def test_queues_nest_as_they_do_and_two_levels_are_unfolded() -> None:
    chain = [queue(f"q{depth}", f"q{depth - 1}" if depth else "") for depth in range(4)]
    page = Outline(render_page(with_queues(*chain)))
    assert not page.wrong
    folds = [("open" in a) for tag, a in page.elements if tag == "details"]
    assert folds == [True, True, False]  # the last one has nothing to unfold
    assert [a["style"] for _, a in page.elements if a.get("class") == "name"] == [f"--depth:{n}" for n in range(4)]


def test_queues_stand_in_the_order_of_the_tree_each_with_its_names_and_priority() -> None:
    named = replace(queue("a", priority=7), display_name="Research")
    text = shown(with_queues(named, replace(queue("b"), display_name="b"), queue("c", "a")))
    assert re.findall(r"Research a 7 |\bb 100 |\bc 100 ", text) == ["Research a 7 ", "c 100 ", "b 100 "]


def bars(page: Outline, kind: str) -> list[tuple[str, float]]:
    """Every element of this kind in the bars: its property and percentage."""
    found = []
    for tag, attributes in page.elements:
        if tag == "i" and attributes.get("class") == kind and "style" in attributes:
            name, _, amount = attributes["style"].rpartition(":")
            found.append((name.rpartition(";")[2], float(amount.rstrip("%"))))
    return found


def one_queue(view_of_it: AccountantView, **values: float) -> AccountantView:
    """The queue q with these amounts of CPU in millicores, and 10 cores to divide."""
    each = view_of_it.shares["q"]
    cpu = {name: amounts(cpu=values.get(name, 0)) for name in ("allocated", "non_preemptible", "fair")}
    return replace(view_of_it, shares={"q": share(each.queue, **cpu)}, total=amounts(cpu=10_000), violations=())


@pytest.mark.parametrize(
    ("bounds", "values", "expected"),
    [
        pytest.param(
            (4_000, 8_000),
            {"allocated": 2_000, "non_preemptible": 1_000, "fair": 6_000},
            {"held": 25, "fixed": 12.5, "mark quota": 50, "mark fair": 75, "mark limit": 100},
            id="a bar ends at the limit",
        ),
        pytest.param(
            (4_000, 8_000),
            {"allocated": 16_000},
            {"held": 100, "mark quota": 25, "mark limit": 50},
            id="or at what is held beyond it",
        ),
        pytest.param(
            (-1, -1), {"allocated": 4_000}, {"held": 80}, id="without a limit there is room for more, and no mark"
        ),
        pytest.param((-1, -1), {"allocated": 9_000}, {"held": 90}, id="up to what there is to divide"),
        pytest.param((-1, -1), {"allocated": 12_000}, {"held": 100}, id="or held beyond that"),
        pytest.param((0, 0), {"allocated": 1_000}, {"held": 100, "mark limit": 0}, id="a limit of nothing is marked"),
    ],
)  # fmt: skip
def test_a_bar_shows_amounts_and_bounds_to_one_scale(
    bounds: tuple[float, float], values: dict[str, float], expected: dict[str, float]
) -> None:
    page = Outline(render_page(one_queue(with_queues(queue("q", cpu=bounds)), **values)))
    kinds = ("held", "held over", "fixed", "reserved", "mark quota", "mark fair", "mark limit")
    assert {kind: found[0][1] for kind in kinds if (found := bars(page, kind))} == expected


def test_what_is_reserved_stands_behind_what_is_held() -> None:
    found = everybody_reports(accountant(ledger=True))
    resize(found, "u0", 2, 4)
    page = seen(found)
    leaf = [a["style"] for _, a in page.elements if a.get("class") == "reserved" and "style" in a][-1]
    assert leaf == "left:60%;width:20%"  # 6 of 10 cores, 2 more to come


def test_numbers_beside_a_bar_are_those_of_the_queue() -> None:
    whole = with_queues(queue("q", cpu=(4_500, -1)))
    page = Outline(render_page(one_queue(whole, allocated=250, fair=6_000)))
    assert "cpu 0.25 · quota 4.5 · fair 6 · limit ∞" in page.text
    labels = [a["aria-label"] for _, a in page.elements if a.get("class") == "bar"]
    assert labels == ["0.25 · quota 4.5 · fair 6 · limit ∞"]


@pytest.mark.parametrize(
    ("queues", "columns"),
    [
        pytest.param([queue("q")], ["cpu"], id="nothing is used: one column without bars"),
        pytest.param([queue("q", gpu=(2, 4))], ["gpu"], id="a quota is a use"),
        pytest.param([queue("q", memory=GIB), queue("r", gpu=(0, 1))], ["memory", "gpu"], id="of any queue"),
    ],
)
def test_resources_that_nobody_has_a_number_for_have_no_column(queues: list[Queue], columns: list[str]) -> None:
    empty = with_queues(*queues)
    bare = {name: share(each.queue) for name, each in empty.shares.items()}
    page = Outline(render_page(replace(empty, shares=bare, total=amounts())))
    head = page.text[page.text.index("queue, priority") + len("queue, priority") :].split()
    assert [word.rstrip(",") for word in head if word.rstrip(",") in ("cpu", "memory", "gpu")][
        : len(columns)
    ] == columns
    assert [a["style"] for tag, a in page.elements if tag == "section" and "style" in a] == [
        f"--columns:{len(columns)}"
    ]


def test_a_queue_that_has_and_may_have_nothing_has_an_empty_bar() -> None:
    empty = with_queues(queue("q", cpu=(0, -1)))
    page = Outline(render_page(replace(empty, shares={"q": share(empty.shares["q"].queue)}, total=amounts())))
    assert [a["class"] for _, a in page.elements if a.get("class", "").startswith("bar")] == ["bar none"]


# --- reservations -------------------------------------------------------------------------------------------------------


def test_admitted_growth_is_listed_with_what_is_to_come_and_its_end() -> None:
    found = everybody_reports(accountant(ledger=True))
    resize(found, "u0", 2, 4)
    text = seen(found).text
    assert "Growth admitted and not seen yet (1)" in text
    assert re.search(r"prod/u0 leaf 2 cores 0 bytes \d\d:\d\d:\d\d UTC", text)
    assert "Reservations: 1" in text
