"""Leases as JSON: what is read, what is kept, what is refused, and times that always differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.formats.lease import LeaseError, decode_lease, encode_lease, micro_time
from agent.model.lease import LeaseRecord


def test_what_is_known_of_a_lease_is_kept_as_it_was() -> None:
    document = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "queues", "namespace": "pinfold", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {
            "holderIdentity": "b",
            "leaseDurationSeconds": 15,
            "acquireTime": "x",
            "renewTime": "y",
            "leaseTransitions": 2,
            "preferredHolder": "c",
        },
    }
    record, whole = decode_lease(json.dumps(document).encode())
    assert json.loads(encode_lease(record, "pinfold", "queues", whole)) == document


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ([], "must be an object"),
        ({"kind": "ConfigMap"}, "must be Lease"),
        ({"kind": "Lease", "metadata": {"resourceVersion": 7}}, "must be a string"),
        ({"kind": "Lease"}, "resourceVersion: required"),
        ({"kind": "Lease", "spec": {"leaseDurationSeconds": "long"}}, "leaseDurationSeconds: must be an integer"),
    ],
)
def test_what_is_no_lease_is_refused_by_field(document: Any, why: str) -> None:
    with pytest.raises(LeaseError, match=why):
        decode_lease(json.dumps(document).encode())
    with pytest.raises(LeaseError, match="not JSON"):
        decode_lease(b"{")


def test_one_that_nobody_has_held_is_written_without_a_time_of_that() -> None:
    made = json.loads(encode_lease(LeaseRecord("", 15, "", "now", 0), "pinfold", "queues"))
    assert made["metadata"] == {"name": "queues", "namespace": "pinfold"}
    assert made["spec"] == {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "now", "leaseTransitions": 0}


def test_a_time_is_never_the_one_before() -> None:
    text = micro_time(1_800_000_000.0)
    assert text == "2027-01-15T08:00:00.000000Z"
    assert micro_time(1_800_000_000.0, unlike=text) == "2027-01-15T08:00:00.000001Z"
