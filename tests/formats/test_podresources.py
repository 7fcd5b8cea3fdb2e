"""PodResources messages: bytes by hand, the laws of our order, and the recorded answers of a real kubelet."""

from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.cpu_checkpoint import cpu_state, read_cpu_checkpoint
from agent.formats.memory_checkpoint import memory_state, read_memory_checkpoint
from agent.formats.podresources import Answers, AnswersEncoder, encode_allocatable, encode_get
from agent.formats.pods import decode_pod
from agent.model.cpuset import CPUSet
from agent.model.pod import ContainerKind
from agent.model.podresources import ContainerView, PodResourcesView, PodView
from agent.model.state import Grants, MemoryBlock
from agent.policy.podresources_view import Shape, podresources_view
from agent.proto import podresources_v1_pb2 as v1
from agent.proto import podresources_v1alpha1_pb2 as v1alpha1
from tests.shared import SHARED

SAMPLES = SHARED / "samples" / "kubelet"


def test_a_pod_is_written_as_the_kubelet_writes_it() -> None:
    pod = PodView("p", "n", (ContainerView("c", cpus=CPUSet.of([3, 2]), memory=(MemoryBlock("memory", 300, 0b01),)),))
    container = "0a0163" + "1a020203" + "220f" + "0a066d656d6f7279" + "10ac02" + "1a020a00"  # node 0: an empty message
    assert encode_get(pod).hex() == "0a20" + "0a0170" + "12016e" + "1a18" + container


def test_pod_level_fields_have_the_numbers_of_1_37() -> None:
    pod = PodView("p", "n", cpus=CPUSet.of([1]), memory=(MemoryBlock("memory", 1, 0b10),))
    assert encode_get(pod).hex() == "0a1b" + "0a0170" + "12016e" + "220101" + "2a10" + (
        "0a066d656d6f7279" + "1001" + "1a040a020801"
    )


def test_a_zero_sized_block_is_an_entry_without_size() -> None:
    container = ContainerView("c", memory=(MemoryBlock("memory", 0, 0b1),))
    message = v1.GetPodResourcesResponse.FromString(encode_get(PodView("p", "n", (container,))))
    (entry,) = message.pod_resources.containers[0].memory
    assert (entry.memory_type, entry.size, len(entry.topology.nodes)) == ("memory", 0, 1)


def test_a_block_over_several_nodes_is_one_entry_and_entries_are_in_order() -> None:
    memory = (
        MemoryBlock("memory", 5, 0b10),
        MemoryBlock("memory", 5, 0b101),
        MemoryBlock("hugepages-2Mi", 7, 0b10),
        MemoryBlock("memory", 3, 0b10),
    )
    entries = v1.AllocatableResourcesResponse.FromString(
        encode_allocatable(PodResourcesView(allocatable_memory=memory))
    ).memory
    assert [(entry.memory_type, [node.ID for node in entry.topology.nodes], entry.size) for entry in entries] == [
        ("hugepages-2Mi", [1], 7),
        ("memory", [0, 2], 5),
        ("memory", [1], 3),
        ("memory", [1], 5),
    ]


def test_the_old_version_tells_app_containers_by_name_and_nothing_else() -> None:
    containers = (ContainerView("proxy", ContainerKind.SIDECAR), ContainerView("web", cpus=CPUSet.of([1])))
    answers = AnswersEncoder().encode(PodResourcesView((PodView("p", "n", containers, CPUSet.of([1])),)))
    wanted = v1alpha1.ListPodResourcesResponse(
        pod_resources=[
            v1alpha1.PodResources(name="p", namespace="n", containers=[v1alpha1.ContainerResources(name="web")])
        ]
    )
    assert answers.list_v1alpha1 == wanted.SerializeToString()


def test_of_two_pods_with_one_name_get_answers_for_the_later_and_list_has_both() -> None:
    old, new = PodView("db-0", "n", (ContainerView("old"),)), PodView("db-0", "n", (ContainerView("new"),))
    answers = AnswersEncoder().encode(PodResourcesView((old, new)))
    assert answers.get[("n", "db-0")] == encode_get(new)
    assert answers.list == encode_get(old) + encode_get(new)


def test_a_node_without_pods_has_empty_answers() -> None:
    assert AnswersEncoder().encode(PodResourcesView()) == Answers()


def test_an_encoder_remembers_the_pods_of_the_newest_view_and_no_others() -> None:
    encoder = AnswersEncoder()
    kept = encoder.encode(PodResourcesView((PodView("kept", "n"), PodView("pod-0", "n")))).get["n", "kept"]
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(1, 500):
        answers = encoder.encode(PodResourcesView((PodView("kept", "n"), PodView(f"pod-{number}", "n"))))
        assert answers.get["n", "kept"] is kept  # not serialised again
    gc.collect()
    assert sys.getallocatedblocks() - before < 499


names = st.text(st.characters(codec="utf-8"), max_size=6)
cpusets = st.builds(CPUSet, st.integers(0, (1 << 512) - 1))
blocks = st.lists(
    st.builds(MemoryBlock, names, st.integers(0, (1 << 64) - 1), st.integers(0, (1 << 64) - 1)), max_size=3
).map(tuple)
containers = st.builds(ContainerView, names, st.sampled_from(list(ContainerKind)), cpusets, blocks)
pod_views = st.builds(PodView, names, names, st.lists(containers, max_size=3).map(tuple), cpusets, blocks)
views = st.builds(PodResourcesView, st.lists(pod_views, max_size=4).map(tuple), cpusets, blocks)


@given(st.lists(views, max_size=3))
def test_an_encoder_that_has_made_others_makes_the_same_answers(others: list[PodResourcesView]) -> None:
    encoder = AnswersEncoder()
    for view in (*others, *others):
        assert encoder.encode(view) == AnswersEncoder().encode(view)


@given(views)
def test_answers_read_back_to_what_they_tell_in_our_order(view: PodResourcesView) -> None:
    answers = AnswersEncoder().encode(view)
    listed = v1.ListPodResourcesResponse.FromString(answers.list).pod_resources
    assert [(pod.namespace, pod.name, list(pod.cpu_ids)) for pod in listed] == [
        (pod.namespace, pod.name, sorted(pod.cpus)) for pod in view.pods
    ]
    assert [[(one.name, list(one.cpu_ids), len(one.memory)) for one in pod.containers] for pod in listed] == [
        [(one.name, sorted(one.cpus), len(one.memory)) for one in pod.containers] for pod in view.pods
    ]
    assert answers.list == in_our_order(v1.ListPodResourcesResponse.FromString(answers.list)).SerializeToString()
    assert list(v1.AllocatableResourcesResponse.FromString(answers.allocatable).cpu_ids) == sorted(
        view.allocatable_cpus
    )
    assert answers.get.keys() == {(pod.namespace, pod.name) for pod in view.pods}


def in_our_order(message: Message) -> Message:
    """Sort what the kubelet leaves in random order: ids and memory entries, wherever they are."""
    for field, value in message.ListFields():
        if field.name == "cpu_ids":
            value.sort()
        elif field.name == "memory":
            value.sort(key=lambda entry: (entry.memory_type, [node.ID for node in entry.topology.nodes], entry.size))
        elif field.message_type is not None:
            for nested in value if isinstance(value, Iterable) else [value]:
                in_our_order(nested)
    return message


def recorded(path: Path) -> bytes:
    """The message bytes of a recorded answer."""
    (line,) = (line for line in path.read_text().splitlines() if line.startswith("hex: "))
    return bytes.fromhex(line.removeprefix("hex: "))


def kubelet_answers(node: Path, shape: Shape) -> Answers:
    """Our answers for the state of a captured kubelet, its pods in the order of the recorded List."""
    pods = [decode_pod(item) for item in json.loads((node / "pods.json").read_text())["items"]]
    grants = Grants(
        cpu_state(read_cpu_checkpoint((node / "cpu_manager_state").read_bytes())),
        memory_state(read_memory_checkpoint((node / "memory_manager_state").read_bytes())),
    )
    allocatable = v1.AllocatableResourcesResponse.FromString(
        recorded(node / "podresources-GetAllocatableResources.txt")
    )
    listed = v1.ListPodResourcesResponse.FromString(recorded(node / "podresources-List.txt")).pod_resources
    order = {(pod.namespace, pod.name): place for place, pod in enumerate(listed)}
    pods.sort(key=lambda pod: order.get((pod.namespace, pod.name), len(order)))
    return AnswersEncoder().encode(podresources_view(pods, grants, CPUSet.of(allocatable.cpu_ids), shape))


def sample_nodes() -> list[Any]:
    nodes = sorted(path.parent for path in SAMPLES.glob("*/podresources-List.txt"))
    return [pytest.param(node, shape, id=f"{node.name}-{shape}") for node in nodes for shape in Shape] or [
        pytest.param(SAMPLES, Shape.V1_36, id="absent")
    ]


@pytest.mark.shared
@pytest.mark.parametrize(("node", "shape"), sample_nodes())
def test_our_answers_are_a_real_kubelets_byte_for_byte_once_sorted(node: Path, shape: Shape) -> None:
    answers = kubelet_answers(node, shape)
    listing = v1.ListPodResourcesResponse.FromString(recorded(node / "podresources-List.txt"))
    assert answers.list == in_our_order(listing).SerializeToString()
    allocatable = v1.AllocatableResourcesResponse.FromString(
        recorded(node / "podresources-GetAllocatableResources.txt")
    )
    assert answers.allocatable == in_our_order(allocatable).SerializeToString()
    found = {(pod.namespace, pod.name) for pod in listing.pod_resources}
    assert answers.get.keys() == found
    for namespace, name in found:
        path = node / f"podresources-Get-{name}.txt"
        if path.exists():
            wanted = v1.GetPodResourcesResponse.FromString(recorded(path))
            assert answers.get[(namespace, name)] == in_our_order(wanted).SerializeToString()


@pytest.mark.shared
@pytest.mark.parametrize("name", ["List", "GetAllocatableResources"])
def test_our_protocol_files_lose_nothing_of_a_real_answer(shared_dir: Path, name: str) -> None:
    kinds: dict[str, type[Message]] = {
        "List": v1.ListPodResourcesResponse,
        "GetAllocatableResources": v1.AllocatableResourcesResponse,
    }
    for path in (shared_dir / "samples" / "kubelet").glob(f"*/podresources-{name}.txt"):
        assert kinds[name].FromString(recorded(path)).SerializeToString() == recorded(path)
