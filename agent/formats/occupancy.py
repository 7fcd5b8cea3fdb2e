"""Node occupancy reports as JSON (docs/reports.md): full ones, and what has changed since another.

An accountant reads the same bytes (`agent.queues.node_report_format`, which passes over what queues do not need). Lists of CPUs
are in kernel form, resource lists are Kubernetes' own, amounts of zones plain numbers: CPUs and bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from agent.model.numa import NodeMask, node_ids
from agent.model.occupancy import ContainerOccupancy, Holdings, Occupancy, PodOccupancy, ResizeReport, Terms, Zone
from agent.model.pod import ResourceList
from agent.model.state import Shortfall

SCHEMA = 1


def zone_name(node: int) -> str:
    """A NUMA node as NodeResourceTopology and the placement annotation call it."""
    return f"node-{node}"


class OccupancyEncoder:
    """Writes full reports of one node. Keeps the text of every pod, since most do not change from one to the next."""

    def __init__(self) -> None:
        self._texts: dict[str, tuple[PodOccupancy, str]] = {}

    def encode(self, report: Occupancy) -> str:
        """The full report on one line."""
        texts: dict[str, tuple[PodOccupancy, str]] = {}
        for uid, pod in report.pods.items():
            known = self._texts.get(uid)
            keep = known is not None and _same(known[0], pod)
            texts[uid] = known if known and keep else (pod, f"{_dumps(uid)}:{_dumps(encode_pod(pod))}")
        self._texts = texts
        pods = ",".join(text for _, text in texts.values())
        return f'{_dumps(_head(report))[:-1]},"pods":{{{pods}}},"gone":[]}}'


def encode_occupancy(report: Occupancy) -> str:
    """One full report, on one line."""
    return OccupancyEncoder().encode(report)


def encode_changes(base: Occupancy, report: Occupancy) -> str:
    """What is different since `base`, an earlier report of the same node: to be applied to that one only."""
    changed = {uid: encode_pod(pod) for uid, pod in report.pods.items() if not _same(base.pods.get(uid), pod)}
    gone = [uid for uid in base.pods if uid not in report.pods]
    stamp = {"base": {"epoch": str(base.epoch), "generation": base.generation}}
    return _dumps({**_head(report), **stamp, "pods": changed, "gone": gone})


def _same(before: PodOccupancy | None, now: PodOccupancy) -> bool:
    return before is now or before == now  # mostly the very same, which is told at once


def _dumps(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))


def _head(report: Occupancy) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "node": report.node,
        "bootId": report.boot_id,
        "epoch": str(report.epoch),
        "generation": report.generation,
        "time": datetime.fromtimestamp(report.time_seconds, UTC).isoformat(timespec="microseconds"),
        "policies": {
            "cpuManagerPolicy": report.policies.cpu,
            "memoryManagerPolicy": report.policies.memory,
            "topologyManagerPolicy": report.policies.topology,
            "topologyManagerScope": report.policies.scope,
        },
        "capacity": _resources(report.capacity),
        "allocatable": _resources(report.allocatable),
        "reserved": _resources(report.reserved),
        "totals": _resources(report.totals),
        "zones": [_zone(zone) for zone in report.zones],
    }


def _resources(resources: ResourceList) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(resources.items())}


def _zone(zone: Zone) -> dict[str, Any]:
    return {
        "name": zone_name(zone.node),
        "cpus": str(zone.cpus),
        "reservedCpus": str(zone.reserved),
        "exclusiveCpus": str(zone.exclusive),
        "distances": {zone_name(node): distance for node, distance in zone.distances.items()},
        "resources": {
            name: {
                "capacity": amounts.capacity,
                "allocatable": amounts.allocatable,
                "held": amounts.held,
                "free": amounts.free,
            }
            for name, amounts in zone.resources.items()
        },
    }


def encode_pod(pod: PodOccupancy) -> dict[str, Any]:
    """One pod's entry."""
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "qos": str(pod.qos),
        "phase": str(pod.phase),
        **({} if pod.priority is None else {"priority": pod.priority}),
        "queue": pod.queue,
        "podGroup": pod.pod_group,
        **({} if pod.preemptible is None else {"preemptible": pod.preemptible}),
        **_terms(pod.terms),
        **_gpus(pod),
        "resize": _resize(pod.resize),
        "held": _held(pod.held),
        **{name: text for name, text in (("unplaced", pod.unplaced), ("degraded", pod.degraded)) if text},
        "containers": [_container(container) for container in pod.containers],
    }


def _container(container: ContainerOccupancy) -> dict[str, Any]:
    return {
        "name": container.name,
        "kind": str(container.kind),
        **_terms(container.terms),
        "held": _held(container.held),
    }


def _terms(terms: Terms) -> dict[str, Any]:
    return {
        "requested": _resources(terms.desired),
        "allocated": _resources(terms.allocated),
        "actual": _resources(terms.actual),
        "effective": _resources(terms.effective),
    }


def _gpus(pod: PodOccupancy) -> dict[str, Any]:
    """Devices as KAI counts them, for pods that have any."""
    found: dict[str, Any] = {}
    if pod.gpu_hundredths or pod.requested_gpu_hundredths or pod.gpu_memory is not None:
        found = {"gpus": pod.gpu_hundredths / 100, "requestedGpus": pod.requested_gpu_hundredths / 100}
    if pod.gpu_memory is not None:
        found["gpuMemory"] = pod.gpu_memory._asdict()
    return found


def _resize(resize: ResizeReport) -> dict[str, Any]:
    return {
        "state": str(resize.state),
        **{name: text for name, text in (("reason", resize.reason), ("message", resize.message)) if text},
        **({"shortfall": [_shortfall(lack) for lack in resize.shortfall]} if resize.shortfall else {}),
    }


def _shortfall(lack: Shortfall) -> Mapping[str, Any]:
    unit = {"milliCpus": lack.amount} if lack.resource == "cpu" else {"amount": lack.amount}
    return {"resource": lack.resource, **unit, "zones": _zone_names(lack.nodes)}


def _zone_names(nodes: NodeMask) -> list[str]:
    return [zone_name(node) for node in node_ids(nodes)]


def _held(held: Holdings) -> dict[str, Any]:
    return {
        zone_name(node): {"cpus": str(each.cpus), "memory": dict(sorted(each.memory.items()))}
        for node, each in held.items()
    }
