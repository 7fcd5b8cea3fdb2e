"""Pods that wait for their devices to be told, and pods whose devices turn out to be elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from agent.model.cpuset import CPUSet
from agent.model.devices import DeviceNodes, NodeDevices
from agent.model.pod import Container, Pod
from agent.model.state import CPUState, Grants, MemoryBlock, MemoryState, State
from agent.policy.device_placement import DEVICES_AWAITED, DEVICES_ELSEWHERE, misaligned
from agent.policy.managers import Managers
from agent.policy.observation import Decision, Event, Observation, Plan, Wanted
from agent.policy.plan import decide
from agent.policy.pod_events import PodEvents, device_events
from agent.policy.restore import fresh
from tests.nodes import named, node
from tests.pods import app, init
from tests.policy.cpu_machines import regular
from tests.policy.test_second import CAPACITY
from tests.states import EPOCH

GPU = "example.com/gpu"
BOTH: DeviceNodes = {GPU: (0b01, 0b10)}
ASKS = f"cpu=2 memory=1Gi {GPU}=1"


def told(at: int | None = None, *, uid: str = "a", wait: float = 5.0, answering: bool = True) -> NodeDevices:
    """What is known: nothing, or a device on this NUMA node in the pod's container app."""
    pods = {} if at is None else {uid: {"app": {GPU: (1 << at,)}}}
    return NodeDevices(pods, BOTH, answering, wait)


@dataclass
class Node:
    """Sixteen CPUs on two NUMA nodes, and one look after another."""

    managers: Managers = field(default_factory=lambda: node(regular(16, numa=2), topology_policy="single-numa-node"))
    plan: Plan = field(default_factory=lambda: Plan(State(EPOCH)))

    def __post_init__(self) -> None:
        self.plan = Plan(replace(State(EPOCH), grants=fresh(self.managers)))

    def look(self, devices: NodeDevices, *pods: Pod, now: float = 100.0, source: str = "kubelet") -> list[Event]:
        seen = Observation([Wanted(pod, source) for pod in pods], now_seconds=now, devices=devices)
        self.plan = decide(self.managers, CAPACITY, self.plan.state, seen, {})
        return [each.event for each in self.plan.decisions]

    @property
    def cpus(self) -> CPUSet:
        return self.plan.state.grants.cpu.entries.get("a", {}).get("app", CPUSet())


def asking(*more: Container) -> Pod:
    return named("a", *more, app(ASKS, ASKS))


def test_a_pod_is_placed_once_its_devices_are_told() -> None:
    here = Node()
    assert here.look(told(), asking()) == [Event.WAITING]
    mark = here.plan.state.pods["a"].unplaced
    assert mark is not None
    assert (mark.reason, mark.message) == (DEVICES_AWAITED, f"waits for the kubelet to tell its devices: {GPU}")
    assert here.plan.decisions == (Decision(Event.WAITING, asking(), mark.reason, mark.message),)
    before = here.plan.state
    assert here.look(told(), asking(), now=101.0) == []
    assert here.plan.state is before
    assert here.look(told(1), asking(), now=102.0) == [Event.PLACED]
    assert here.cpus <= CPUSet.parse("8-15")
    assert here.plan.decisions[0].devices == told(1).of("a")
    assert PodEvents(before).look(here.plan.state) == []


@pytest.mark.parametrize(
    ("devices", "pod", "policy", "source"),
    [
        pytest.param(told(wait=0.0), asking(), "single-numa-node", "kubelet", id="nobody is to wait"),
        pytest.param(told(answering=False), asking(), "single-numa-node", "kubelet", id="nobody can be asked"),
        pytest.param(told(), asking(), "none", "kubelet", id="nothing is aligned"),
        pytest.param(told(), asking(), "single-numa-node", "manifests", id="no kubelet gives it devices"),
        pytest.param(
            replace(told(), allocatable={}), asking(), "single-numa-node", "kubelet", id="no plugin has such devices"
        ),
        pytest.param(
            told(), named("a", app(f"memory=1Gi {GPU}=1", f"{GPU}=1")), "restricted", "kubelet", id="nothing to place"
        ),
        pytest.param(
            told(),
            named("a", init(ASKS, ASKS), app("cpu=2 memory=1Gi", "cpu=2 memory=1Gi")),
            "restricted",
            "kubelet",
            id="init containers are not listed",
        ),
        pytest.param(
            replace(told(), allocatable=None),
            named("a", app("cpu=2 memory=1Gi hugepages-2Mi=2Mi", "cpu=2 memory=1Gi hugepages-2Mi=2Mi")),
            "restricted",
            "kubelet",
            id="hugepages are no devices",
        ),
        pytest.param(
            told(),
            named("a", app(f"cpu=2 memory=1Gi {GPU}=0", f"cpu=2 memory=1Gi {GPU}=0")),
            "restricted",
            "kubelet",
            id="it asks for none of them",
        ),
    ],
)
def test_a_pod_is_placed_at_once(devices: NodeDevices, pod: Pod, policy: str, source: str) -> None:
    here = Node(node(regular(16, numa=2), topology_policy=policy))
    assert Event.WAITING not in here.look(devices, pod, source=source)
    assert here.plan.state.pods.keys() <= {"a"}


def test_what_was_told_before_the_pod_came_does_not_say_that_there_are_no_such_devices() -> None:
    before = replace(told(), allocatable={}, asked=frozenset({"other"}))
    here = Node()
    assert here.look(before, asking()) == [Event.WAITING]
    assert here.look(replace(before, asked=frozenset({"other", "a"})), asking(), now=101.0) == [Event.PLACED]


@pytest.mark.parametrize(("memory_policy", "waits"), [("Static", True), ("None", False)])
def test_a_pod_with_memory_only_waits_where_memory_has_a_place(memory_policy: str, *, waits: bool) -> None:
    here = Node(node(regular(16, numa=2), memory_policy=memory_policy, topology_policy="single-numa-node"))
    asks = f"cpu=500m memory=1Gi {GPU}=1"
    assert (here.look(told(), named("a", app(asks, asks))) == [Event.WAITING]) is waits


@pytest.mark.parametrize("later", [pytest.param(105.0, id="at its end"), pytest.param(50.0, id="a clock set back")])
def test_a_wait_has_an_end(later: float) -> None:
    here = Node()
    here.look(told(), asking())
    assert here.look(told(), asking(), now=later) == [Event.PLACED]
    assert len(here.cpus) == 2


def test_a_pod_that_still_waits_for_its_devices_holds_up_no_other() -> None:
    here = Node()
    pods = (asking(), replace(asking(), name="b", uid="b"))
    assert here.look(told(), *pods) == [Event.WAITING, Event.WAITING]
    assert here.look(told(1, uid="b"), *pods, now=101.0) == [Event.PLACED]
    assert list(here.plan.state.grants.cpu.entries) == ["b"]


def test_a_pod_that_does_not_fit_where_its_devices_are_is_said_to_be_unplaced() -> None:
    here = Node()
    here.look(told(1, uid="other"), replace(named("other", app("cpu=8 memory=1Gi", "cpu=8 memory=1Gi"))))
    first = here.plan.state
    other = named("other", app("cpu=8 memory=1Gi", "cpu=8 memory=1Gi"))
    here.look(told(), other, asking())
    assert here.look(told(1), other, asking()) == [Event.UNPLACED]
    (unplaced,) = here.plan.decisions
    mark = here.plan.state.pods["a"].unplaced
    assert mark is not None
    assert (unplaced.pod.uid, unplaced.reason, mark.reason) == ("a", "TopologyAffinityError", "TopologyAffinityError")
    assert mark.message == f"{unplaced.message} ({unplaced.hint})"
    assert [event.reason for event in PodEvents(first).look(here.plan.state)] == ["Unplaced"]
    assert here.look(told(1), asking()) == [Event.RELEASED, Event.PLACED]


def test_devices_that_turn_out_elsewhere_are_marked_and_nothing_moves() -> None:
    here = Node()
    here.look(told(wait=0.0), asking())
    before = here.cpus
    assert here.plan.misaligned == {}
    assert here.look(told(1, wait=0.0), asking()) == []
    mark = here.plan.misaligned["a"]
    assert (mark.reason, mark.message) == (
        DEVICES_ELSEWHERE,
        f"container app: 1 of {GPU} on NUMA node 1, its CPUs on 0",
    )
    assert here.cpus == before
    (event,) = device_events({}, here.plan.misaligned, here.plan.state)
    assert (event.reason, event.warning) == (DEVICES_ELSEWHERE, True)
    (event,) = device_events(here.plan.misaligned, {}, here.plan.state)
    assert (event.reason, event.warning) == ("DevicesNear", False)
    assert list(device_events(here.plan.misaligned, here.plan.misaligned, here.plan.state)) == []


@pytest.mark.parametrize(
    ("held", "marked"),
    [
        pytest.param((0b01,), False, id="near"),
        pytest.param((0b11,), False, id="near to both"),
        pytest.param((0b01, 0b10), True, id="one of two is far"),
        pytest.param((0,), False, id="nowhere"),
        pytest.param((0b100,), False, id="on a node that this machine has not"),
    ],
)
def test_a_device_is_elsewhere_where_none_of_its_nodes_has_cpus_of_its_container(
    held: tuple[int, ...], *, marked: bool
) -> None:
    here = Node()
    here.look(told(0), asking())
    devices = NodeDevices({"a": {"app": {GPU: held}}})
    assert bool(misaligned(here.managers, here.plan.state, devices)) is marked


def test_containers_without_anything_of_their_own_have_no_place() -> None:
    here = Node()
    here.look(told(), named("a", app("cpu=1500m memory=1Gi", "cpu=1500m memory=1Gi")))
    assert misaligned(here.managers, here.plan.state, told(1)) == {}


def test_memory_is_what_a_container_without_cpus_of_its_own_is_measured_by() -> None:
    managers = node(regular(16, numa=2), memory_policy="Static", topology_policy="single-numa-node")
    here = Node(managers)
    asks = f"cpu=500m memory=1Gi {GPU}=1"
    here.look(told(wait=0.0), named("a", app(asks, asks)))
    (mark,) = misaligned(here.managers, here.plan.state, told(1)).values()
    assert mark.message.endswith("on NUMA node 1, its memory on 0")


@pytest.mark.parametrize(
    ("held", "where"),
    [
        pytest.param(Grants(CPUState(pod_entries={"a": CPUSet.parse("8-15")})), "its CPUs on 1", id="CPUs"),
        pytest.param(
            Grants(memory=MemoryState(pod_entries={"a": (MemoryBlock("memory", 1, 0b10),)})),
            "its memory on 1",
            id="memory",
        ),
    ],
)
def test_a_container_that_holds_nothing_itself_is_where_the_bubble_of_its_pod_is(held: Grants, where: str) -> None:
    here = Node()
    here.look(told(), asking())
    state = replace(here.plan.state, grants=held, pods={"a": replace(here.plan.state.pods["a"], unplaced=None)})
    (mark,) = misaligned(here.managers, state, told(0)).values()
    assert mark.message.endswith(f"on NUMA node 0, {where}")
    assert misaligned(here.managers, state, told(1)) == {}


def test_memory_on_two_nodes_is_near_to_the_devices_of_both() -> None:
    here = Node()
    here.look(told(), asking())
    blocks = (MemoryBlock("memory", 1, 0b10), MemoryBlock("hugepages-2Mi", 1, 0b01))
    held = Grants(memory=MemoryState(entries={"a": {"app": blocks}}))
    state = replace(here.plan.state, grants=held, pods={"a": replace(here.plan.state.pods["a"], unplaced=None)})
    assert misaligned(here.managers, state, told(1)) == {}


def test_a_device_on_node_0_is_elsewhere_for_cpus_on_node_1_whoever_was_looked_at_before() -> None:
    here = Node()
    here.look(told(1), asking())
    held = {uid: {"app": {GPU: (0b01,)}} for uid in ("unheard", "a")}
    marked = misaligned(here.managers, here.plan.state, NodeDevices(held))
    assert {uid: mark.message for uid, mark in marked.items()} == {
        "a": f"container app: 1 of {GPU} on NUMA node 0, its CPUs on 1"
    }


def test_an_admission_says_what_devices_the_pod_had() -> None:
    here = Node()
    assert here.look(told(1), asking()) == [Event.ADMITTED]
    assert here.plan.decisions[0].devices == told(1).of("a")


def test_a_decision_of_another_pod_says_nothing_of_devices() -> None:
    here = Node()
    here.look(told(1, uid="other"), named("a", app("cpu=2 memory=1Gi", "cpu=2 memory=1Gi")))
    assert here.plan.decisions == (Decision(Event.ADMITTED, here.plan.state.pods["a"].pod),)
