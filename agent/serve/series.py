"""The counters and histograms of the agent, as one table, and the tally that the daemon keeps of them.

Gauges are not here: `agent.serve.metrics` computes them from the state whenever somebody asks, so that they cannot drift.
Sources of the kubelet's names and labels: pkg/kubelet/metrics/metrics.go of 1.36, the renamed ones k/k#138770 (1.37).
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

OTHER = "Other"  # the kubelet's value for a reason that it does not count by name

_ALIGNMENT = {"scope": ("container", "pod"), "boundary": ("physical_cpu", "numa_node", "uncore_cache")}
_SOURCE = {"resource_name": ("cpu", "memory"), "source": ("node", "pod")}
_KUBELET_REASONS = (
    "TopologyAffinityError",
    "UnexpectedAdmissionError",
    "OutOfcpu",
    "OutOfmemory",
    "OutOfephemeral-storage",
    "OutOfpods",
    "InvalidNodeInfo",
    "PodFeatureUnsupported",
    "PodLevelResourcesNotSupported",
    "UnexpectedPredicateFailureType",
    "UnknownReason",
    OTHER,
)
_OUR_REASONS = ("SMTAlignmentError", "EmptyPodSharedPoolError", *_KUBELET_REASONS)
_INFEASIBLE = (
    "feature_gate_off",
    "plr_feature_gate_off",
    "swap_limitation",
    "guaranteed_pod_cpu_manager_static_policy",
    "guaranteed_pod_memory_manager_static_policy",
    OTHER,
)
_RETRY = ("pod_resized", "pod_updated", "pods_added", "pods_removed", "pod_terminated", "periodic_retry")
_RESIZE = {
    "resource": ("cpu", "memory"),
    "requirement": ("limits", "requests"),
    "operation": ("add", "remove", "increase", "decrease"),
}
_RESIZE_MS = (10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000)
_TARGET = {"target": ("spool", "kubernetes", "queues", "accountant")}
_ADMISSION_MS = tuple(0.05 * 2**n for n in range(15))
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)


@dataclass(frozen=True, slots=True)
class Series:
    """One counter, or one histogram where it has buckets (upper bounds, ascending).

    labels: name -> every value it can have, so that all of them exist from the start and rate() works; a value that is not
    listed counts as OTHER where that is. alias: the name of the same series in another release.
    """

    name: str
    help: str
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    buckets: tuple[float, ...] = ()
    alias: str = ""


SERIES = (
    Series("kubelet_cpu_manager_pinning_requests_total", "Allocations that needed exclusive CPUs."),
    Series("kubelet_cpu_manager_pinning_errors_total", "Allocations that needed exclusive CPUs and failed."),
    Series("kubelet_memory_manager_pinning_requests_total", "Allocations that needed memory of certain NUMA nodes."),
    Series("kubelet_memory_manager_pinning_errors_total", "Allocations that needed such memory and failed."),
    Series("kubelet_topology_manager_admission_requests_total", "Pods whose resources had to be aligned."),
    Series("kubelet_topology_manager_admission_errors_total", "Pods whose resources could not be aligned."),
    Series(
        "kubelet_topology_manager_admission_duration_ms", "Time of a pod's admission, in ms.", buckets=_ADMISSION_MS
    ),
    Series("kubelet_container_aligned_compute_resources_count", "Grants that are aligned.", _ALIGNMENT),
    Series("kubelet_container_aligned_compute_resources_failure_count", "Grants that are not aligned.", _ALIGNMENT),
    Series(
        "resource_manager_allocations_total",
        "Exclusive allocations, by what they were cut from.",
        _SOURCE,
        alias="kubelet_resource_manager_allocations_total",
    ),
    Series(
        "resource_manager_allocation_errors_total",
        "Exclusive allocations that failed, by what they should have been cut from.",
        _SOURCE,
        alias="kubelet_resource_manager_allocation_errors_total",
    ),
    Series(
        "resource_manager_container_assignments",
        "Containers that were admitted, by kind of assignment.",
        {"resource_name": ("cpu", "memory"), "assignment_type": ("node_exclusive", "pod_exclusive", "pod_shared")},
        alias="kubelet_resource_manager_container_assignments",
    ),
    Series("kubelet_admission_rejections_total", "Pods that were refused.", {"reason": _KUBELET_REASONS}),
    Series("kubelet_container_requested_resizes_total", "Changes of a container's size that were asked for.", _RESIZE),
    Series(
        "kubelet_pod_resize_duration_milliseconds",
        "Time until a resize was in force, in ms.",
        {"success": ("true", "false")},
        _RESIZE_MS,
    ),
    Series(
        "kubelet_pod_infeasible_resizes_total", "Resizes that can never be granted.", {"reason_detail": _INFEASIBLE}
    ),
    Series("kubelet_pod_deferred_accepted_resizes_total", "Resizes granted after a wait.", {"retry_trigger": _RETRY}),
    Series("pinfold_admission_rejections_total", "Pods that were refused.", {"reason": _OUR_REASONS}),
    Series(
        "pinfold_decisions_total", "Decisions about pods.", {"outcome": ("granted", "refused", "released", "resized")}
    ),
    Series("pinfold_decision_duration_seconds", "Time of one decision, without the write.", buckets=_SECONDS),
    Series(
        "pinfold_isolation_gap_seconds",
        "Longest time in one change in which an exclusive CPU was shared.",
        buckets=_SECONDS,
    ),
    Series("pinfold_state_write_duration_seconds", "Time until a state was durable.", buckets=_SECONDS),
    Series(
        "pinfold_drift_repairs_total",
        "Cgroup settings that somebody else had changed and that were written again, by the probable writer.",
        {"writer": ("systemd", "kubelet", "kernel", "unknown")},
    ),
    Series(
        "pinfold_evictions_total",
        "Unplaced pods that the API server was asked to evict, by what became of it.",
        {"outcome": ("evicted", "gone", "refused", "failed")},
    ),
    Series("pinfold_reports_total", "Occupancy reports that were delivered.", _TARGET),
    Series("pinfold_report_failures_total", "Occupancy reports that could not be delivered.", _TARGET),
    Series("pinfold_reports_dropped_total", "Reports that nobody took while there was room for them.", _TARGET),
    Series("pinfold_report_delay_seconds", "Time from a change being seen to its report.", _TARGET, _SECONDS),
    Series("pinfold_state_write_failures_total", "States that could not be written; their decision was taken back."),
)

LabelValues = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """counts: observations per bucket, the last one for those above all bounds. total: their sum."""

    counts: tuple[int, ...]
    total: float = 0.0


class Tally:
    """Counts what happened since the agent started. Written and read from any thread."""

    def __init__(self, series: Sequence[Series] = SERIES) -> None:
        self._lock = threading.Lock()
        self._series = {each.name: each for each in series}
        self._counters: dict[str, dict[LabelValues, int]] = {}
        self._histograms: dict[str, dict[LabelValues, Histogram]] = {}
        for each in series:
            label_sets = list(product(*each.labels.values()))
            if each.buckets:
                empty = Histogram((0,) * (len(each.buckets) + 1))
                self._histograms[each.name] = dict.fromkeys(label_sets, empty)
            else:
                self._counters[each.name] = dict.fromkeys(label_sets, 0)

    def add(self, name: str, count: int = 1, /, **labels: str) -> None:
        """Count. Raises KeyError for a series, label or value that the table does not have."""
        key = self._key(name, labels)
        with self._lock:
            self._counters[name][key] += count

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Enter one value in a histogram, in the unit of its name. Raises KeyError as `add` does."""
        key, bucket = self._key(name, labels), bisect_left(self._series[name].buckets, value)
        with self._lock:
            old = self._histograms[name][key]
            counts = (*old.counts[:bucket], old.counts[bucket] + 1, *old.counts[bucket + 1 :])
            self._histograms[name][key] = Histogram(counts, old.total + value)

    def counters(self) -> list[tuple[Series, dict[LabelValues, int]]]:
        """Every counter with its values by label values, in the order of the table."""
        with self._lock:
            return [(self._series[name], dict(values)) for name, values in self._counters.items()]

    def histograms(self) -> list[tuple[Series, dict[LabelValues, Histogram]]]:
        """Every histogram with its values by label values, in the order of the table."""
        with self._lock:
            return [(self._series[name], dict(values)) for name, values in self._histograms.items()]

    def _key(self, name: str, labels: Mapping[str, str]) -> LabelValues:
        known = self._series[name].labels
        if labels.keys() != known.keys():
            raise KeyError(f"{name}: labels {sorted(labels)}, must be {sorted(known)}")
        return tuple(
            labels[one] if labels[one] in values or OTHER not in values else OTHER for one, values in known.items()
        )
