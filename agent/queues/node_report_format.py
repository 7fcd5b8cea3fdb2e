"""Node reports <-> JSON: what an agent posts to an accountant, and what the accountant keeps of it over a restart.

{"schema": 1, "node", "bootId", "epoch", "generation", "base": {"epoch", "generation"}, "allocatable": {...},
 "pods": {"<uid>": {"namespace", "name", "queue", "podGroup", "preemptible", "effective": {...}, "requested": {...},
                    "gpus", "requestedGpus"}},
 "gone": ["<uid>"]}
Without `base` the report is full. Resource lists are Kubernetes' own. A pod that occupies nothing yet has an empty `effective`.
`gpus`, `requestedGpus`: devices, fractions allowed, instead of those in the resources (annotations can ask for parts of a GPU).
`preemptible` is left out where the node cannot tell. A pod of `phase` "terminal" costs nothing. What else an agent writes
(`agent.formats.occupancy`) is passed over.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TypeGuard

from agent.errors import BadInputError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.formats.resource_lists import decode_resources
from agent.model.occupancy import GPUMemory
from agent.model.pod import ResourceList
from agent.model.quantity import Quantity
from agent.model.state import Epoch, EpochError, PodPhase
from agent.policy.gpu_request import resource_gpus
from agent.queues.accounting import Stamp
from agent.queues.charge import NANO, Amounts
from agent.queues.node_report import NodeReport, ReportedPod

SCHEMA = 1
MAX_BYTES = 8 * 1024 * 1024
MAX_PODS = 5000  # of one node; Kubernetes supports 110, people run some hundreds

_MAX_COUNT = 10**18  # annotations of pods can say as much; one that does must not cost its node the report
_MAX_NAME = 253
_UID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?")
_NODE = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ReportError(BadInputError):
    """A report that cannot be read."""

    hint = "docs/queues.md describes the form of node reports"


def decode_report(body: bytes) -> NodeReport:
    """Raises ReportError naming the field."""
    if len(body) > MAX_BYTES:
        raise ReportError(f"report: {len(body)} bytes, at most {MAX_BYTES} are read")
    try:
        return _report(KubeField(json.loads(body)))
    except (ValueError, RecursionError) as error:
        raise ReportError(f"report: not JSON: {str(error)[:200]}") from error
    except KubeFieldError as error:
        raise ReportError(f"report: {error}") from error


def _report(root: KubeField) -> NodeReport:
    if (schema := root.get("schema").integer()) != SCHEMA:
        raise root.get("schema").error(f"{schema} is not read here, only {SCHEMA}")
    node = root.get("node")
    if not _NODE.fullmatch(name := node.text(_MAX_NAME)):
        raise node.error(f"{name[:80]!r} is not the name of a node")
    base = root.get("base")
    pods = {_uid(uid, pod): pod for uid, pod in root.get("pods").entries(MAX_PODS)}
    ended = [uid for uid, pod in pods.items() if pod.get("phase").text(_MAX_NAME) == PodPhase.TERMINAL]
    gone = [_uid(each.text(_MAX_NAME), each) for each in root.get("gone").elements(MAX_PODS)]
    return NodeReport(
        name,
        _stamp(root),
        _stamp(base) if base.present else None,
        {uid: _pod(pod) for uid, pod in pods.items() if uid not in ended},
        (*gone, *ended),
        decode_resources(root.get("allocatable")),
        root.get("bootId").text(_MAX_NAME),
    )


def _stamp(root: KubeField) -> Stamp:
    epoch, generation = root.get("epoch"), root.get("generation")
    number = generation.value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
        raise generation.error("must be an integer of 0 or more")
    try:
        return Epoch.parse(epoch.text(_MAX_NAME)), number
    except EpochError as error:
        raise epoch.error(str(error)) from error


def _uid(uid: str, field: KubeField) -> str:
    if not _UID.fullmatch(uid):
        raise field.error(f"{uid[:80]!r} is not the UID of a pod")
    return uid


def _pod(pod: KubeField) -> ReportedPod:
    namespace, name = pod.get("namespace").text(_MAX_NAME), pod.get("name").text(_MAX_NAME)
    if not namespace or not name:
        raise pod.error("needs namespace and name")
    effective, requested = _resources_of(pod.get("effective")), _resources_of(pod.get("requested"))
    return ReportedPod(
        namespace,
        name,
        pod.get("queue").text(_MAX_NAME),
        pod.get("podGroup").text(_MAX_NAME),
        pod.get("preemptible").boolean(),
        _amounts(effective, _gpus(pod.get("gpus"))),
        _amounts(requested, _gpus(pod.get("requestedGpus"))),
        _gpu_memory(pod.get("gpuMemory")),
    )


def _resources_of(field: KubeField) -> ResourceList:
    """What a pod holds. A negative amount would make room for others."""
    resources = decode_resources(field)
    for name, amount in resources.items():
        if amount.number.numerator < 0:
            raise field.get(name).error("is less than 0")
    return resources


def _gpu_memory(field: KubeField) -> GPUMemory | None:
    if not field.present:
        return None
    devices, mebibytes = (field.get(name).value for name in GPUMemory._fields)
    if not (_is_count(devices) and _is_count(mebibytes)):
        raise field.error("needs a number of devices and of mebibytes")
    return GPUMemory(devices, mebibytes)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= _MAX_COUNT


def _gpus(field: KubeField) -> float | None:
    value = field.value
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_COUNT:
        raise field.error("must be a number of devices")
    return float(value)


def _amounts(resources: ResourceList, gpus: float | None) -> Amounts:
    devices = resource_gpus(resources) if gpus is None else gpus
    return Amounts.of(resources, round(devices * 100))


def encode_report(report: NodeReport) -> bytes:
    """What `decode_report` reads back to an equal report."""
    document: dict[str, object] = {"schema": SCHEMA, "node": report.node, "bootId": report.boot_id, **_of(report.stamp)}
    if report.base is not None:
        document["base"] = _of(report.base)
    document |= {
        "allocatable": {name: str(amount) for name, amount in report.allocatable.items()},
        "pods": {uid: _encode_pod(pod) for uid, pod in report.pods.items()},
        "gone": list(report.gone),
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _of(stamp: Stamp) -> dict[str, object]:
    return {"epoch": str(stamp[0]), "generation": stamp[1]}


def _encode_pod(pod: ReportedPod) -> Mapping[str, object]:
    document: dict[str, object] = {
        "namespace": pod.namespace,
        "name": pod.name,
        "queue": pod.queue,
        "podGroup": pod.pod_group,
        "effective": _resources(pod.allocated),
        "requested": _resources(pod.requested),
    }
    if pod.preemptible is not None:
        document["preemptible"] = pod.preemptible
    if pod.gpu_memory is not None:
        document["gpuMemory"] = pod.gpu_memory._asdict()
    for name, gpu in (("gpus", pod.allocated.gpu), ("requestedGpus", pod.requested.gpu)):
        if gpu:
            document[name] = gpu / NANO
    return document


def _resources(amounts: Amounts) -> dict[str, str]:
    found = {name: f"{amount}n" for name, amount in zip(("cpu", "memory"), amounts[:2], strict=True) if amount}
    return {name: str(Quantity.parse(text)) for name, text in found.items()}
