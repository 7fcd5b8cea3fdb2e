from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.pods import decode_pod
from agent.model.pod import Pod, PodCondition
from agent.model.quantity import Quantity
from agent.model.queue import PodGroup, Preemptibility, Queue, QueueStatus, ResourceQuantities
from agent.queues.derivation import Rule
from agent.queues.resize_admission import Mode, ResizeAnswer, ResizeOptions, ResizeReason, decide_resize
from agent.queues.resize_bounds import BoundKind, QueueCharge
from agent.queues.resize_growth import CPUMemory, growth, is_allocated
from agent.queues.workloads import Directory
from tests.queues.build import queue

Sizes = Mapping[str, str]


def pod(
    *sizes: Sizes,
    actual: tuple[Sizes, ...] = (),
    reason: str = "",
    phase: str = "Running",
    pod_level: Sizes | None = None,
    pod_level_actual: Sizes | None = None,
    group: str = "pg",
    scheduler: str = "kai-scheduler",
) -> Pod:
    """A pod of containers c0, c1, ... with these requests; `actual` is what their status says."""
    conditions = [{"type": "PodResizePending", "reason": reason}] if reason else []
    statuses = [
        {"name": f"c{i}", "resources": {"requests": each}, "allocatedResources": each} for i, each in enumerate(actual)
    ]
    status: dict[str, object] = {"phase": phase, "conditions": conditions, "containerStatuses": statuses}
    if pod_level_actual is not None:
        status["resources"] = {"requests": pod_level_actual}
    spec: dict[str, object] = {
        "schedulerName": scheduler,
        "containers": [{"name": f"c{i}", "resources": {"requests": each}} for i, each in enumerate(sizes)],
    }
    if pod_level is not None:
        spec["resources"] = {"requests": pod_level}
    metadata = {"name": "web", "namespace": "prod", "annotations": {"pod-group-name": group}}
    return decode_pod({"metadata": metadata, "spec": spec, "status": status})


def status(cpu: str = "0", memory: str = "0", fixed_cpu: str = "0") -> QueueStatus:
    return QueueStatus(
        {"cpu": Quantity.parse(cpu), "memory": Quantity.parse(memory)}, {"cpu": Quantity.parse(fixed_cpu)}
    )


def admit(
    old: Pod, new: Pod, *queues: Queue, preemptible: bool = True, options: ResizeOptions | None = None
) -> ResizeAnswer:
    kind = Preemptibility.PREEMPTIBLE if preemptible else Preemptibility.NON_PREEMPTIBLE
    directory = Directory.of(queues, [PodGroup("prod", "pg", queues[0].name if queues else "", preemptibility=kind)])
    return decide_resize(old, new, directory, options or ResizeOptions())


LEAF = replace(queue("leaf", "dept", cpu=(4000, 10000)), status=status("8", fixed_cpu="3"))
DEPT = replace(queue("dept", cpu=(-1, 11000)), status=status("10"))
TWO = pod({"cpu": "2", "memory": "1Gi"})
UNBOUNDED = ResourceQuantities(-1.0, -1.0, -1.0)


@pytest.mark.parametrize(
    ("new", "queues", "preemptible", "rejected_by"),
    [
        pytest.param({"cpu": "3", "memory": "1Gi"}, [LEAF, DEPT], True, None, id="fits"),
        pytest.param(
            {"cpu": "4", "memory": "1Gi"}, [LEAF, DEPT], True, ("dept", "limit", 1000), id="an ancestor's limit"
        ),
        pytest.param(
            {"cpu": "5", "memory": "1Gi"}, [LEAF, DEPT], True, ("leaf", "limit", 1000), id="the leaf's limit first"
        ),
        pytest.param(
            {"cpu": "4", "memory": "1Gi"}, [LEAF], False, ("leaf", "quota", 1000), id="the quota of fixed work"
        ),
        pytest.param({"cpu": "1", "memory": "9Gi"}, [LEAF, DEPT], False, None, id="memory is not bounded here"),
    ],
)
def test_growth_must_fit_every_queue_of_the_path(
    new: Sizes, queues: list[Queue], preemptible: bool, rejected_by: tuple[str, str, int] | None
) -> None:
    answer = admit(TWO, pod(new), *queues, preemptible=preemptible)
    assert answer.allowed is (rejected_by is None)
    if rejected_by is not None:
        assert answer.rejection is not None
        name, bound, room = rejected_by
        found = answer.rejection
        assert (found.queue, found.bound_kind.value, found.room, found.mode) == (name, bound, room, Mode.CAPACITY)
        assert not answer.steps[-1].holds


def test_a_rejection_names_everything_a_user_needs() -> None:
    answer = admit(TWO, pod({"cpu": "5", "memory": "1Gi"}), LEAF, DEPT)
    assert answer.message == (
        "resize rejected: pod prod/web (PodGroup pg), queue leaf, cpu: allocated 8 cores + growth 3 cores "
        "exceeds limit 10 cores; 1 core more would fit"
    )


@pytest.mark.parametrize(
    ("old", "new", "options", "reason"),
    [
        pytest.param(
            TWO, pod({"cpu": "9"}, scheduler="default"), ResizeOptions(), ResizeReason.NOT_MANAGED, id="other scheduler"
        ),
        pytest.param(
            TWO,
            pod({"cpu": "9"}),
            ResizeOptions(validate_quota=False, block_upsize_on_bounded_queues=True),
            ResizeReason.VALIDATION_OFF,
            id="switched off",
        ),
        pytest.param(
            pod({"cpu": "2"}, phase="Pending"),
            pod({"cpu": "9"}),
            ResizeOptions(),
            ResizeReason.NOT_ALLOCATED,
            id="not scheduled yet",
        ),
        pytest.param(
            pod({"cpu": "2"}, group=""),
            pod({"cpu": "9"}),
            ResizeOptions(),
            ResizeReason.NO_POD_GROUP,
            id="no pod group",
        ),
        pytest.param(
            pod({"cpu": "2"}, group="gone"),
            pod({"cpu": "9"}),
            ResizeOptions(),
            ResizeReason.POD_GROUP_NOT_FOUND,
            id="unknown pod group",
        ),
        pytest.param(TWO, pod({"cpu": "1"}), ResizeOptions(), ResizeReason.NO_GROWTH, id="downsize"),
        pytest.param(TWO, TWO, ResizeOptions(), ResizeReason.NO_GROWTH, id="limits only"),
    ],
)
def test_what_is_admitted_without_a_look_at_queues(
    old: Pod, new: Pod, options: ResizeOptions, reason: ResizeReason
) -> None:
    full = replace(queue("leaf", cpu=(0, 0), memory=(0, 0)), status=status("9", "9Gi"))
    answer = admit(old, new, full, options=options)
    assert (answer.allowed, answer.reason, answer.message) == (True, reason, reason.value)
    assert (answer.rejection, answer.steps) == (None, ())


@pytest.mark.parametrize(
    ("phase", "conditions", "charged"),
    [
        pytest.param("Running", [], True, id="running"),
        pytest.param("Pending", [("PodScheduled", "True")], True, id="pending, and a node was found"),
        pytest.param("Pending", [("PodScheduled", "False")], False, id="pending, and none was found"),
        pytest.param("Pending", [("Initialized", "True")], False, id="another condition says nothing of it"),
        pytest.param(
            "Pending", [("PodScheduled", "False"), ("PodScheduled", "True")], False, id="the first one counts"
        ),
        pytest.param("Pending", [("Ready", "False"), ("PodScheduled", "True")], True, id="the first of its kind"),
        pytest.param("Succeeded", [("PodScheduled", "True")], False, id="ended"),
        pytest.param("", [("PodScheduled", "True")], False, id="of no phase yet"),
    ],
)
def test_queues_are_charged_for_pods_that_have_a_node(
    phase: str, conditions: list[tuple[str, str]], charged: bool
) -> None:
    told = tuple(PodCondition(kind, value, "", "") for kind, value in conditions)
    old = pod({"cpu": "1"})
    assert is_allocated(replace(old, status=replace(old.status, phase=phase, conditions=told))) is charged


def test_an_answer_says_whose_pod_it_is_about_and_everything_that_was_compared() -> None:
    group = PodGroup("prod", "pg", "leaf", preemptibility=Preemptibility.PREEMPTIBLE)
    no_growth = admit(TWO, TWO, LEAF, DEPT)
    fits = admit(TWO, pod({"cpu": "3", "memory": "1Gi"}), LEAF, DEPT)
    refused = admit(TWO, pod({"cpu": "4", "memory": "1Gi"}), LEAF, DEPT)
    for answer in (no_growth, fits, refused):
        assert (answer.group, answer.pod_allocated, answer.preemptible) == (group, True, True)
    assert (fits.reason, fits.message) == (ResizeReason.FITS, ResizeReason.FITS.value)
    assert [(step.queue, step.rule, step.holds) for step in fits.steps] == [
        ("leaf", Rule.LIMIT, True),
        ("dept", Rule.LIMIT, True),
    ]
    assert refused.reason is ResizeReason.REJECTED
    assert [step.holds for step in refused.steps] == [True, False]


def test_the_room_of_fixed_work_is_what_quota_and_limit_leave() -> None:
    """The limit refuses, but its two cores of room are no help to work that the quota leaves one."""
    wide = replace(queue("leaf", cpu=(4000, 10000)), status=status("8", fixed_cpu="3"))
    fixed, free = (admit(TWO, pod({"cpu": "5", "memory": "1Gi"}), wide, preemptible=kind) for kind in (False, True))
    assert fixed.rejection is not None
    assert free.rejection is not None
    assert (fixed.rejection.bound_kind, fixed.rejection.room) == (BoundKind.LIMIT, 1000)
    assert (free.rejection.bound_kind, free.rejection.room) == (BoundKind.LIMIT, 2000)


def test_growth_of_a_pod_as_a_whole_is_judged_unless_upstreams_rule_is_wanted() -> None:
    old, new = pod({"cpu": "1"}, pod_level={"cpu": "2"}), pod({"cpu": "1"}, pod_level={"cpu": "9"})
    assert not admit(old, new, LEAF, DEPT).allowed
    assert admit(old, new, LEAF, DEPT, options=ResizeOptions(pod_level=False)).reason is ResizeReason.NO_GROWTH


def test_a_missing_queue_ends_the_walk_and_one_without_resources_is_skipped() -> None:
    new = pod({"cpu": "9", "memory": "1Gi"})
    assert admit(TWO, new).allowed
    open_leaf = replace(LEAF, has_resources=False)
    assert admit(TWO, new, open_leaf).allowed
    assert not admit(TWO, new, open_leaf, DEPT).allowed
    assert admit(TWO, pod({"cpu": "3", "memory": "1Gi"}), replace(LEAF, parent="leaf")).allowed  # a cycle ends it too


@pytest.mark.parametrize(
    ("old", "new", "delta"),
    [
        pytest.param(
            pod({"cpu": "1"}, {"cpu": "1"}), pod({"cpu": "500m"}, {"cpu": "1500m"}), {}, id="a move between containers"
        ),
        pytest.param(
            pod({"cpu": "1"}), pod({"cpu": "2", "memory": "1Gi"}), {"cpu": "1", "memory": "1Gi"}, id="a new resource"
        ),
        pytest.param(
            pod({"cpu": "2"}, actual=({"cpu": "3"},)), pod({"cpu": "4"}), {"cpu": "1"}, id="from what is occupied"
        ),
        pytest.param(
            pod({"cpu": "8"}, actual=({"cpu": "1"},), reason="Infeasible"),
            pod({"cpu": "2"}),
            {"cpu": "1"},
            id="back from an infeasible size",
        ),
        pytest.param(
            pod({"cpu": "8"}, actual=({"cpu": "1"},), reason="Infeasible"),
            pod({"cpu": "8"}),
            {},
            id="an unchanged infeasible size",
        ),
        pytest.param(
            pod({"cpu": "8"}, actual=({"cpu": "1"},), reason="Deferred"),
            pod({"cpu": "9"}),
            {"cpu": "1"},
            id="a deferred size is charged already",
        ),
    ],
)
def test_growth_is_the_new_spec_beyond_what_is_occupied(old: Pod, new: Pod, delta: Sizes) -> None:
    assert growth(old, new, pod_level=True) == {name: Quantity.parse(amount) for name, amount in delta.items()}


@pytest.mark.parametrize(
    ("old", "new", "delta"),
    [
        pytest.param(
            pod({"cpu": "1"}, pod_level={"cpu": "4"}), pod({"cpu": "1"}, pod_level={"cpu": "6"}), "2", id="grows"
        ),
        pytest.param(
            pod({"cpu": "1"}, pod_level={"cpu": "4"}), pod({"cpu": "1"}, pod_level={"cpu": "3"}), None, id="shrinks"
        ),
        pytest.param(
            pod({"cpu": "1"}), pod({"cpu": "1"}, pod_level={"cpu": "3"}), "2", id="from what the containers hold"
        ),
        pytest.param(
            pod({"cpu": "1"}, pod_level={"cpu": "4"}, pod_level_actual={"cpu": "5"}),
            pod({"cpu": "1"}, pod_level={"cpu": "6"}),
            "1",
            id="from what is actual",
        ),
        pytest.param(
            pod({"cpu": "1"}, pod_level={"cpu": "4"}),
            pod({"cpu": "4"}, pod_level={"cpu": "5"}),
            "3",
            id="the larger counts",
        ),
    ],
)
def test_pod_level_requests_count_unless_upstreams_rule_is_wanted(old: Pod, new: Pod, delta: str | None) -> None:
    expected = {"cpu": Quantity.parse(delta)} if delta else {}
    assert growth(old, new, pod_level=True) == expected
    containers_only = growth(replace(old, resources=None), replace(new, resources=None), pod_level=True)
    assert growth(old, new, pod_level=False) == containers_only


def test_strict_mode_blocks_growth_wherever_a_bound_exists() -> None:
    strict = ResizeOptions(block_upsize_on_bounded_queues=True)
    answer = admit(TWO, pod({"cpu": "2001m", "memory": "1Gi"}), replace(LEAF, status=status()), options=strict)
    assert answer.rejection is not None
    assert (answer.rejection.mode, answer.rejection.room) == (Mode.STRICT, 0)
    assert answer.steps[-1].rule is Rule.STRICT_LIMIT
    assert "blockUpsizeOnBoundedQueues" in answer.message
    quota_only = replace(queue("leaf", cpu=(4000, -1)), status=status())
    assert admit(TWO, pod({"cpu": "3", "memory": "1Gi"}), quota_only, options=strict).allowed
    fixed = admit(TWO, pod({"cpu": "3", "memory": "1Gi"}), quota_only, options=strict, preemptible=False)
    assert fixed.rejection is not None
    assert fixed.rejection.bound_kind is BoundKind.QUOTA
    assert admit(TWO, pod({"cpu": "2", "memory": "9Gi"}), LEAF, options=strict).allowed  # memory is unbounded


def test_amounts_are_rounded_up_and_a_memory_bound_loses_its_fraction_of_a_byte() -> None:
    tight = replace(queue("leaf", cpu=(-1, 2000.5), memory=(-1, 1000.9)), status=status("1.9991"))
    assert not admit(pod({"cpu": "1"}), pod({"cpu": "1.001"}), tight).allowed  # 2000 + 1 > 2000.5
    assert admit(pod({"memory": "1"}), pod({"memory": "1001"}), replace(tight, status=status())).allowed
    assert not admit(pod({"memory": "1"}), pod({"memory": "1002"}), replace(tight, status=status())).allowed


def test_given_charges_replace_queue_status_and_reservations_count() -> None:
    directory = Directory.of([LEAF], [PodGroup("prod", "pg", "leaf")])
    charges = {"leaf": QueueCharge(allocated=CPUMemory(1000, 0), reserved=CPUMemory(8000, 0))}
    assert decide_resize(TWO, pod({"cpu": "3"}), directory, ResizeOptions(), charges).allowed
    answer = decide_resize(TWO, pod({"cpu": "4"}), directory, ResizeOptions(), charges)
    assert answer.rejection is not None
    assert (answer.rejection.allocated, answer.rejection.reserved, answer.rejection.room) == (1000, 8000, 1000)
    assert "reserved by admitted resizes 8 cores" in answer.message
    assert answer.steps[-1].rule is Rule.RESERVED_LIMIT


sizes = st.integers(0, 8).map(lambda cpu: {"cpu": str(cpu)})


@given(sizes, sizes, sizes, st.sampled_from(["", "Infeasible", "Deferred"]), st.booleans(), st.integers(-1, 12))
def test_strict_mode_never_admits_what_normal_mode_rejects_and_no_growth_is_always_admitted(
    spec: Sizes, actual: Sizes, wanted: Sizes, reason: str, preemptible: bool, bound: int
) -> None:
    old, new = pod(spec, actual=(actual,), reason=reason), pod(wanted)
    leaf = replace(queue("leaf", cpu=(bound * 1000, bound * 1000)), status=status("6", fixed_cpu="4"))
    normal = admit(old, new, leaf, preemptible=preemptible)
    strict = admit(old, new, leaf, preemptible=preemptible, options=ResizeOptions(block_upsize_on_bounded_queues=True))
    assert normal.allowed or not strict.allowed
    if not normal.delta:
        assert normal.allowed
        assert strict.allowed


@pytest.mark.parametrize("bound", [0.0, 0.5])
def test_a_bound_of_nothing_is_a_bound(bound: float) -> None:
    """Only a negative one is unlimited."""
    shut = replace(queue("leaf", cpu=(bound, bound)), status=status())
    answer = admit(TWO, pod({"cpu": "2001m", "memory": "1Gi"}), shut)
    assert answer.rejection is not None
    assert (answer.rejection.bound_kind, answer.rejection.room) == (BoundKind.LIMIT, 0)
    fixed = admit(TWO, pod({"cpu": "3", "memory": "1Gi"}), replace(shut, limit=UNBOUNDED), preemptible=False)
    assert fixed.rejection is not None
    assert fixed.rejection.bound_kind is BoundKind.QUOTA


def test_what_only_moves_between_containers_does_not_grow() -> None:
    old, new = pod({"cpu": "1"}, {"cpu": "2"}), pod({"cpu": "2"}, {"cpu": "1"})
    assert growth(old, new, pod_level=True) == {}
    held = pod({"cpu": "1"}, actual=({"cpu": "3"},))
    assert growth(held, pod({"cpu": "3"}), pod_level=True) == {}  # exactly what it occupies still: not even 0 of growth


def test_a_queue_without_a_charge_holds_nothing() -> None:
    directory = Directory.of([LEAF, DEPT], [PodGroup("prod", "pg", "leaf", preemptibility=Preemptibility.PREEMPTIBLE)])
    new = pod({"cpu": "12", "memory": "1Gi"})
    assert decide_resize(TWO, new, directory, ResizeOptions(), charges={}).allowed
    assert not decide_resize(TWO, new, directory, ResizeOptions()).allowed


@pytest.mark.parametrize(
    ("reserved", "limit_rule", "quota_rule", "amounts"),
    [
        (0, Rule.LIMIT, Rule.QUOTA, ["allocated", "growth"]),
        (500, Rule.RESERVED_LIMIT, Rule.RESERVED_QUOTA, ["allocated", "reserved", "growth"]),
    ],
)
def test_growth_that_was_admitted_before_is_named_apart(
    reserved: int, limit_rule: Rule, quota_rule: Rule, amounts: list[str]
) -> None:
    charge = QueueCharge(CPUMemory(8000), CPUMemory(3000), CPUMemory(reserved), CPUMemory(reserved))
    kind = Preemptibility.NON_PREEMPTIBLE
    directory = Directory.of([LEAF], [PodGroup("prod", "pg", "leaf", preemptibility=kind)])
    new = pod({"cpu": "2500m", "memory": "1Gi"})
    answer = decide_resize(TWO, new, directory, ResizeOptions(), charges={"leaf": charge})
    assert answer.allowed
    limit, quota = answer.steps
    assert (limit.rule, quota.rule) == (limit_rule, quota_rule)
    assert [name for name, _ in limit.amounts] == [*amounts, "limit"]
    assert [name for name, _ in quota.amounts] == [*amounts, "quota"]


def test_the_refusal_of_fixed_work_tells_its_own_part_and_what_is_reserved() -> None:
    charge = QueueCharge(CPUMemory(8000), CPUMemory(3000), CPUMemory(500), CPUMemory(500))
    kind = Preemptibility.NON_PREEMPTIBLE
    directory = Directory.of([LEAF], [PodGroup("prod", "pg", "leaf", preemptibility=kind)])
    new = pod({"cpu": "3", "memory": "1Gi"})
    answer = decide_resize(TWO, new, directory, ResizeOptions(), charges={"leaf": charge})
    assert answer.message == (
        "resize rejected: pod prod/web (PodGroup pg), queue leaf, cpu: allocated to non-preemptible work 3 cores "
        "+ reserved by admitted resizes 0.5 cores + growth 1 core exceeds quota 4 cores; 0.5 cores more would fit"
    )


def test_strict_mode_names_cpu_before_memory_and_a_limit_before_a_quota() -> None:
    strict = ResizeOptions(block_upsize_on_bounded_queues=True)
    new = pod({"cpu": "3", "memory": "2Gi"})
    memory_limit = replace(queue("leaf", cpu=(9000, -1), memory=(-1, 2.0**40)), status=status())
    fixed = admit(TWO, new, memory_limit, options=strict, preemptible=False)
    assert fixed.rejection is not None
    assert (fixed.rejection.resource.value, fixed.rejection.bound_kind) == ("cpu", BoundKind.QUOTA)
    assert fixed.steps[-1].rule is Rule.STRICT_QUOTA
    assert fixed.steps[-1].holds is False
    free = admit(TWO, new, memory_limit, options=strict)
    assert free.rejection is not None
    assert (free.rejection.resource.value, free.rejection.bound_kind) == ("memory", BoundKind.LIMIT)
    both = admit(TWO, new, replace(memory_limit, limit=LEAF.limit), options=strict, preemptible=False)
    assert both.steps[-1].rule is Rule.STRICT_LIMIT
