"""Builders for the tests of the accountant's servers: a small cluster, reports, reviews, and an https client."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.formats.queue_objects import QueueObjects, decode_objects
from agent.model.quantity import Quantity
from agent.model.state import Epoch
from agent.queues.accountant import AccountantOptions
from agent.queues.charge import NANO, Amounts
from agent.queues.node_report import NodeReport, ReportedPod
from agent.serve.accountant import AccountantService
from agent.serve.accountant_store import AccountantStore

EPOCH = Epoch(1, "0" * 16)
CORES = {"cpu": Quantity.parse("64"), "memory": Quantity.parse("256Gi")}


class Clock:
    """Time that tests move."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def queue(name: str, parent: str = "", cpu_limit: float = -1, cpu_quota: float = -1) -> dict[str, Any]:
    resources = {
        "cpu": {"quota": cpu_quota, "limit": cpu_limit, "overQuotaWeight": 1},
        "memory": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
        "gpu": {"quota": -1, "limit": -1, "overQuotaWeight": 1},
    }
    metadata = {"name": name}
    spec = {"parentQueue": parent, "resources": resources}
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": metadata, "spec": spec}


def pod_group(name: str, queue_name: str, namespace: str = "prod") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"queue": queue_name},
    }


def node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "64", "memory": "256Gi"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def cluster(limit: float = 10_000) -> QueueObjects:
    """dept > leaf; one pod group in leaf, one node."""
    return decode_objects([queue("dept"), queue("leaf", "dept", limit), pod_group("pg", "leaf"), node("n1")])


def service(
    options: AccountantOptions | None = None,
    *,
    clock: Clock | None = None,
    store: AccountantStore | None = None,
    objects: QueueObjects | None = None,
) -> AccountantService:
    found = AccountantService(options or AccountantOptions(), clock or Clock(), store)
    found.take_objects(objects or cluster())
    return found


def report(
    generation: int, cores: Mapping[str, float], *, node_name: str = "n1", base: int | None = None
) -> NodeReport:
    """cores: what pods of the pod group occupy, by UID."""
    pods = {uid: reported(uid, count) for uid, count in cores.items()}
    before = None if base is None else (EPOCH, base)
    return NodeReport(node_name, (EPOCH, generation), before, pods, allocatable={} if before else CORES)


def reported(name: str, cores: float, group: str = "pg") -> ReportedPod:
    cost = Amounts(cpu=round(cores * NANO))
    return ReportedPod("prod", name, "", group, None, cost, cost)


def pod(uid: str, cpu: str, *, group: str = "pg", scheduler: str = "kai-scheduler", **spec: Any) -> dict[str, Any]:
    metadata = {"name": uid, "namespace": "prod", "uid": uid, "annotations": {"pod-group-name": group}}
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {"schedulerName": scheduler, "containers": [container], **spec}
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}}


def review(old: dict[str, Any], new: dict[str, Any], **changes: Any) -> bytes:
    request = {
        "uid": f"review-{old['metadata']['uid']}",
        "operation": "UPDATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "resize",
        "namespace": "prod",
        "name": old["metadata"]["name"],
        "oldObject": old,
        "object": new,
        **changes,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def upsize(uid: str, before: str, after: str, **changes: Any) -> bytes:
    return review(pod(uid, before), pod(uid, after), **changes)


def trusting(ca: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(ca))
    if client is not None:
        context.load_cert_chain(*client)
    return context


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> tuple[int, Any]:
    """Status and the decoded answer, or its text where it is no JSON."""
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    return answer.status, json.loads(text) if answer.headers["Content-Type"] == "application/json" else text
