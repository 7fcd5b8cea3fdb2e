"""Hints of devices that a kubelet has given: beside a plain enumeration of all sets of NUMA nodes, and in an admission."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import CPUSet
from agent.model.devices import PodDevices
from agent.model.numa import node_ids, node_mask
from agent.policy.admission import admit
from agent.policy.device_hints import DeviceHints, device_hints
from agent.policy.hint_family import CapacityHints, Hint, ProviderHints
from agent.policy.hints import enumerate_hints
from agent.policy.restore import fresh
from tests.nodes import named, node
from tests.pods import guaranteed
from tests.policy.cpu_machines import regular

GPU, NIC = "example.com/gpu", "example.com/nic"


def said(hints: ProviderHints, resource: str = GPU) -> str:
    """ "0 0-1? 1": the masks of a resource, with a mark at those that are not preferred."""
    if hints is None or hints[resource] is None:
        return "no preference"
    listed = enumerate_hints(hints[resource])
    return " ".join(f"{CPUSet(each.affinity or 0)}{'' if each.preferred else '?'}" for each in listed)


def given_to(*masks: int, among: Sequence[int] = (), container: str = "app") -> PodDevices:
    return PodDevices({container: {GPU: masks}}, {GPU: tuple(among)} if among else {})


@pytest.mark.parametrize(
    ("nodes", "held", "existing", "hints"),
    [
        pytest.param(0b11, (0b10,), (0b01, 0b10), "1 0-1?", id="one device is near to its node, and to all"),
        pytest.param(0b11, (0b10,), (), "1 0-1?", id="what exists is not known: what was given counts"),
        pytest.param(0b11, (0b01, 0b10), (), "0-1", id="two nodes are the fewest that there are"),
        pytest.param(0b11, (0b01, 0b10), (0b01, 0b01, 0b10), "0-1?", id="one node could have given both"),
        pytest.param(0b11, (0b11,), (0b11,), "0 1 0-1?", id="near to either of its nodes"),
        pytest.param(0b111, (0b011, 0b110), (), "1 0-1? 0-2? 1-2? 0,2?", id="one node that both are near to"),
        pytest.param(0b11, (0,), (0,), "no preference", id="its plugin tells no node"),
        pytest.param(0b11, (0, 0b01), (0, 0b01), "no preference", id="one of them is nowhere"),
        pytest.param(0b11, (0b100,), (0b100,), "no preference", id="near to a node that this machine has not"),
    ],
)
def test_hints_of_given_devices(nodes: int, held: tuple[int, ...], existing: tuple[int, ...], hints: str) -> None:
    told = device_hints(nodes, given_to(*held, among=existing)).containers.get("app")
    assert sorted(said(told).split()) == sorted(hints.split())


def reference(nodes: int, held: Sequence[int], existing: Sequence[int]) -> set[Hint]:
    """Every set of nodes, one by one, as the kubelet's device manager goes through them."""
    masks = [mask for mask in range(1, nodes + 1) if not mask & ~nodes]
    enough = [mask for mask in masks if sum(bool(each & mask) for each in existing) >= len(held)]
    fewest = min((mask.bit_count() for mask in enough), default=nodes.bit_count())
    fitting = [mask for mask in masks if all(each & mask for each in held)]
    return {Hint(mask, mask.bit_count() == fewest) for mask in fitting}


@given(st.data())
def test_hints_are_those_of_a_plain_enumeration(data: st.DataObject) -> None:
    nodes = node_mask(data.draw(st.sets(st.integers(0, 6), min_size=1, max_size=5)))
    near = st.sets(st.sampled_from(node_ids(nodes)), min_size=1).map(node_mask)
    existing = data.draw(st.lists(near, min_size=1, max_size=6))
    held = data.draw(st.lists(st.sampled_from(range(len(existing))), min_size=1, unique=True))
    masks = [existing[index] for index in held]
    told = device_hints(nodes, given_to(*masks, among=existing)).containers["app"]
    assert told is not None
    assert set(enumerate_hints(told[GPU])) == reference(nodes, masks, existing)


def test_many_nodes_and_devices_near_to_several_give_a_bound_and_say_so() -> None:
    nodes = (1 << 40) - 1
    existing = [0b11 << node for node in range(39)]
    told = device_hints(nodes, given_to(*existing, among=existing)).containers["app"]
    assert told is not None
    hints = told[GPU]
    assert isinstance(hints, CapacityHints)
    assert (hints.exact, hints.preferred_size <= 20) == (False, True)
    assert hints.is_open()


def test_the_pod_as_a_whole_has_all_devices_of_its_containers() -> None:
    devices = PodDevices({"a": {GPU: (0b01,)}, "b": {GPU: (0b10,), NIC: (0b10,)}}, {GPU: (0b01, 0b10)})
    hints = device_hints(0b11, devices)
    assert [said(hints.containers[name]) for name in ("a", "b")] == ["0 0-1?", "1 0-1?"]
    assert (said(hints.pod), said(hints.pod, NIC)) == ("0-1", "1 0-1?")


def test_devices_that_are_not_known_say_nothing() -> None:
    assert device_hints(0b11, None) == DeviceHints()


def test_nor_do_devices_that_are_near_to_no_node() -> None:
    assert device_hints(0b11, given_to(0)) == DeviceHints()


@pytest.mark.parametrize(
    ("nodes", "existing", "size"),
    [
        pytest.param(0b111, (0b001, 0b010, 0b100), 3, id="each near to one node"),
        pytest.param(0b111, (0b011, 0b110), 1, id="near to several"),
        pytest.param(0b11, (0b11, 0b01, 0b10), 2, id="every node is needed"),
        pytest.param((1 << 40) - 1, tuple(1 << node for node in range(20)), 20, id="each near to one of many nodes"),
    ],
)
def test_what_can_be_counted_is_exact(nodes: int, existing: tuple[int, ...], size: int) -> None:
    told = device_hints(nodes, given_to(*existing)).containers["app"]
    assert told is not None
    hints = told[GPU]
    assert isinstance(hints, CapacityHints)
    assert (hints.exact, hints.preferred_size) == (True, size)


def test_cpus_follow_a_device_to_its_node() -> None:
    managers = node(regular(16, numa=2), topology_policy="single-numa-node")
    hints = device_hints(managers.machine.numa_mask, given_to(0b10))
    verdict = admit(managers, fresh(managers), named("p", guaranteed("2")), hints)
    assert verdict.grants.cpu.entries["p"]["app"] <= CPUSet.parse("8-15")


def test_in_pod_scope_all_containers_go_where_the_device_of_one_is() -> None:
    managers = node(regular(16, numa=2), topology_policy="restricted", topology_scope="pod")
    pod = named("p", guaranteed("2", name="a"), guaranteed("2", name="b"))
    hints = device_hints(managers.machine.numa_mask, given_to(0b10, container="b"))
    granted = admit(managers, fresh(managers), pod, hints).grants.cpu.entries["p"]
    assert granted["a"] | granted["b"] <= CPUSet.parse("8-15")


def test_a_device_where_no_cpus_are_left_refuses_under_a_strict_policy() -> None:
    managers = node(regular(16, numa=2), topology_policy="single-numa-node")
    grants = admit(
        managers,
        fresh(managers),
        named("a", guaranteed("8")),
        device_hints(managers.machine.numa_mask, given_to(0b10)),
    ).grants
    verdict = admit(
        managers, grants, named("b", guaranteed("2")), device_hints(managers.machine.numa_mask, given_to(0b10))
    )
    assert verdict.reason == "TopologyAffinityError"
    assert verdict.rule.endswith("example.com/gpu and cpu have none in common")


@given(st.data())
def test_what_is_admitted_with_devices_lies_within_the_merged_affinity(data: st.DataObject) -> None:
    """And under these policies every device is near to a node of it."""
    policy = data.draw(st.sampled_from(["restricted", "single-numa-node"]))
    scope = data.draw(st.sampled_from(["container", "pod"]))
    managers = node(regular(32, numa=4), topology_policy=policy, topology_scope=scope)
    masks = managers.machine.topology.numa_masks
    names = ["a", "b"]
    grants = fresh(managers)
    for number in range(data.draw(st.integers(1, 4))):
        counts = [data.draw(st.integers(1, 8)) for _ in names]
        pod = named(f"p{number}", *(guaranteed(str(c), name=name) for c, name in zip(counts, names, strict=True)))
        near = st.sets(st.integers(0, 3), min_size=1, max_size=2).map(node_mask)
        held = {name: {GPU: tuple(data.draw(st.lists(near, min_size=1, max_size=2)))} for name in names}
        hints = device_hints(managers.machine.numa_mask, PodDevices(held))
        verdict = admit(managers, grants, pod, hints)
        grants = verdict.grants
        for name, cpus in grants.cpu.entries.get(pod.uid, {}).items():
            affinity = verdict.affinities[name].affinity
            assert affinity is not None
            within = CPUSet()
            for each in node_ids(affinity):
                within |= CPUSet(masks[each])
            assert cpus <= within
            assert all(mask & affinity for mask in held[name][GPU])
