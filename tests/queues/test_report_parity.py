"""A pod costs its queue the same, whether its node's agent reports it or the API server shows it."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.occupancy import encode_occupancy
from agent.model.pod import Pod, PodStatus, ResourceList
from agent.model.quantity import Quantity
from agent.model.queue import PodGroup, Preemptibility
from agent.model.state import PodPhase, PodRecord, State
from agent.policy.node_fit import NodeCapacity
from agent.policy.occupancy import OccupancyMaker, Origin
from agent.policy.preemptibility import pod_preemptibility
from agent.policy.restore import fresh
from agent.queues.charge import NANO, ChargeOptions, PodCharge, pod_charge
from agent.queues.node_report import NodeReport, charge_of_reported, report_of_occupancy
from agent.queues.node_report_format import decode_report
from agent.queues.workloads import Directory
from tests.nodes import node
from tests.pods import app
from tests.policy.cpu_machines import regular
from tests.states import EPOCH

MANAGERS = node(regular(4))
ROOM: ResourceList = {"cpu": Quantity(Fraction(64))}
GROUPS = [
    PodGroup("prod", "held", "leaf", preemptibility=Preemptibility.NON_PREEMPTIBLE),
    PodGroup("prod", "low", "leaf"),
]


def reported(*pods: Pod) -> tuple[NodeReport, NodeReport]:
    """What an agent of these pods pushes, read back, and what it tells an accountant in its own process."""
    records = {pod.uid: PodRecord(pod, PodPhase.RUNNING) for pod in pods}
    state = State(EPOCH, grants=fresh(MANAGERS), pods=records)
    report = OccupancyMaker(Origin("n1")).report(state, MANAGERS, NodeCapacity(ROOM, ROOM), 1.5)
    return decode_report(encode_occupancy(report).encode()), report_of_occupancy(report)


def charges(pod: Pod, memory: int | None) -> tuple[PodCharge, PodCharge, PodCharge | None]:
    """By the pushed report, by the report in the process, by the API server."""
    pushed, local = reported(pod)
    directory = Directory.of((), GROUPS)
    seen = pod_charge(pod, directory, ChargeOptions({} if memory is None else {"n1": memory}))
    return (
        charge_of_reported(pushed.pods[pod.uid], directory, memory),
        charge_of_reported(local.pods[pod.uid], directory, memory),
        seen,
    )


def running(requests: str = "cpu=1", **changes: object) -> Pod:
    pod = Pod("u1", "web", "prod", containers=(app(requests),), node_name="n1", status=PodStatus("Running"))
    return replace(pod, **changes)  # type: ignore[arg-type]


fraction_texts = st.sampled_from(["0.5", "0.333", "0.99", "1.5", "nonsense", "0"])
pod_annotations = st.fixed_dictionaries(
    {},
    optional={
        "pod-group-name": st.sampled_from(["held", "low", "unknown"]),
        "gpu-fraction": fraction_texts,
        "gpu-memory": st.sampled_from(["5120", "1", "100000000000000000", "much"]),
        "gpu-fraction-num-devices": st.sampled_from(["1", "3", "0", "x"]),
    },
)
pod_labels = st.fixed_dictionaries(
    {},
    optional={
        "kai.scheduler/queue": st.sampled_from(["leaf", "other"]),
        "kai.scheduler/preemptibility": st.sampled_from(["preemptible", "non-preemptible", "semi-preemptible", ""]),
        "priorityClassName": st.sampled_from(["train", "build"]),
    },
)
asked_for = st.sampled_from(
    [
        "",
        "cpu=1",
        "cpu=1500m memory=1Gi",
        "cpu=1 nvidia.com/gpu=2",
        "nvidia.com/mig-2g.10gb=3",
        "amd.com/gpu=1 memory=1n",
    ]
)
classes = st.sampled_from([("", None), ("train", 50), ("build", 100), ("build", None), ("high", 2_000_000_000)])


@given(pod_annotations, pod_labels, asked_for, classes, st.sampled_from([None, 16384, 81920]))
def test_report_and_api_server_charge_a_pod_alike(
    notes: dict[str, str], marks: dict[str, str], asked: str, named: tuple[str, int | None], memory: int | None
) -> None:
    pod = running(asked, annotations=notes, labels=marks, priority_class_name=named[0], priority=named[1])
    pushed, local, seen = charges(pod, memory)
    assert pushed == local == seen


def test_absurd_annotations_do_not_cost_a_node_its_report() -> None:
    absurd = {"gpu-fraction-num-devices": "9" * 18}
    for notes in ({"gpu-fraction": "0.5"}, {"gpu-memory": "9" * 18}):
        pushed, _, _ = charges(running(annotations={**notes, **absurd}), 1)
        assert pushed.allocated.gpu > 10**17


@pytest.mark.parametrize(
    ("notes", "memory", "gpus"),
    [
        ({"gpu-fraction": "0.5"}, None, 0.5),
        ({"gpu-fraction": "0.25", "gpu-fraction-num-devices": "2"}, None, 0.5),
        ({"gpu-memory": "5120"}, 40960, 0.13),
        ({"gpu-memory": "5120"}, None, 0),
        ({}, None, 2),
    ],
)
def test_the_report_alone_tells_the_gpus(notes: dict[str, str], memory: int | None, gpus: float) -> None:
    pushed, _, _ = charges(running("nvidia.com/gpu=2", annotations=notes), memory)
    assert pushed.allocated.gpu == round(gpus * NANO)


@pytest.mark.parametrize(
    ("marks", "named", "priority", "preemptible"),
    [
        pytest.param(
            {"kai.scheduler/preemptibility": "non-preemptible"}, "train", 50, False, id="the label counts first"
        ),
        pytest.param({"kai.scheduler/preemptibility": "preemptible"}, "build", 100, True, id="either way"),
        pytest.param({"kai.scheduler/preemptibility": "perhaps"}, "build", 100, False, id="a word it does not know"),
        pytest.param({}, "build", 100, False, id="then the priority"),
        pytest.param({}, "train", 99, True, id="below 100 is preemptible"),
        pytest.param({}, "", 0, None, id="without a class the kind of workload decides, which only KAI knows"),
        pytest.param({"priorityClassName": "build"}, "train", 50, None, id="another class, whose value the pod lacks"),
        pytest.param({"priorityClassName": "build"}, "build", 100, False, id="the same class"),
    ],
)
def test_what_a_pod_itself_tells_of_its_preemptibility(
    marks: dict[str, str], named: str, priority: int | None, preemptible: bool | None
) -> None:
    pod = running(labels=marks, priority_class_name=named, priority=priority)
    assert pod_preemptibility(pod) is preemptible
    assert reported(pod)[0].pods["u1"].preemptible is preemptible


def test_the_pod_group_has_the_last_word() -> None:
    pod = running(labels={"kai.scheduler/preemptibility": "preemptible"}, annotations={"pod-group-name": "held"})
    assert [each.preemptible for each in charges(pod, None) if each is not None] == [False] * 3
