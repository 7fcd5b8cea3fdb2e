from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.pods import decode_pod
from agent.model.pod import Pod
from agent.model.queue import PodGroup, Preemptibility, Queue
from agent.model.state import Epoch
from agent.queues.accounting import UNPLACED, Accounting, Taken
from agent.queues.charge import NANO, NO_AMOUNTS, Amounts, ChargeOptions, PodCharge, pod_charge
from agent.queues.options import Profile
from agent.queues.resize_bounds import BoundKind
from agent.queues.resize_growth import CPUMemory
from agent.queues.totals import QueueTotals, Totals
from agent.queues.tree import QueueTree, build
from agent.queues.violations import violations
from agent.queues.workloads import Directory
from tests.queues.build import amounts, queue

E1, E2 = Epoch(1, "0" * 16), Epoch(2, "0" * 16)
QUEUES = [queue("top"), queue("a", "top"), queue("b", "top"), queue("alone")]


def tree_of(queues: list[Queue]) -> QueueTree:
    tree, problems = build(queues)
    assert not problems
    return tree


def cores(count: float, queue_name: str = "a", *, preemptible: bool = True, pending: bool = False) -> PodCharge:
    cost = Amounts(cpu=round(count * NANO))
    return PodCharge("ns/p", queue_name, preemptible, NO_AMOUNTS if pending else cost, cost)


def accounting() -> Accounting:
    return Accounting(tree_of(QUEUES), patience_seconds=60)


def held(found: Accounting, name: str = "top") -> float:
    return found.totals.of(name).allocated.cpu / NANO


def test_a_report_charges_the_queue_and_every_ancestor() -> None:
    found = accounting()
    found.take_report("n1", (E1, 1), {"u1": cores(2), "u2": cores(1, "b", preemptible=False)}, 0)
    found.take_report("n2", (E1, 1), {"u3": cores(4, pending=True)}, 0)
    assert [held(found, name) for name in ("top", "a", "b", "alone")] == [3, 2, 1, 0]
    top = found.totals.of("top")
    assert (top.allocated_non_preemptible.cpu, top.requested.cpu, top.pods) == (1 * NANO, 7 * NANO, 3)
    shares = found.totals.shares()
    assert shares["top"].allocated == amounts(cpu=3000)
    assert shares["a"].request == amounts(cpu=6000)


def test_pods_of_queues_that_do_not_exist_are_not_lost() -> None:
    found = accounting()
    found.take_report("n1", (E1, 1), {"u1": cores(2, "gone"), "u2": cores(1, "")}, 0)
    assert held(found) == 0
    assert {name: totals.pods for name, totals in found.totals.unknown().items()} == {"gone": 1, "": 1}
    found.move_to(tree_of([*QUEUES, queue("gone", "top")]))
    assert held(found) == 2


@pytest.mark.parametrize(
    ("base", "stamp", "taken", "cpus"),
    [
        pytest.param((E1, 5), (E1, 6), Taken.APPLIED, 3, id="the next one"),
        pytest.param((E1, 4), (E1, 5), Taken.OLD, 2, id="one that was applied before"),
        pytest.param((E1, 6), (E1, 7), Taken.GAP, 2, id="one whose base never came"),
        pytest.param((E1, 4), (E1, 6), Taken.GAP, 2, id="one that starts too early"),
        pytest.param((E2, 0), (E2, 1), Taken.GAP, 2, id="one of a new epoch"),
    ],
)
def test_changes_apply_to_the_report_they_are_based_on(
    base: tuple[Epoch, int], stamp: tuple[Epoch, int], taken: Taken, cpus: float
) -> None:
    found = accounting()
    found.take_report("n1", (E1, 5), {"u1": cores(2), "u2": cores(1, pending=True)}, 0)
    assert found.take_changes("n1", base, stamp, {"u3": cores(3)}, ["u1", "never"], 1) is taken
    assert held(found) == cpus
    assert found.take_changes("n9", base, stamp, {}, [], 1) is Taken.GAP


def test_reports_never_run_backwards() -> None:
    found = accounting()
    assert found.take_report("n1", (E2, 1), {"u1": cores(1)}, 0) is Taken.APPLIED
    assert found.take_report("n1", (E1, 9), {"u1": cores(8)}, 0) is Taken.OLD
    assert found.take_report("n1", (E2, 1), {"u1": cores(8)}, 0) is Taken.OLD
    assert held(found) == 1
    assert found.nodes() == {"n1": (E2, 1)}


def test_without_a_report_the_api_servers_pods_count_and_with_one_they_do_not() -> None:
    found = accounting()
    found.observe("n1", {"u1": cores(1), "u2": cores(1)}, 0)
    assert held(found) == 2
    found.take_report("n1", (E1, 1), {"u1": cores(5)}, 0)
    assert held(found) == 5


def test_where_the_views_differ_for_long_the_larger_counts() -> None:
    found = accounting()
    found.take_report("n1", (E1, 1), {"same": cores(1), "smaller": cores(1), "larger": cores(9)}, 0)
    found.observe("n1", {"same": cores(1), "smaller": cores(4), "larger": cores(2), "unknown": cores(16)}, 10)
    assert held(found) == 11
    assert found.disagreements() == {"n1": {"smaller": 10, "larger": 10, "unknown": 10}}
    found.tick(69)
    assert held(found) == 11
    found.tick(70)
    assert held(found) == 1 + 4 + 9 + 16
    found.take_changes("n1", (E1, 1), (E1, 2), {"smaller": cores(4)}, [], 71)
    found.observe_pod("n1", "unknown", None, 72)
    assert held(found) == 1 + 4 + 9
    assert [set(pods) for pods in found.disagreements().values()] == [{"larger"}]


def test_a_pending_pod_counts_once_when_its_node_takes_it_up() -> None:
    found = accounting()
    found.observe(UNPLACED, {"u1": cores(2, pending=True), "u2": cores(1, pending=True)}, 0)
    found.take_report("n1", (E1, 1), {"u1": cores(2)}, 1)
    top = found.totals.of("top")
    assert (top.allocated.cpu, top.requested.cpu, top.pods) == (2 * NANO, 3 * NANO, 2)
    found.take_changes("n1", (E1, 1), (E1, 2), {}, ["u1"], 2)
    assert found.totals.of("top").pods == 2
    found.observe(UNPLACED, {}, 3)
    assert found.totals.of("top") == QueueTotals()


def test_a_silent_node_keeps_its_charge_marked_stale_until_it_is_released() -> None:
    found = accounting()
    found.take_report("n1", (E1, 1), {"u1": cores(2)}, 0)
    found.take_report("n2", (E1, 1), {"u2": cores(1, "b")}, 0)
    found.silent("n1", 100)
    found.silent("n1", 200)
    assert found.stale() == {"n1": 100}
    assert held(found) == 3
    assert found.stale_totals().of("top").allocated.cpu == 2 * NANO
    found.take_report("n1", (E1, 1), {}, 0)  # the same report once more: it is alive
    assert found.stale() == {}
    found.silent("n1", 300)
    found.release("n1", 301)
    assert held(found) == 1
    assert found.stale() == {}
    assert found.charge_of("u1") is None
    assert found.charge_of("u2") == cores(1, "b")


def test_a_violation_names_queue_resource_and_bound() -> None:
    found = Accounting(tree_of([queue("a", cpu=(1000, 4000)), queue("b", cpu=(1000, -1))]))
    found.take_report("n1", (E1, 1), {"u1": cores(5), "u2": cores(2, "b", preemptible=False)}, 0)
    seen = list(violations(found.totals.shares(), Profile.V0_18))
    assert [(each.queue, each.bound_kind) for each in seen] == [("a", BoundKind.LIMIT), ("b", BoundKind.QUOTA)]
    assert str(seen[0]) == "queue a: cpu allocated 5 cores, limit 4 cores"


charges = st.builds(
    cores,
    st.sampled_from([0.1, 0.2, 0.3, 1 / 3, 2]),
    st.sampled_from(["a", "b", "alone", "gone"]),
    preemptible=st.booleans(),
    pending=st.booleans(),
)
pods = st.dictionaries(st.sampled_from("uvwxyz"), charges, max_size=5)


@given(st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), pods), max_size=12), st.randoms())
def test_sums_kept_step_by_step_equal_a_rebuild_from_full_reports(
    reports: list[tuple[str, dict[str, PodCharge]]], random: Random
) -> None:
    stepwise, last = accounting(), dict[str, dict[str, PodCharge]]()
    for generation, (node, found) in enumerate(reports):
        named = {f"{node}-{uid}": charge for uid, charge in found.items()}
        before, stamp = last.get(node), (E1, generation)
        base = stepwise.nodes().get(node)
        if before is None or base is None or random.random() < 0.3:
            stepwise.take_report(node, stamp, named, generation)
        else:
            changed = {uid: charge for uid, charge in named.items() if before.get(uid) != charge}
            stepwise.take_changes(node, base, stamp, changed, before.keys() - named.keys(), generation)
        last[node] = named
    rebuilt = accounting()
    for node, named in last.items():
        rebuilt.take_report(node, (E1, 99), named, 0)
    for name in ("top", "a", "b", "alone"):
        assert stepwise.totals.of(name) == rebuilt.totals.of(name)
    assert stepwise.totals.unknown() == rebuilt.totals.unknown()
    assert stepwise.counted() == rebuilt.counted()


def test_adding_and_taking_away_never_drifts() -> None:
    totals = Totals(tree_of(QUEUES))
    third = PodCharge("ns/p", "a", True, Amounts(gpu=NANO // 3), NO_AMOUNTS)
    totals.add(third)
    for _ in range(1000):
        totals.add(cores(0.1))
        totals.remove(cores(0.1))
    assert totals.of("top").allocated == third.allocated
    totals.remove(third)
    assert totals.of("top") == QueueTotals()


def running(phase: str = "Running", node: str = "n1", **annotations: str) -> Pod:
    statuses = [{"name": "c", "resources": {"requests": {"cpu": "3"}}, "allocatedResources": {"cpu": "3"}}]
    containers = [{"name": "c", "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}}]
    spec = {"nodeName": node, "containers": containers, "overhead": {"cpu": "100m"}}
    metadata = {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "annotations": annotations,
        "labels": {"kai.scheduler/queue": "b"},
    }
    return decode_pod({"metadata": metadata, "spec": spec, "status": {"phase": phase, "containerStatuses": statuses}})


def test_a_pod_of_the_api_server_costs_what_it_occupies() -> None:
    group = PodGroup("ns", "pg", "a", preemptibility=Preemptibility.NON_PREEMPTIBLE)
    directory, options = Directory.of(QUEUES, [group]), ChargeOptions({"n1": 10000})
    charge = pod_charge(running(**{"pod-group-name": "pg", "gpu-memory": "2550"}), directory, options)
    assert charge is not None
    assert (charge.pod, charge.queue, charge.preemptible) == ("ns/p", "a", False)
    assert charge.allocated.cpu_memory() == CPUMemory(3100, 2**30)
    assert charge.requested.cpu_memory() == CPUMemory(2100, 2**30)
    assert charge.allocated.quantities().gpu == 0.26
    loose = pod_charge(running(), directory, options)
    assert loose is not None
    assert (loose.queue, loose.preemptible) == ("b", True)
    pending = pod_charge(running("Pending"), directory, options)
    assert pending is not None
    assert pending.allocated == NO_AMOUNTS
    assert pod_charge(running("Succeeded"), directory, options) is None


def test_a_pod_that_two_nodes_claim_counts_once_where_it_is_largest() -> None:
    found = accounting()
    found.take_report("n1", (E1, 1), {"u1": cores(2)}, 0)
    found.take_report("n2", (E1, 1), {"u1": cores(3), "u2": cores(1)}, 0)
    found.observe("n3", {"u1": cores(1)}, 0)
    assert held(found) == 4
    assert found.charge_of("u1") == cores(3)
    found.silent("n2", 5)
    assert found.stale_totals().of("top").allocated.cpu == 4 * NANO
    found.take_changes("n2", (E1, 1), (E1, 2), {}, ["u1"], 6)
    assert (held(found), found.charge_of("u1")) == (3, cores(2))
    found.release("n1", 7)
    assert (held(found), found.charge_of("u1")) == (2, cores(1))
    assert found.stale_totals().of("top") == QueueTotals()


uids = st.sampled_from("uvw")
node_names = st.sampled_from(["n1", "n2", UNPLACED])
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("report"), st.sampled_from(["n1", "n2"]), st.dictionaries(uids, charges, max_size=3)),
        st.tuples(st.just("observe"), node_names, st.dictionaries(uids, charges, max_size=3)),
        st.tuples(st.just("pod"), node_names, st.tuples(uids, st.none() | charges)),
        st.tuples(st.sampled_from(["silent", "heard", "release", "tick"]), node_names, st.none()),
    ),
    max_size=20,
)


@given(happenings)
def test_whatever_happens_sums_and_stale_sums_are_those_of_what_counts(history: list[tuple[str, str, Any]]) -> None:
    found = accounting()
    for now, (what, node, value) in enumerate(history):
        match what:
            case "report":
                found.take_report(node, (E1, now), value, now)
            case "observe":
                found.observe(node, value, now)
            case "pod":
                uid, charge = value
                found.observe_pod(node, uid, charge, now)
            case "silent":
                found.silent(node, now)
            case "heard":
                found.heard(node)
            case "release":
                found.release(node, now)
            case "tick":
                found.tick(now * 100)
        expected, stale = Totals(found.totals.tree), Totals(found.totals.tree)
        for place, charge in found.counted().values():
            expected.add(charge)
            if place in found.stale():
                stale.add(charge)
        for name in ("top", "a", "b", "alone"):
            assert found.totals.of(name) == expected.of(name)
            assert found.stale_totals().of(name) == stale.of(name)
        claimed = {uid for place in ("n1", "n2", UNPLACED) for uid in found.pods_of(place)}
        assert claimed == found.counted().keys()


@given(
    st.lists(st.tuples(st.sampled_from(["n1", "n2", "n3"]), pods), max_size=5, unique_by=lambda each: each[0]),
    st.randoms(),
)
def test_which_of_several_nodes_a_pod_counts_on_does_not_depend_on_the_order(
    reports: list[tuple[str, dict[str, PodCharge]]], random: Random
) -> None:
    found = []
    for _ in range(2):
        random.shuffle(reports)
        one = accounting()
        for node, told in reports:
            one.take_report(node, (E1, 1), told, 0)
        found.append(one)
    assert found[0].counted() == found[1].counted()
    assert found[0].totals.of("top") == found[1].totals.of("top")
