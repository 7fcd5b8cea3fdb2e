"""AdmissionReview (admission.k8s.io/v1): the request of an API server -> a value, a decision -> the answer's bytes.

Only what a validating webhook for pods needs is kept. The bytes may come from anybody who reaches the port: size and depth are
bounded, every type is checked. Source: k8s.io/api/admission/v1/types.go; recorded requests of kube-apiserver 1.36.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agent.errors import AgentError, BadInputError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.formats.pods import decode_pod
from agent.model.pod import Pod

API_VERSION = "admission.k8s.io/v1"
MAX_BYTES = 4 * 1024 * 1024  # old and new object; etcd keeps no object above 1.5 MiB
MAX_WARNING = 250  # characters; the API server cuts at 256

_KIND = "AdmissionReview"
_MAX_NAME = 320


class ReviewError(BadInputError):
    """Not an AdmissionReview that can be answered: there is no uid to answer with."""

    hint = "this endpoint is for a ValidatingWebhookConfiguration with admissionReviewVersions [v1]"


class ReviewedPodError(BadInputError):
    """A review of something that is not a pod we can read."""


@dataclass(frozen=True, slots=True)
class AdmissionRequest:
    """operation: CREATE, UPDATE, ... resource: "pods", with its group before a slash where it has one; sub_resource: "resize".

    old, new: the objects as decoded JSON, None where absent.
    """

    uid: str
    operation: str
    resource: str
    sub_resource: str
    namespace: str
    name: str
    dry_run: bool
    old: Mapping[str, object] | None
    new: Mapping[str, object] | None

    @property
    def is_pod_resize(self) -> bool:
        """Whether this is the one kind of request that a resize check is about."""
        return (self.operation, self.resource, self.sub_resource) == ("UPDATE", "pods", "resize")


@dataclass(frozen=True, slots=True)
class AdmissionAnswer:
    """message, code, reason: the Status that a client sees where it is not allowed. warnings: shown by kubectl.

    audit: annotations of the API server's audit log.
    """

    allowed: bool
    message: str = ""
    code: int = 403
    reason: str = "Forbidden"
    warnings: Sequence[str] = ()
    audit: Mapping[str, str] = field(default_factory=dict)


def decode_review(body: bytes) -> AdmissionRequest:
    """Read a request. Raises ReviewError."""
    if len(body) > MAX_BYTES:
        raise ReviewError(f"AdmissionReview: {len(body)} bytes, at most {MAX_BYTES} are read")
    try:
        root = KubeField(json.loads(body, parse_constant=_no_constant))
        if (version := root.get("apiVersion").text(_MAX_NAME)) != API_VERSION:
            raise root.get("apiVersion").error(f"must be {API_VERSION}, not {version[:80]!r}")
        if (kind := root.get("kind").text(_MAX_NAME)) != _KIND:
            raise root.get("kind").error(f"must be {_KIND}, not {kind[:80]!r}")
        return _request(root.get("request"))
    except (ValueError, RecursionError) as error:
        raise ReviewError(f"AdmissionReview: not JSON: {str(error)[:200]}") from error
    except KubeFieldError as error:
        raise ReviewError(f"AdmissionReview: {error}") from error


def _no_constant(text: str) -> object:
    raise ValueError(f"{text} is no JSON number")


def _request(request: KubeField) -> AdmissionRequest:
    uid = request.get("uid")
    if not (uid_text := uid.text(_MAX_NAME)):
        raise uid.error("required")
    resource = request.get("resource")
    group, name = resource.get("group").text(_MAX_NAME), resource.get("resource").text(_MAX_NAME)
    return AdmissionRequest(
        uid=uid_text,
        operation=request.get("operation").text(_MAX_NAME),
        resource=f"{group}/{name}" if group else name,
        sub_resource=request.get("subResource").text(_MAX_NAME),
        namespace=request.get("namespace").text(_MAX_NAME),
        name=request.get("name").text(_MAX_NAME),
        dry_run=bool(request.get("dryRun").boolean()),
        old=_object(request.get("oldObject")),
        new=_object(request.get("object")),
    )


def _object(field: KubeField) -> Mapping[str, object] | None:
    if not field.present:
        return None
    if not isinstance(field.value, dict):
        raise field.error("must be an object")
    return field.value


def reviewed_pods(request: AdmissionRequest) -> tuple[Pod, Pod]:
    """The pod before and after. Raises ReviewedPodError: one is absent or cannot be read, or they are two different pods."""
    if request.old is None or request.new is None:
        raise ReviewedPodError("the review lacks object or oldObject")
    try:
        old = decode_pod(request.old)
        new = decode_pod(request.new, (request.old, old))  # a resize leaves the status alone
    except AgentError as error:
        raise ReviewedPodError(str(error), hint=error.hint) from error
    if (old.namespace, old.name, old.uid) != (new.namespace, new.name, new.uid):
        raise ReviewedPodError(f"object and oldObject are two pods: {new.namespaced_name} and {old.namespaced_name}")
    return old, new


def encode_answer(uid: str, answer: AdmissionAnswer) -> bytes:
    """The AdmissionReview that answers the request `uid`."""
    response: dict[str, object] = {"uid": uid, "allowed": answer.allowed}
    if not answer.allowed:
        response["status"] = {
            "status": "Failure",
            "message": answer.message,
            "reason": answer.reason,
            "code": answer.code,
        }
    if answer.warnings:
        response["warnings"] = [_warning(each) for each in answer.warnings]
    if answer.audit:
        response["auditAnnotations"] = dict(answer.audit)
    review = {"apiVersion": API_VERSION, "kind": _KIND, "response": response}
    return json.dumps(review, separators=(",", ":")).encode()


def _warning(text: str) -> str:
    return text if len(text) <= MAX_WARNING else text[: MAX_WARNING - 2] + " …"
