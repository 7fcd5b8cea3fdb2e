"""Metrics: computed from the state at the scrape, under the kubelet's names, types and labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from agent.formats.cpu_checkpoint import cpu_state, read_cpu_checkpoint
from agent.formats.memory_checkpoint import memory_state, read_memory_checkpoint
from agent.model.cpuset import CPUSet
from agent.model.machine import Machine, RawCPU, discover
from agent.model.pod import Container, ContainerKind, Pod
from agent.model.state import (
    CPUState,
    Grants,
    Mark,
    MemoryState,
    MemoryTable,
    NUMANodeState,
    PodPhase,
    PodRecord,
    PolicyInForce,
    Resize,
    ResizeState,
    State,
)
from agent.serve.exposition import CONTENT_TYPE, metrics_route, write_metrics
from agent.serve.gauges import GaugedNode, gauge
from agent.serve.http_messages import Request
from agent.serve.metrics import NodeCollector
from agent.serve.podresources import CallKind
from agent.serve.series import SERIES, Tally
from tests.states import EPOCH

EIGHT = Machine(discover(RawCPU(cpu, cpu // 2, cpu // 4, cpu // 4, cpu // 4) for cpu in range(8)), {}, {})
Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]


def state(default: str = "0-7", reserved: str = "0-1", bubbles: dict[str, str] | None = None, **held: str) -> State:
    """Static policy on eight CPUs, pod u1 with containers that hold these CPUs."""
    return State(
        EPOCH,
        policy=PolicyInForce("static", reserved_cpus=CPUSet.parse(reserved)),
        grants=Grants(
            CPUState(
                CPUSet.parse(default),
                {"u1": {name: CPUSet.parse(cpus) for name, cpus in held.items()}} if held else {},
                {uid: CPUSet.parse(cpus) for uid, cpus in (bubbles or {}).items()},
            )
        ),
    )


def scrape(
    observed: State,
    tally: Tally | None = None,
    calls: Mapping[CallKind, int] | None = None,
    *,
    kubelet_names: bool = True,
    machine: Machine = EIGHT,
) -> str:
    """The text of one scrape."""
    registry = CollectorRegistry()
    registry.register(
        NodeCollector(
            lambda: GaugedNode(observed, machine, True),
            tally or Tally(),
            lambda: calls or {},
            kubelet_names=kubelet_names,
        )
    )
    response = metrics_route(registry)(Request("/metrics"))
    assert response.content_type == CONTENT_TYPE
    assert isinstance(response.body, str)
    return response.body


def samples(text: str) -> Samples:
    """(name, labels) -> value, as the text has them."""
    found = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = re.fullmatch(r"([a-zA-Z_:]+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
            key = name, frozenset(re.findall(r'(\w+)="([^"]*)"', labels or ""))
            assert key not in found, f"twice: {line}"
            found[key] = float(value)
    return found


def value(text: str, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


def test_shared_pool_and_exclusive_cpus_are_counted_from_the_sets() -> None:
    text = scrape(state("0-1,6-7", main="2-3", side="4-5"))
    assert value(text, "kubelet_cpu_manager_shared_pool_size_millicores") == 2000
    assert value(text, "kubelet_cpu_manager_exclusive_cpu_allocation_count") == 4
    assert value(text, "kubelet_cpu_manager_allocation_per_numa", numa_node="0") == 2
    assert value(text, "kubelet_cpu_manager_allocation_per_numa", numa_node="1") == 2


def test_cpus_that_an_app_reuses_from_an_init_container_count_once() -> None:
    text = scrape(state("0-1,6-7", init="2-5", app="2-5"))
    assert value(text, "kubelet_cpu_manager_exclusive_cpu_allocation_count") == 4


def test_nothing_is_held_on_an_empty_machine_and_every_node_is_there() -> None:
    text = scrape(state())
    assert value(text, "kubelet_cpu_manager_shared_pool_size_millicores") == 6000
    assert value(text, "kubelet_cpu_manager_allocation_per_numa", numa_node="1") == 0


def test_with_cpu_policy_none_there_is_no_shared_pool_and_no_node_has_a_series() -> None:
    text = scrape(State(EPOCH, grants=Grants(CPUState(CPUSet.parse("0-7")))))
    assert value(text, "kubelet_cpu_manager_shared_pool_size_millicores") == 0
    assert "allocation_per_numa{" not in text
    assert value(text, "pinfold_leaked_cpus") == 0


@given(st.integers(0, 255), st.integers(0, 255), st.integers(0, 255), st.integers(0, 3))
def test_every_online_cpu_of_a_node_is_held_reserved_or_free(
    held: int, bubble: int, default: int, reserved: int
) -> None:
    text = scrape(
        state(str(CPUSet(default)), str(CPUSet(reserved)), {"u2": str(CPUSet(bubble))}, main=str(CPUSet(held)))
    )
    for node in "01":
        parts = [value(text, "pinfold_numa_cpus", numa_node=node, state=part) for part in ("held", "reserved", "free")]
        assert sum(parts) == 4


def test_a_cpu_in_no_set_is_a_leak() -> None:
    assert value(scrape(state("0-1,6-7", main="2-3")), "pinfold_leaked_cpus") == 2
    assert value(scrape(state("2-7", "0-1")), "pinfold_leaked_cpus") == 0  # strict reservation


def test_cpus_of_a_bubble_that_no_running_container_may_use_are_idle() -> None:
    containers = (Container("init", ContainerKind.INIT), Container("app"))
    held = state("0-1", bubbles={"u1": "2-7"}, init="4-5", app="2-3")
    with_pod = State(
        EPOCH, policy=held.policy, grants=held.grants, pods={"u1": PodRecord(Pod("u1", "p", containers=containers))}
    )
    assert value(scrape(with_pod), "pinfold_bubble_idle_cpus") == 4
    assert value(scrape(with_pod), "pinfold_grants", resource_name="cpu", level="pod") == 1
    assert value(scrape(with_pod), "pinfold_grants", resource_name="cpu", level="container") == 2


def test_memory_is_told_per_node_and_type() -> None:
    tables = {"memory": MemoryTable(100, 10, 90, 30, 60), "hugepages-2Mi": MemoryTable(8, 0, 8, 8, 0)}
    text = scrape(State(EPOCH, grants=Grants(memory=MemoryState({1: NUMANodeState(1, 2, tables)}))))
    found = {part: value(text, "pinfold_numa_memory_bytes", numa_node="1", type="memory", state=part)
             for part in ("held", "free", "system_reserved")}  # fmt: skip
    assert found == {"held": 30, "free": 60, "system_reserved": 10}
    assert value(text, "pinfold_numa_memory_bytes", numa_node="1", type="hugepages-2Mi", state="held") == 8


def test_pods_resizes_and_marks_are_counted() -> None:
    records = {
        "a": PodRecord(Pod("a", "a"), resize=Resize(ResizeState.DEFERRED)),
        "b": PodRecord(Pod("b", "b"), resize=Resize(ResizeState.INFEASIBLE), phase=PodPhase.RUNNING),
        "c": PodRecord(Pod("c", "c"), resize=Resize(ResizeState.ERROR), degraded=Mark("CPUOffline", "gone")),
        "d": PodRecord(Pod("d", "d"), resize=Resize(ResizeState.IN_PROGRESS), unplaced=Mark("NoRoom", "full")),
    }
    text = scrape(State(EPOCH, pods=records))
    assert value(text, "kubelet_pod_pending_resizes", reason="deferred") == 1
    assert value(text, "kubelet_pod_pending_resizes", reason="infeasible") == 1
    assert value(text, "kubelet_pod_in_progress_resizes") == 2
    assert value(text, "pinfold_pods", phase="admitted") == 3
    assert value(text, "pinfold_marked_pods", mark="unplaced") == 1
    assert value(text, "pinfold_marked_pods", mark="degraded") == 1


def test_renamed_series_are_served_under_both_names() -> None:
    tally = Tally()
    tally.add("resource_manager_allocations_total", 3, resource_name="cpu", source="pod")
    text = scrape(state(), tally)
    for name in ("resource_manager_allocations_total", "kubelet_resource_manager_allocations_total"):
        assert value(text, name, resource_name="cpu", source="pod") == 3
        assert value(text, name, resource_name="memory", source="node") == 0


def test_every_label_set_exists_before_anything_happened() -> None:
    text = scrape(state())
    assert value(text, "kubelet_container_aligned_compute_resources_count", scope="pod", boundary="uncore_cache") == 0
    assert value(text, "kubelet_admission_rejections_total", reason="TopologyAffinityError") == 0
    assert value(text, "pinfold_admission_rejections_total", reason="SMTAlignmentError") == 0
    assert value(text, "kubelet_pod_resize_duration_milliseconds_count", success="false") == 0


def test_a_reason_that_the_kubelet_does_not_count_by_name_is_other() -> None:
    tally = Tally()
    tally.add("kubelet_admission_rejections_total", reason="SMTAlignmentError")
    tally.add("pinfold_admission_rejections_total", reason="SMTAlignmentError")
    text = scrape(state(), tally)
    assert value(text, "kubelet_admission_rejections_total", reason="Other") == 1
    assert value(text, "pinfold_admission_rejections_total", reason="SMTAlignmentError") == 1


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("no_such_series", {}),
        ("kubelet_admission_rejections_total", {}),
        ("kubelet_cpu_manager_pinning_errors_total", {"reason": "x"}),
        ("resource_manager_allocations_total", {"resource_name": "cpu", "source": "moon"}),
    ],
)
def test_what_the_table_does_not_have_cannot_be_counted(name: str, labels: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        Tally().add(name, **labels)


def test_a_histogram_has_cumulative_buckets_with_inclusive_bounds() -> None:
    tally = Tally()
    for millis in (0.05, 0.06, 1000):
        tally.observe("kubelet_topology_manager_admission_duration_ms", millis)
    text = scrape(state(), tally)
    name = "kubelet_topology_manager_admission_duration_ms"
    bounds = [dict(labels)["le"] for found, labels in samples(text) if found == f"{name}_bucket"]
    assert " ".join(bounds) == "0.05 0.1 0.2 0.4 0.8 1.6 3.2 6.4 12.8 25.6 51.2 102.4 204.8 409.6 819.2 +Inf"
    assert [value(text, f"{name}_bucket", le=le) for le in ("0.05", "0.1", "819.2", "+Inf")] == [1, 2, 2, 3]
    assert value(text, f"{name}_count") == 3
    assert value(text, f"{name}_sum") == pytest.approx(1000.11)


CALLS = {
    CallKind("default", "v1", "List", "OK"): 5,
    CallKind("dcgm", "v1", "List", "OK"): 2,
    CallKind("dcgm", "v1", "List", "RESOURCE_EXHAUSTED"): 100,
    CallKind("default", "v1", "Get", "OK"): 3,
    CallKind("default", "v1", "Get", "UNKNOWN"): 1,
    CallKind("default", "v1alpha1", "List", "OK"): 4,
}


def test_podresources_calls_are_counted_as_the_kubelet_counts_them() -> None:
    text = scrape(state(), calls=CALLS)
    prefix = "kubelet_pod_resources_endpoint"
    assert value(text, f"{prefix}_requests_total", server_api_version="v1") == 11
    assert value(text, f"{prefix}_requests_total", server_api_version="v1alpha1") == 4
    found = {name: value(text, f"{prefix}_{name}", server_api_version="v1") for name in (
        "requests_list", "requests_get", "requests_get_allocatable", "errors_list", "errors_get", "errors_get_allocatable",
    )}  # fmt: skip
    assert list(found.values()) == [7, 4, 0, 0, 1, 0]
    assert value(
        text,
        "pinfold_podresources_calls_total",
        client_group="dcgm",
        server_api_version="v1",
        method="List",
        code="RESOURCE_EXHAUSTED",
    ) == 100  # fmt: skip


def test_the_kubelets_names_are_left_to_a_kubelet_that_serves_them() -> None:
    names = {name for name, _ in samples(scrape(state(), calls=CALLS, kubelet_names=False))}
    assert names
    assert all(name.startswith("pinfold_") for name in names)


def test_prometheus_own_reader_takes_the_text() -> None:
    text = scrape(state("0-1", main="2-7"), calls=CALLS)
    families = list(text_string_to_metric_families(text))
    assert sum(len(family.samples) for family in families) == len(samples(text))


def test_the_processes_own_series_can_be_served_beside() -> None:
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    text = write_metrics(registry.collect())
    assert declared(text)["process_cpu_seconds_total"][0] == "counter"
    assert value(text, "process_resident_memory_bytes") > 0


def test_names_and_help_are_as_promtool_wants_ours() -> None:
    for name, (kind, help_text) in declared(scrape(state(), calls=CALLS)).items():
        assert help_text
        if name.startswith("pinfold_"):
            assert (kind == "counter") == name.endswith("_total")
            assert not name.endswith(("_count", "_sum", "_bucket"))
            assert not re.search(r"_(milliseconds|ms|minutes|kb|counter|gauge)(_|$)", name)


def declared(text: str) -> dict[str, tuple[str, str]]:
    """name -> (type, help)."""
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.M))
    assert types.keys() == helps.keys()
    return {name: (types[name], helps[name]) for name in types}


@given(st.text(max_size=20), st.text(max_size=20))
def test_no_label_or_help_breaks_a_line(label: str, help_text: str) -> None:
    text = write_metrics([gauge("x", help_text, [({"l": label}, 1.5)])])
    (family,) = text_string_to_metric_families(text)
    assert len(re.findall("\n", text)) == 3
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"l": label}, 1.5)]


def test_the_table_has_no_name_twice() -> None:
    names = [name for series in SERIES for name in (series.name, series.alias) if name]
    assert len(names) == len(set(names))


RESOURCE_SERIES = re.compile(
    r"kubelet_(cpu_manager|memory_manager|topology_manager|container_aligned|container_requested|admission_rej|pod_)|"
    "resource_manager"
)


def without(labels: Iterable[tuple[str, str]], *names: str) -> frozenset[str]:
    return frozenset(name for name, _ in labels if name not in names)


@pytest.mark.shared
def test_a_real_kubelets_series_are_all_here_with_its_types_labels_and_buckets(shared_dir: Path) -> None:
    ours = scrape(state(), calls=CALLS)
    our_types = {name: kind for name, (kind, _) in declared(ours).items()}
    our_labels = {(name, without(labels)) for name, labels in samples(ours)}
    our_buckets = {(name, dict(labels).get("le")) for name, labels in samples(ours)}
    excerpts = list((shared_dir / "samples" / "kubelet").glob("*/metrics-excerpt.txt"))
    assert excerpts
    for excerpt in excerpts:
        text = "".join(line for line in excerpt.read_text().splitlines(True) if RESOURCE_SERIES.search(line))
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M):
            assert our_types[name] == kind, name
        for name, labels in samples(text):
            assert (name, without(labels)) in our_labels
            assert (name, dict(labels).get("le")) in our_buckets


@pytest.mark.shared
def test_the_gauges_of_a_real_kubelets_state_are_the_ones_it_served(shared_dir: Path) -> None:
    node = shared_dir / "samples" / "kubelet" / "vm-v2-2numa-smt"
    grants = Grants(
        cpu_state(read_cpu_checkpoint((node / "cpu_manager_state").read_bytes())),
        memory_state(read_memory_checkpoint((node / "memory_manager_state").read_bytes())),
    )
    policy = PolicyInForce("static", reserved_cpus=CPUSet.parse("0-1"))
    ours = samples(scrape(State(EPOCH, policy=policy, grants=grants)))
    theirs = samples((node / "metrics-excerpt.txt").read_text())
    gauges = [
        key for key in theirs if re.search(r"shared_pool_size|exclusive_cpu_allocation|allocation_per_numa", key[0])
    ]
    assert len(gauges) == 4
    assert {key: ours[key] for key in gauges} == {key: theirs[key] for key in gauges}
