"""The life of a resize on a manifest node: the kubelet's answers, order and texts, and what a restart keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.formats.pods import decode_pod
from agent.model.pod import Pod, PodCondition
from agent.model.state import PodRecord, Resize, ResizeState, Shortfall
from agent.policy.observation import Event
from agent.policy.resize_order import retry_order
from agent.policy.resize_terms import effective_requests
from tests.nodes import named, node
from tests.pods import app, guaranteed, init, sized, spelt
from tests.policy.cpu_machines import regular
from tests.policy.resizing import Node, capacity, said, sizes

SMALL = "cpu=1500m memory=8Gi"


def shared_node(allocatable: str = SMALL, **config: Any) -> Node:
    return Node(node(regular(4), **config), capacity(allocatable))


def burstable(name: str, requests: str, limits: str) -> Pod:
    return named(name, app(requests, limits))


BU = burstable("bu", "cpu=100m memory=32Mi", "cpu=300m memory=64Mi")
OUT_OF_CPU = "Node didn't have enough resource: cpu, requested: 1000, used: 1200, capacity: 1500"
BY_CPU_MANAGER = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'


def test_a_resize_that_fits_is_allocated_then_in_progress_then_done() -> None:
    node = shared_node()
    node.want(BU)
    decisions = node.want(sizes(BU, "cpu=150m memory=32Mi", "cpu=400m memory=64Mi"))
    assert said(decisions) == ["resize-requested", "resize-started"]
    assert decisions[0].before == BU
    sizes_text = (
        '{"containers":[{"name":"app","resources":{"limits":{"cpu":"400m","memory":"64Mi"},'
        '"requests":{"cpu":"150m","memory":"32Mi"}}}],"generation":2}'
    )
    assert decisions[1].message == f"Pod resize started: {sizes_text}"
    assert node.conditions("bu") == [PodCondition("PodResizeInProgress", "True")]
    assert spelt(effective_requests(node.record("bu"))) == "cpu=150m memory=32Mi"
    assert node.kernel(unsettled="bu") == []
    generation = node.state.generation
    (done,) = node.kernel()
    assert (done.event, done.message) == (Event.RESIZE_COMPLETED, f"Pod resize completed: {sizes_text}")
    assert done.pod == node.record("bu").pod
    assert node.state.generation == generation + 1
    assert node.conditions("bu") == []
    assert node.look() == []


def test_what_does_not_fit_now_is_deferred_with_the_shortfall_and_taken_up_when_a_pod_ends() -> None:
    node = shared_node()
    other, small = burstable("gu", "cpu=1 memory=64Mi", "cpu=2 memory=64Mi"), burstable("x", "cpu=200m", "cpu=200m")
    node.want(BU, other, small)
    decisions = node.want(sizes(BU, "cpu=1 memory=32Mi", "cpu=1200m memory=64Mi"))
    assert said(decisions) == ["resize-requested", "resize-deferred"]
    assert decisions[1].reason == "OutOfcpu"
    assert decisions[1].message.startswith('Pod resize OutOfcpu: {"containers":')
    told = json.loads(decisions[1].message.partition(": ")[2])
    assert (told["error"], told["generation"]) == (OUT_OF_CPU, 2)
    assert node.conditions("bu") == [PodCondition("PodResizePending", "True", "Deferred", OUT_OF_CPU)]
    assert node.record("bu").resize.shortfall == (Shortfall("cpu", 700),)
    assert node.record("bu").resize.since_seconds == node.now
    assert spelt(effective_requests(node.record("bu"))) == "cpu=1 memory=32Mi", "charged at its target"
    assert node.look() == []
    decisions = node.end("gu")
    assert said(decisions) == ["released", "resize-started"]
    assert decisions[1].reason == "pod_terminated"


@pytest.mark.parametrize(
    ("allocated", "desired", "config", "reason", "message"),
    [
        pytest.param(
            named("p", guaranteed("1")),
            "cpu=1200m memory=1Gi",
            {},
            "guaranteed_pod_cpu_manager_static_policy",
            BY_CPU_MANAGER,
            id="CPUs of a pinned pod",
        ),
        pytest.param(
            named("p", guaranteed("150m")),
            "cpu=200m memory=1Gi",
            {},
            "guaranteed_pod_cpu_manager_static_policy",
            BY_CPU_MANAGER,
            id="CPUs of any Guaranteed pod under the static policy",
        ),
        pytest.param(
            named("p", guaranteed("1")),
            "cpu=1 memory=2Gi",
            {"memory_policy": "Static"},
            "guaranteed_pod_memory_manager_static_policy",
            'Resize is infeasible for Guaranteed Pods alongside Memory Manager policy "Static"',
            id="memory under the Static memory policy",
        ),
        pytest.param(
            named("p", app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi")),
            "cpu=2000m memory=9Gi; cpu=9 memory=9Gi",
            {},
            "insufficient_node_allocatable",
            "Node didn't have enough capacity: memory, requested: 9663676416, capacity: 8589934592",
            id="more than the node has, memory named first",
        ),
        pytest.param(
            named("p", app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi")),
            "cpu=5 memory=1Gi; cpu=9 memory=1Gi",
            {},
            "insufficient_node_allocatable",
            "Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000",
            id="more CPUs than the node has",
        ),
        pytest.param(
            named("p", app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi")),
            "cpu=2 memory=1Gi; cpu=2 memory=1Gi",
            {},
            "invalid",
            'spec: Invalid value: "Guaranteed": Pod QOS Class may not change as a result of resizing',
            id="another quality of service",
        ),
        pytest.param(
            named("p", app("cpu=1 memory=1Gi", "cpu=2 memory=1Gi")),
            "cpu=1 memory=1Gi; cpu=2",
            {},
            "invalid",
            "spec.containers[0].resources.limits: resource limits cannot be removed",
            id="a limit that is taken away",
        ),
        pytest.param(
            named("p", app("cpu=1", "cpu=2")),
            "cpu=1500m; cpu=2",
            {"feature_gates": {"InPlacePodVerticalScaling": False}},
            "feature_gate_off",
            "InPlacePodVerticalScaling is disabled",
            id="the gate is off",
        ),
    ],
)
def test_what_can_never_be_is_infeasible(
    allocated: Pod, desired: str, config: dict[str, Any], reason: str, message: str
) -> None:
    node = shared_node("cpu=4 memory=8Gi", **config)
    node.want(allocated)
    before = node.state.grants
    requests, _, limits = desired.partition(";")
    decisions = node.want(sizes(allocated, requests, limits or requests))
    assert said(decisions) == ["resize-requested", "resize-infeasible"]
    assert (decisions[1].reason, node.record("p").resize.message) == (reason, message)
    assert decisions[1].message.startswith('Pod resize Infeasible: {"containers":')
    assert node.conditions("p") == [PodCondition("PodResizePending", "True", "Infeasible", message)]
    assert node.state.grants == before
    assert node.record("p").pod.containers == allocated.containers


def test_memory_alone_of_a_pinned_pod_may_change_where_memory_is_not_managed() -> None:
    """BL-53."""
    node = shared_node("cpu=4 memory=8Gi")
    pod = named("p", guaranteed("2"))
    node.want(pod)
    assert said(node.want(sizes(pod, "cpu=2 memory=2Gi"))) == ["resize-requested", "resize-started"]
    assert node.cpus("p") == "1-2"


def test_a_refused_resize_is_not_applied_by_a_restart_and_ends_when_it_is_withdrawn() -> None:
    node = shared_node("cpu=4 memory=8Gi")
    pod = named("p", guaranteed("1"))
    node.want(pod)
    node.want(sizes(pod, "cpu=2 memory=1Gi"))
    before = node.state
    assert node.restart() == []
    assert node.state is before
    assert spelt(effective_requests(node.record("p"))) == "cpu=1 memory=1Gi", "an Infeasible target is not charged"
    (withdrawn,) = node.want(pod)
    assert withdrawn.event is Event.RESIZE_WITHDRAWN
    assert withdrawn.message == "the manifest asks for what is allocated again"
    assert node.record("p").resize.state is ResizeState.NONE
    assert node.record("p").resize.generation == 3


def test_sizes_of_ordinary_init_containers_do_not_change() -> None:
    node = shared_node("cpu=4 memory=8Gi")
    pod = named("p", init("cpu=1", "cpu=1"), app("cpu=1", "cpu=2"))
    node.want(pod)
    node.want(sizes(pod, "cpu=2", container="init"))
    assert "resources for non-sidecar init containers are immutable" in node.record("p").resize.message


def test_a_second_resize_waits_while_the_first_is_in_progress_and_both_are_shown() -> None:
    """BL-51, last but one: spec 32, allocated 16, actual 8, Infeasible while 16 is in progress."""
    node = shared_node("cpu=20 memory=8Gi")
    pod = burstable("p", "cpu=8 memory=1Gi", "cpu=64 memory=1Gi")
    node.want(pod)
    node.want(sizes(pod, "cpu=16 memory=1Gi", "cpu=64 memory=1Gi"))
    node.want(sizes(pod, "cpu=32 memory=1Gi", "cpu=64 memory=1Gi"))
    assert [(each.type, each.reason) for each in node.conditions("p")] == [
        ("PodResizePending", "Infeasible"),
        ("PodResizeInProgress", ""),
    ]
    assert spelt(effective_requests(node.record("p"))) == "cpu=16 memory=1Gi"
    assert said(node.kernel()) == ["resize-completed"]
    assert [each.type for each in node.conditions("p")] == ["PodResizePending"]


def test_a_shrink_is_charged_in_full_until_the_kernel_says_so() -> None:
    node = shared_node("cpu=20 memory=8Gi")
    pod = burstable("p", "cpu=8 memory=1Gi", "cpu=64 memory=1Gi")
    node.want(pod)
    node.want(sizes(pod, "cpu=4 memory=512Mi", "cpu=64 memory=1Gi"))
    assert spelt(effective_requests(node.record("p"))) == "cpu=8 memory=1Gi"
    (error,) = node.kernel({"p": "cannot decrease memory limits"})
    assert (error.event, error.pod) == (Event.RESIZE_ERROR, node.record("p").pod)
    told = json.loads(error.message.partition(": ")[2])
    assert error.message.startswith("Pod resize error: ")
    assert (told["error"], told["generation"]) == ("cannot decrease memory limits", 2)
    assert node.kernel({"p": "cannot decrease memory limits"}) == []
    assert node.conditions("p") == [
        PodCondition("PodResizeInProgress", "True", "Error", "cannot decrease memory limits")
    ]
    node.kernel()
    assert spelt(effective_requests(node.record("p"))) == "cpu=4 memory=512Mi"


def test_an_error_is_said_once_whatever_becomes_of_other_pods() -> None:
    node = shared_node("cpu=20 memory=8Gi")
    one, two = burstable("one", "cpu=2", "cpu=64"), burstable("two", "cpu=2", "cpu=64")
    node.want(one, two)
    node.want(sizes(one, "cpu=3", "cpu=64"), sizes(two, "cpu=3", "cpu=64"))
    assert said(node.kernel({"one": "no"}, unsettled="two")) == ["resize-error"]
    assert said(node.kernel({"one": "no"})) == ["resize-completed"]


def test_what_frees_goes_first_then_priority_then_quality_of_service_then_the_longest_wait() -> None:
    def waiting(pod: Pod, cpu: str, state: ResizeState = ResizeState.DEFERRED, since: float = 1.0) -> PodRecord:
        return PodRecord(pod, resize=Resize(state, desired=sizes(pod, f"cpu={cpu}", "cpu=9"), since_seconds=since))

    sure = replace(named("sure", guaranteed("1500m")))
    records = [
        waiting(burstable("new", "cpu=1", "cpu=9"), "2", ResizeState.PENDING, 0.0),
        waiting(burstable("later", "cpu=1", "cpu=9"), "2", since=5.0),
        waiting(burstable("earlier", "cpu=1", "cpu=9"), "2", since=3.0),
        PodRecord(
            sure, resize=Resize(ResizeState.DEFERRED, desired=sizes(sure, "cpu=2 memory=1Gi"), since_seconds=9.0)
        ),
        waiting(replace(burstable("important", "cpu=1", "cpu=9"), priority=10), "2", since=9.0),
        waiting(burstable("smaller", "cpu=2", "cpu=9"), "1", since=9.0),
        PodRecord(burstable("settled", "cpu=1", "cpu=9")),
    ]
    order = [record.pod.name for record in retry_order(records, pod_level_resources=True)]
    assert order == ["smaller", "important", "sure", "earlier", "later", "new"]


def test_a_deferred_resize_is_taken_up_when_another_pod_shrinks() -> None:
    node = shared_node("cpu=10 memory=8Gi")
    one, two = burstable("one", "cpu=6", "cpu=64"), burstable("two", "cpu=3", "cpu=64")
    node.want(one, two)
    assert said(node.want(sizes(two, "cpu=6", "cpu=64")))[-1] == "resize-deferred"
    decisions = node.want(sizes(one, "cpu=4", "cpu=64"))
    assert [(str(each.event), each.pod.name, each.reason) for each in decisions[1:]] == [
        ("resize-started", "one", ""),
        ("resize-started", "two", "pod_resized"),
    ]


def node_of_shared_pods() -> Any:
    """No static policy: Guaranteed pods may be resized too."""
    return node(regular(64), cpu_policy="none")


def test_without_a_static_policy_guaranteed_pods_are_resized() -> None:
    node = Node(node_of_shared_pods(), capacity("cpu=10 memory=64Gi"))
    pod = named("p", guaranteed("2"))
    node.want(pod)
    assert said(node.want(sizes(pod, "cpu=3 memory=2Gi"))) == ["resize-requested", "resize-started"]


def test_pod_level_sizes_of_a_bubble_are_infeasible_by_default() -> None:
    """The kubelet looks at containers only, and would leave the bubble as it is."""
    managers = node(
        regular(8),
        topology_policy="best-effort",
        topology_scope="pod",
        feature_gates={"PodLevelResourceManagers": True},
    )
    node_ = Node(managers, capacity("cpu=7 memory=64Gi"))
    whole = "cpu=4 memory=4Gi"
    pod = named("p", guaranteed("2"), app(name="side"), resources=sized(whole, whole))
    node_.want(pod)
    bigger = "cpu=5 memory=4Gi"
    node_.want(replace(pod, resources=sized(bigger, bigger)))
    assert node_.record("p").resize.message == BY_CPU_MANAGER


@pytest.mark.shared
def test_the_recorded_run_of_a_real_kubelet(shared_dir: Path) -> None:
    """The same edits in the same order give the same conditions and the same events, word for word."""
    folder = shared_dir / "samples" / "kubelet" / "host-v1-resize"
    stages = {path.name[:2]: decode_pod(json.loads(path.read_text())) for path in sorted(folder.glob("[01]*.json"))}
    wanted = {stage: replace(pod, status=type(pod.status)()) for stage, pod in stages.items()}
    node_ = Node(node(regular(2)), capacity("cpu=1500m memory=3Gi"))
    events = []
    for stage in ("01", "02", "03", "04"):
        node_.want(wanted[stage])

    def step(stage: str, error: str = "") -> None:
        events.extend(node_.want(wanted[stage]))
        events.extend(node_.kernel({stages[stage].uid: error} if error else {}))
        assert node_.conditions(stages[stage].name) == [
            each for each in stages[stage].status.conditions if "Resize" in each.type
        ], stage

    for stage in ("05", "06", "08", "09", "10", "11"):
        step(stage)
    events.extend(node_.want(wanted["12"]))
    step("13", next(each.message for each in stages["13"].status.conditions if each.type == "PodResizeInProgress"))
    step("14")
    events.extend(node_.want(wanted["15"]))
    events.extend(node_.end("gu"))
    events.extend(node_.kernel())
    assert node_.conditions("bu") == []
    ours = {(_event_name(each.event), each.pod.name, _content(each.message)) for each in events}
    theirs = {
        (each["reason"], each["involvedObject"]["name"], _content(each["message"]))
        for each in json.loads((folder / "events.json").read_text())
        if each["reason"].startswith("Resize")
    }
    assert len(theirs) == 12
    assert theirs <= ours


def _event_name(event: Event) -> str:
    return "".join(part.capitalize() for part in event.split("-"))


def _content(message: str) -> str:
    """Without the generation, and of an error without the sizes: that kubelet still named those of the edit before."""
    kind, _, body = message.partition(": {")
    parsed = json.loads("{" + body) if body else {}
    parsed.pop("generation", None)
    if kind.endswith("error"):
        parsed.pop("containers")
    return f"{kind} {json.dumps(parsed)}"
