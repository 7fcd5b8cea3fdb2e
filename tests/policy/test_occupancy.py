"""The occupancy report: everybody's amounts, per zone, during resizes, and what it adds up to."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.occupancy import Occupancy
from agent.model.pod import ContainerKind, Pod
from agent.model.state import PodRecord, Resize, ResizeState
from agent.policy.managers import Managers
from agent.policy.memory_split import pod_splits
from agent.policy.node_fit import NodeCapacity
from agent.policy.occupancy import OccupancyMaker, Origin
from agent.policy.resize_terms import effective_requests
from tests.nodes import GIB, named, node
from tests.pods import app, guaranteed, sized, spelt
from tests.policy.cpu_machines import regular
from tests.policy.resizing import EXCLUSIVE, Node, capacity, sizes
from tests.policy.test_admission_properties import nodes, pods
from tests.policy.test_resize_properties import edits

ORIGIN = Origin("worker-1")


def report_of(node: Node) -> Occupancy:
    return OccupancyMaker(ORIGIN).report(node.state, node.managers, node.node, 1.5)


def held(report: Occupancy, uid: str) -> str:
    """ "node-0: cpus 1-2 memory 1Gi" of one pod, in short."""
    return " ".join(
        f"{zone}:{each.cpus}" + "".join(f"+{size / GIB:g}Gi" for size in each.memory.values())
        for zone, each in report.pods[uid].held.items()
    )


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "state", "expected"),
    [
        (4, 8, 8, ResizeState.IN_PROGRESS, 8),
        (16, 8, 8, ResizeState.INFEASIBLE, 8),
        (16, 8, 8, ResizeState.DEFERRED, 16),
        (8, 8, 4, ResizeState.IN_PROGRESS, 8),
        (32, 16, 8, ResizeState.INFEASIBLE, 16),
        (4, 4, 8, ResizeState.IN_PROGRESS, 8),
    ],
)
def test_the_effective_request_of_every_state(
    spec: int, allocated: int, actual: int, state: ResizeState, expected: int
) -> None:
    """BL-51, row by row."""

    def of(cpus: int) -> Pod:
        return named("p", app(f"cpu={cpus}", f"cpu={cpus}"))

    record = PodRecord(of(allocated), resize=Resize(state, desired=of(spec), actual=of(actual)))
    assert spelt(effective_requests(record)) == f"cpu={expected}"


def test_what_is_bound_what_is_held_and_what_ended_can_be_told_apart() -> None:
    """BL-50: every report names its pods, so that a reader that missed one converges."""
    node_ = Node(node(regular(9)), capacity("cpu=8 memory=64Gi"))
    y, x = named("y", guaranteed("2")), named("x", guaranteed("4"))
    node_.want(y)
    first = report_of(node_)
    node_.end("y")
    node_.want(x)
    last = report_of(node_)
    assert (list(first.pods), list(last.pods)) == (["y"], ["x"])
    assert first.stamp < last.stamp
    assert (spelt(first.totals), spelt(last.totals)) == ("cpu=2 memory=1Gi", "cpu=4 memory=1Gi")
    assert held(last, "x") == "0:1-4"


def test_a_bubble_counts_once() -> None:
    """BL-46: the pod has four CPUs, whatever its members share."""
    managers = node(
        regular(8),
        topology_policy="best-effort",
        topology_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    node_ = Node(managers, capacity("cpu=7 memory=64Gi"))
    whole = "cpu=4 memory=4Gi"
    node_.want(named("b", guaranteed("2", name="main"), app(name="s1"), app(name="s2"), resources=sized(whole, whole)))
    report = report_of(node_)
    assert held(report, "b") == "0:1-4"
    assert [(each.name, dict(each.held)) for each in report.pods["b"].containers if each.held] == [
        ("main", report.pods["b"].containers[0].held)
    ]
    assert report.pods["b"].containers[0].held[0].cpus == CPUSet.parse("1-2")
    assert report.zones[0].resources["cpu"].held == 4


def test_the_terms_and_the_shortfall_of_a_deferred_resize_are_shown() -> None:
    managers = node(regular(16, numa=2), feature_gates=EXCLUSIVE, topology_policy="single-numa-node")
    node_ = Node(managers, capacity("cpu=15 memory=64Gi"))
    p, q = named("p", guaranteed("3")), named("q", guaranteed("3"))
    node_.want(p, q)
    node_.want(sizes(p, "cpu=6 memory=1Gi"))
    pod = report_of(node_).pods["p"]
    assert [
        spelt(each) for each in (pod.terms.desired, pod.terms.allocated, pod.terms.actual, pod.terms.effective)
    ] == [
        "cpu=6 memory=1Gi",
        "cpu=3 memory=1Gi",
        "cpu=3 memory=1Gi",
        "cpu=6 memory=1Gi",
    ]
    assert (pod.resize.state, pod.resize.shortfall[0].amount) == (ResizeState.DEFERRED, 2000)


def test_the_split_of_memory_over_nodes_is_that_of_the_tables() -> None:
    """The same calls in another order split differently; the report follows the tables."""
    managers = node(regular(8, numa=2), memory_policy="Static", topology_policy="best-effort", memory_gib=23)
    node_ = Node(managers, capacity("cpu=7 memory=64Gi"))
    node_.want(named("p1", guaranteed("1", "24Gi")), named("p2", guaranteed("1", "2Gi")))
    report = report_of(node_)
    assert held(report, "p1") == "0:1+22Gi 1:+2Gi"
    assert held(report, "p2") == "0:2 1:+2Gi"
    assert [zone.resources["memory"].held // GIB for zone in report.zones] == [22, 4]


# --- laws -----------------------------------------------------------------------------------------------------------------


def shared_pods(uid: str) -> st.SearchStrategy[Pod]:
    """Burstable pods: nothing but the room on the node limits their resizes."""
    return st.builds(
        lambda cpu, memory: named(uid, app(f"cpu={cpu} memory={memory}Gi", "cpu=64 memory=64Gi")),
        st.sampled_from(["500m", "1", "2"]),
        st.integers(1, 3),
    )


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[Node, Occupancy]]:
    """A node through random admissions, ends, edits and answers of the kernel; a report of every generation."""
    managers: Managers = draw(nodes())
    gates = replace(
        managers.gates,
        in_place_pod_vertical_scaling_exclusive_cpus=draw(st.booleans()),
        in_place_pod_vertical_scaling_exclusive_memory=draw(st.booleans()),
    )
    node_ = Node(replace(managers, gates=gates), draw(st.sampled_from([capacity("cpu=31 memory=40Gi"), SMALL])))
    reports = []
    ops = draw(
        st.lists(st.sampled_from(["add", "edit", "edit", "edit", "end", "kernel", "error"]), min_size=6, max_size=14)
    )
    for index, what in enumerate(["add", "add", "add", *ops]):
        here = sorted(set(node_.wanted) & {record.pod.name for record in node_.state.pods.values()})
        if what == "add":
            node_.want(draw(pods(f"p{index}") | shared_pods(f"p{index}")))
        elif not here:
            continue
        elif what == "edit":
            node_.want(draw(edits(node_.wanted[draw(st.sampled_from(here))])))
        elif what == "end":
            node_.end(draw(st.sampled_from(here)))
        elif what == "kernel":
            node_.kernel()
        else:
            node_.kernel({draw(st.sampled_from(here)): "below current usage"})
        copy = Node(node_.managers, node_.node)
        copy.state = node_.state
        reports.append((copy, report_of(node_)))
    return reports


SMALL = capacity("cpu=7 memory=12Gi")


@given(histories())
def test_a_maker_that_remembers_makes_what_one_without_memory_makes(history: list[tuple[Node, Occupancy]]) -> None:
    maker = OccupancyMaker(ORIGIN)
    for node_, fresh in history:
        assert maker.report(node_.state, node_.managers, node_.node, 1.5) == fresh


def test_a_pod_that_has_not_changed_is_not_made_again() -> None:
    node_, maker = Node(node(regular(9)), capacity("cpu=8 memory=64Gi")), OccupancyMaker(ORIGIN)
    node_.want(named("x", guaranteed("2")))
    first = maker.report(node_.state, node_.managers, node_.node, 1.5)
    node_.want(named("y", guaranteed("2")))
    second = maker.report(node_.state, node_.managers, node_.node, 2.5)
    node_.want(sizes(named("x", guaranteed("2")), "cpu=3 memory=1Gi"))
    third = maker.report(node_.state, node_.managers, node_.node, 3.5)
    assert second.pods["x"] is first.pods["x"]
    assert third.pods["x"] is not second.pods["x"]
    assert third.pods["y"] is second.pods["y"]


def model_of(record: PodRecord) -> dict[str, Fraction]:
    """An independent reading of the rule: the largest of three terms per container, then the busiest moment of the pod."""
    resize = record.resize
    terms = [record.pod, resize.actual or record.pod]
    if resize.state is not ResizeState.INFEASIBLE and resize.desired is not None:
        terms.append(resize.desired)
    totals: dict[str, Fraction] = {}
    for resource in ("cpu", "memory"):
        together = sidecars = peak = Fraction(0)
        for container in record.pod.containers:
            sized_as = [next(each for each in term.containers if each.name == container.name) for term in terms]
            if container.kind is ContainerKind.INIT:
                sized_as = [
                    next(each for each in (resize.desired or record.pod).containers if each.name == container.name)
                ]
            largest = max(
                (each.resources.requests[resource].number if resource in each.resources.requests else Fraction(0))
                for each in sized_as
            )
            if container.kind is ContainerKind.INIT:
                peak = max(peak, sidecars + largest)
            else:
                together += largest
                if container.kind is ContainerKind.SIDECAR:
                    sidecars += largest
                    peak = max(peak, sidecars)
        totals[resource] = max(together, peak)
        if record.pod.resources is not None:
            totals[resource] = max(
                term.resources.requests[resource].number for term in terms if term.resources is not None
            )
    return totals


@given(histories())
def test_every_report_is_explained_by_the_state_of_its_generation(history: list[tuple[Node, Occupancy]]) -> None:
    for node_, report in history:
        state = node_.state
        assert (report.epoch, report.generation) == state.stamp
        assert list(report.pods) == list(state.pods)
        for resource in ("cpu", "memory"):
            parts = [model_of(record)[resource] for record in state.pods.values()]
            total = report.totals.get(resource)
            assert (total.number if total is not None else 0) == sum(parts)
        for uid, record in state.pods.items():
            pod = report.pods[uid]
            assert pod.terms.allocated["cpu"] <= pod.terms.effective["cpu"]
            assert pod.resize.state is record.resize.state


@given(histories())
def test_zones_are_the_sum_of_their_pods_and_nothing_is_counted_twice(history: list[tuple[Node, Occupancy]]) -> None:
    for _, report in history:
        for zone in report.zones:
            here = [pod.held[zone.node] for pod in report.pods.values() if zone.node in pod.held]
            assert zone.resources["cpu"].held == sum(len(each.cpus) for each in here)
            assert zone.exclusive == CPUSet.of(cpu for each in here for cpu in each.cpus)
            for kind, amounts in zone.resources.items():
                if kind != "cpu":
                    assert amounts.held == sum(each.memory.get(kind, 0) for each in here)
                assert amounts.free >= 0
                assert amounts.held + amounts.free <= amounts.allocatable or kind == "cpu"
        for pod in report.pods.values():
            for container in pod.containers:
                for node_id, each in container.held.items():
                    assert each.cpus <= pod.held[node_id].cpus
                    assert all(size <= pod.held[node_id].memory[kind] for kind, size in each.memory.items())


@given(histories())
def test_totals_never_drop_before_the_kernel_has_let_go(history: list[tuple[Node, Occupancy]]) -> None:
    """A pod's charge falls only when it ends, when its wish is withdrawn or refused for good, or when a shrink is in force."""
    for (before, first), (after, second) in itertools.pairwise(history):
        for uid in set(first.pods) & set(second.pods):
            old, new = before.state.pods[uid].resize, after.state.pods[uid].resize
            wish_gone = old.desired is not None and (new.desired != old.desired or new.state is not old.state)
            in_force = old.actual is not None and new.actual is None
            if not (wish_gone or in_force):
                was, now = first.pods[uid].terms.effective, second.pods[uid].terms.effective
                assert all(amount <= now[name] for name, amount in was.items())


@given(histories())
def test_splits_use_up_the_tables_exactly(history: list[tuple[Node, Occupancy]]) -> None:
    for node_, _ in history:
        memory = node_.state.grants.memory
        summed: dict[tuple[int, str], int] = {}
        for splits in pod_splits(memory, node_.state.pods).values():
            for split in splits.values():
                for numa, tables in split.items():
                    for kind, size in tables.items():
                        summed[numa, kind] = summed.get((numa, kind), 0) + size
        for numa, state in memory.machine.items():
            for kind, table in state.memory.items():
                assert summed.get((numa, kind), 0) == table.reserved


def test_without_a_memory_manager_zones_show_the_plain_memory() -> None:
    node_ = Node(node(regular(4, numa=2), memory_gib=8), NodeCapacity({}, {}))
    assert [zone.resources["memory"].free for zone in report_of(node_).zones] == [8 * GIB, 8 * GIB]


def test_reserved_is_what_allocatable_lacks() -> None:
    full, left = capacity("cpu=8 memory=8Gi").capacity, capacity("cpu=7500m memory=7Gi").capacity
    node_ = Node(node(regular(8)), NodeCapacity(full, left))
    report: Any = report_of(node_)
    assert spelt(report.reserved) == "cpu=500m memory=1Gi"
