"""AdmissionReview: requests from strangers, and answers that an API server takes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.admission_review import (
    MAX_BYTES,
    AdmissionAnswer,
    ReviewedPodError,
    ReviewError,
    decode_review,
    encode_answer,
    reviewed_pods,
)
from tests.shared import SHARED

RECORDED = sorted((SHARED / "samples" / "admission").glob("*.review.json"))


def pod(uid: str = "u1", cpu: str = "1") -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"name": "web", "namespace": "prod", "uid": uid}, "spec": {"containers": [container]}}


def review(**changes: Any) -> dict[str, Any]:
    request = {
        "uid": "r1",
        "operation": "UPDATE",
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "subResource": "resize",
        "namespace": "prod",
        "name": "web",
        "oldObject": pod(),
        "object": pod(cpu="2"),
        **changes,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def decoded(**changes: Any) -> Any:
    return decode_review(json.dumps(review(**changes)).encode())


def test_a_resize_is_recognized_and_its_pods_are_read() -> None:
    request = decoded()
    assert (request.uid, request.is_pod_resize, request.dry_run) == ("r1", True, False)
    old, new = reviewed_pods(request)
    assert old.namespaced_name == new.namespaced_name == "prod/web"
    assert str(new.containers[0].resources.requests["cpu"]) == "2"


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "CREATE"},
        {"subResource": "status"},
        {"subResource": None},
        {"resource": {"group": "apps", "resource": "pods"}},
        {"resource": {"resource": "deployments"}},
    ],
)
def test_another_kind_of_request_is_not_a_resize(changes: dict[str, Any]) -> None:
    assert not decoded(**changes).is_pod_resize


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b'{"apiVersion": NaN}', "NaN is no JSON number"),
        (b"[]", "must be an object"),
        (b'{"apiVersion": "admission.k8s.io/v1beta1"}', "must be admission.k8s.io/v1"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "Pod"}', "must be AdmissionReview"),
        (b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}', "request.uid: required"),
        (json.dumps(review(uid=7)).encode(), "request.uid: must be a string"),
        (json.dumps(review(dryRun="yes")).encode(), "request.dryRun: must be a boolean"),
        (json.dumps(review(object=[])).encode(), "request.object: must be an object"),
        (json.dumps(review(name="x" * 400)).encode(), "request.name: has 400 characters"),
        (b" " * (MAX_BYTES + 1), "at most"),
    ],
)
def test_what_is_no_review_is_refused_by_name(body: bytes, why: str) -> None:
    with pytest.raises(ReviewError, match=why):
        decode_review(body)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"oldObject": None}, "lacks object or oldObject"),
        ({"object": {"metadata": {"name": "Not A Name"}}}, "metadata"),
        ({"object": pod(cpu="much")}, "much"),
        ({"object": pod(uid="u2")}, "two pods"),
    ],
)
def test_a_review_without_two_readable_versions_of_one_pod_is_told_apart(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ReviewedPodError, match=why):
        reviewed_pods(decoded(**changes))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda deeper: st.lists(deeper) | st.dictionaries(st.text(), deeper),
    )
)
def test_any_json_is_a_request_or_a_refusal(value: Any) -> None:
    for document in (value, review(object=value), {**review(), "request": value}):
        try:
            request = decode_review(json.dumps(document).encode())
        except ReviewError:
            continue
        if request.is_pod_resize:
            try:
                reviewed_pods(request)
            except ReviewedPodError:
                continue


def test_an_answer_has_the_form_that_the_api_server_reads() -> None:
    assert json.loads(encode_answer("r1", AdmissionAnswer(True))) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {"uid": "r1", "allowed": True},
    }
    denied = AdmissionAnswer(False, "too much", warnings=["w" * 300], audit={"queue": "leaf"})
    assert json.loads(encode_answer("r1", denied))["response"] == {
        "uid": "r1",
        "allowed": False,
        "status": {"status": "Failure", "message": "too much", "reason": "Forbidden", "code": 403},
        "warnings": ["w" * 248 + " …"],
        "auditAnnotations": {"queue": "leaf"},
    }


@pytest.mark.shared
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_reviews_that_an_api_server_sent_are_read(path: Any) -> None:
    request = decode_review(path.read_bytes())
    old, new = reviewed_pods(request)
    assert request.is_pod_resize
    assert (request.namespace, request.name) == (old.namespace, old.name)
    assert old.status.phase == new.status.phase == "Running"
