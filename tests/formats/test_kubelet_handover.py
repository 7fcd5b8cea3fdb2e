"""From the kubelet to pinfold and back: nothing moves, and what cannot be said is said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.formats.allocated_pods import allocations, read_allocated_pods
from agent.formats.checkpoint import CheckpointError
from agent.formats.cpu_checkpoint import CPUVersion, cpu_state, read_cpu_checkpoint, write_cpu_checkpoint
from agent.formats.kubelet_export import export
from agent.formats.kubelet_forms import Forms, forms_for
from agent.formats.kubelet_import import read_files, record_pods
from agent.formats.memory_checkpoint import MemoryVersion, memory_state, read_memory_checkpoint
from agent.formats.pods import decode_pod
from agent.model.cpuset import CPUSet
from agent.model.state import (
    Epoch,
    Grants,
    Mark,
    MemoryBlock,
    MemoryState,
    PodRecord,
    PolicyInForce,
    Resize,
    ResizeState,
    State,
)
from agent.policy.memory_count import count
from agent.policy.memory_static import fresh_machine_state
from tests.policy.nodes import GIB, cpus, machine, managers, pod, policy

ON = managers(machine({0: "0-3", 1: "4-7"}), memory_policy="Static")


def block(size: int, nodes: int) -> tuple[MemoryBlock, ...]:
    return (MemoryBlock("memory", size, nodes),)


def memory() -> MemoryState:
    assert ON.memory is not None
    entries = {"a": {"app": block(GIB, 1)}, "b": {"app": block(GIB, 2), "log": block(GIB // 2, 2)}}
    bubbles = {"b": block(2 * GIB, 2)}
    held = MemoryState({}, entries, bubbles)
    return MemoryState(count(fresh_machine_state(ON.memory), held).machine, entries, bubbles)


STATE = State(
    Epoch(1, "0" * 16),
    5,
    policy=policy(ON),
    grants=Grants(cpus("0,3-4", {"b": "5-7"}, a={"app": "1-2"}, b={"app": "5-6"}), memory()),
    pods={"a": PodRecord(pod("a")), "b": PodRecord(pod("b", pod_level={"cpu": "3", "memory": "2Gi"}))},
    manifest_uids={"test/pod-a": "a"},
)


@pytest.mark.parametrize(
    ("version", "gate", "forms"),
    [
        ("1.37", False, Forms(CPUVersion.V4, MemoryVersion.V3, True)),
        ("v1.38.0-alpha.1", False, Forms(CPUVersion.V4, MemoryVersion.V3, True)),
        ("1.36.2", True, Forms(CPUVersion.V3, MemoryVersion.V2, True)),
        ("1.36", False, Forms(CPUVersion.V2, MemoryVersion.V1, True)),
        ("1.30", True, Forms(CPUVersion.V2, MemoryVersion.V1, False)),
        ("1.20", False, Forms(CPUVersion.V2, None, False)),
    ],
)
def test_the_newest_form_that_a_version_reads(version: str, gate: bool, forms: Forms) -> None:
    assert forms_for(version, pod_level_managers=gate) == forms


@pytest.mark.parametrize("version", ["1.17", "2.0", "latest", "", "1"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(CheckpointError):
        forms_for(version, pod_level_managers=False)


@pytest.mark.parametrize(("version", "gate"), [("1.37", False), ("1.36", True)])
def test_with_bubbles_everything_comes_back(version: str, gate: bool) -> None:
    made = export(STATE, forms_for(version, pod_level_managers=gate))
    assert not made.refused
    back = read_files(made.files)
    assert back.grants == STATE.grants
    assert (back.cpu_policy, back.memory_policy) == ("static", "Static")
    assert not back.notes
    assert back.allocated["b"].pod == STATE.pods["b"].pod.resources


def test_without_bubbles_what_they_held_alone_is_shared_again_and_that_is_said() -> None:
    made = export(STATE, forms_for("1.30", pod_level_managers=False))
    assert not made.refused
    assert set(made.files) == {"cpu_manager_state", "memory_manager_state"}
    cpu = cpu_state(read_cpu_checkpoint(made.files["cpu_manager_state"]))
    assert cpu == cpus("0,3-4,7", a={"app": "1-2"}, b={"app": "5-6"})
    back = memory_state(read_memory_checkpoint(made.files["memory_manager_state"]))
    table = back.machine[1].memory["memory"]
    assert (back.machine[1].assignments, table.reserved, table.free) == (2, GIB + GIB // 2, 8 * GIB - GIB - GIB // 2)
    assert any("pod test/pod-b: its bubble" in text for text in made.lost)


def test_what_the_kubelet_cannot_be_told_is_listed() -> None:
    odd = replace(
        STATE.pods["a"],
        resize=Resize(ResizeState.DEFERRED),
        unplaced=Mark("X", "no room"),
        degraded=Mark("Y", "CPU 9 is offline"),
    )
    made = export(replace(STATE, pods={"a": odd}), forms_for("1.37", pod_level_managers=False))
    text = "\n".join(made.lost)
    for part in (
        "resize (deferred) begins anew",
        "unplaced",
        "CPU 9 is offline",
        "first-admission",
        "UIDs of manifests",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (cpus("", a={"app": "0-7"}), "shared pool is empty"),
        (cpus("3-7", a={"app": "0-2"}), "reserved CPUs 0 are not in the shared pool"),
        (cpus("0,3-7", a={"app": "1"}), "CPUs 2 are in the files and not online, or the other way round"),
        (cpus("0-7", a={"app": "1"}), "CPUs 1 are shared and with a pod"),
    ],
)
def test_what_a_kubelet_would_refuse_is_foreseen(state: object, why: str) -> None:
    made = export(replace(STATE, grants=Grants(state)), forms_for("1.37", pod_level_managers=False))  # type: ignore[arg-type]
    assert why in "\n".join(made.refused)


def test_a_node_without_policies_gives_the_files_of_one() -> None:
    made = export(State(Epoch(1, "0" * 16), policy=PolicyInForce()), forms_for("1.36", pod_level_managers=False))
    assert b'"policyName":"none"' in made.files["cpu_manager_state"]
    assert made.files["memory_manager_state"] == b'{"policyName":"None","machineState":{},"checksum":4236770233}'
    assert (made.lost, made.refused) == ((), ())


def test_a_damaged_file_stops_the_import_and_is_named() -> None:
    files = export(STATE, forms_for("1.37", pod_level_managers=False)).files
    for name, data in files.items():
        with pytest.raises(CheckpointError, match=rf"{name} \(version v\d\): damaged"):
            read_files({**files, name: data.replace(b"1", b"2", 1)})


def test_a_file_without_checksum_needs_consent() -> None:
    file = {"cpu_manager_state": b'{"policyName":"static","defaultCpuSet":"0-7"}'}
    with pytest.raises(CheckpointError, match="carries no checksum"):
        read_files(file)
    assert read_files(file, accept_unverified=True).notes == ("cpu_manager_state: taken without a checksum",)


def test_two_files_of_different_moments_are_noticed() -> None:
    forms = forms_for("1.37", pod_level_managers=False)
    files = export(STATE, forms).files
    older = export(replace(STATE, grants=replace(STATE.grants, memory=MemoryState())), forms)
    notes = read_files({**files, "memory_manager_state": older.files["memory_manager_state"]}).notes
    assert notes == tuple(f"pod {uid} holds CPUs but no memory: one of the two files is older" for uid in "ab")


def test_inline_fields_that_differ_are_told() -> None:
    data = write_cpu_checkpoint("static", cpus("0-7"), CPUVersion.V4).replace(
        b'"defaultCpuSet":"0-7"', b'"defaultCpuSet":"0"', 1
    )
    data = data.replace(b'"checksum":', b'"checksum":0,"was":', 1)
    assert any("`data` counts" in note for note in read_files({"cpu_manager_state": data}).notes)


def kubelet_pod(name: str, uid: str, *, source: str = "api", created: str = "") -> object:
    return decode_pod(
        {
            "metadata": {
                "name": name,
                "namespace": "test",
                "uid": uid,
                "annotations": {"kubernetes.io/config.source": source},
                "creationTimestamp": created,
            },
            "spec": {"nodeName": "vm", "containers": [{"name": "app", "resources": {"requests": {"cpu": "9"}}}]},
        }
    )


def test_pods_get_their_records_in_order_of_creation_with_what_is_allocated_and_static_ones_their_own_name() -> None:
    imported = read_files(export(STATE, forms_for("1.37", pod_level_managers=False)).files)
    pods = [
        kubelet_pod("late", "b", created="2025-01-02T00:00:00Z"),
        kubelet_pod("web-vm", "a", source="file"),
        kubelet_pod("stranger", "c"),
    ]
    records, uids = record_pods(imported, pods)  # type: ignore[arg-type]
    assert list(records) == ["a", "b"]
    assert (records["a"].pod.name, records["a"].source) == ("web", "manifests")
    assert (records["b"].pod.name, records["b"].source) == ("late", "apiserver")
    assert records["a"].pod.containers[0].resources == STATE.pods["a"].pod.containers[0].resources
    assert records["a"].first.cpus == {"app": CPUSet.parse("1-2")}
    assert uids == {"test/web": "a"}


def test_allocated_resources_of_all_pods_are_handed_back() -> None:
    made = export(STATE, forms_for("1.36", pod_level_managers=False))
    found = allocations(read_allocated_pods(made.files["allocated_pods_state"]))
    assert found["a"].containers["app"] == STATE.pods["a"].pod.containers[0].resources
