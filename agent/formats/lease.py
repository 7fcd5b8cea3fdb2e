"""Leases of coordination.k8s.io/v1 as JSON. What an election does not know of (labels, annotations, owners) stays as it was."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from agent.errors import BadInputError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.model.lease import LeaseRecord

API = "coordination.k8s.io/v1"
MAX_BYTES = 256 * 1024
_MAX_TEXT = 4096


class LeaseError(BadInputError):
    """The document is not a Lease."""

    hint = "see the object: kubectl get lease -o yaml; delete it if another program wrote it"


def decode_lease(data: bytes) -> tuple[LeaseRecord, dict[str, object]]:
    """The record, and the whole object for `encode_lease`. Raises LeaseError."""
    try:
        document = json.loads(data)
        root = KubeField(document)
        if not isinstance(document, dict) or root.get("kind").text(_MAX_TEXT) != "Lease":
            raise root.get("kind").error("must be Lease")
        spec = root.get("spec")
        record = LeaseRecord(
            spec.get("holderIdentity").text(_MAX_TEXT),
            spec.get("leaseDurationSeconds").integer() or 0,
            spec.get("acquireTime").text(_MAX_TEXT),
            spec.get("renewTime").text(_MAX_TEXT),
            spec.get("leaseTransitions").integer() or 0,
            root.get("metadata").get("resourceVersion").text(_MAX_TEXT),
        )
    except (ValueError, RecursionError) as error:
        raise LeaseError(f"not JSON: {str(error)[:200]}") from error
    except KubeFieldError as error:
        raise LeaseError(str(error)) from error
    if not record.version:
        raise LeaseError("metadata.resourceVersion: required")
    return record, document


def encode_lease(record: LeaseRecord, namespace: str, name: str, before: dict[str, object] | None = None) -> bytes:
    """The object to create, or to put in the place of `before`: with a version, the API server refuses to write over another."""
    found = before or {"apiVersion": API, "kind": "Lease"}
    metadata, spec = found.get("metadata"), found.get("spec")
    version = {"resourceVersion": record.version} if record.version else {}
    acquired = {"acquireTime": record.acquired} if record.acquired else {}
    document = {
        **found,
        "metadata": {
            **(metadata if isinstance(metadata, dict) else {}),
            "name": name,
            "namespace": namespace,
            **version,
        },
        "spec": {
            **(spec if isinstance(spec, dict) else {}),
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration_seconds,
            **acquired,
            "renewTime": record.renewed,
            "leaseTransitions": record.transitions,
        },
    }
    return json.dumps(document).encode()


def micro_time(seconds: float, unlike: str = "") -> str:
    """Unix time as Kubernetes' MicroTime, never the text `unlike`: a write that changes nothing gets no new version, and so
    would not be seen by others.
    """
    moment = datetime.fromtimestamp(seconds, UTC)
    text = _text(moment)
    return text if text != unlike else _text(moment + timedelta(microseconds=1))


def _text(moment: datetime) -> str:
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
