from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.occupancy import GPUMemory
from agent.model.quantity import Quantity
from agent.model.state import Epoch
from agent.queues.charge import NANO, Amounts
from agent.queues.node_report import NodeReport, ReportedPod
from agent.queues.node_report_format import ReportError, decode_report, encode_report

amounts = st.builds(
    Amounts,
    st.integers(0, 10**15),
    st.integers(0, 2**40).map(lambda each: each * NANO),
    st.integers(0, 800).map(lambda each: each * NANO // 100),
)
names = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
gpu_memory = st.none() | st.builds(GPUMemory, st.integers(1, 16), st.integers(1, 2**40))
pods = st.builds(ReportedPod, names, names, names, names, st.none() | st.booleans(), amounts, amounts, gpu_memory)
stamps = st.tuples(st.builds(Epoch, st.integers(0, 2**40), st.just("ab" * 8)), st.integers(0, 2**60))
reports = st.builds(
    NodeReport,
    names,
    stamps,
    st.none() | stamps,
    st.dictionaries(names, pods, max_size=4),
    st.lists(names, max_size=3).map(tuple),
    st.just({"cpu": Quantity.parse("64")}),
    names,
)


@given(reports)
def test_a_report_survives_writing_and_reading(report: NodeReport) -> None:
    assert decode_report(encode_report(report)) == report


def document(**changes: Any) -> bytes:
    pod = {
        "namespace": "prod",
        "name": "web",
        "podGroup": "pg",
        "effective": {"cpu": "1500m"},
        "requested": {"cpu": "1"},
    }
    epoch = "000000000001-" + "0" * 16
    return json.dumps(
        {"schema": 1, "node": "n1", "epoch": epoch, "generation": 3, "pods": {"u1": pod}, **changes}
    ).encode()


def test_amounts_are_exact_and_gpus_come_from_resources_unless_told() -> None:
    pod = {
        "namespace": "a",
        "name": "b",
        "effective": {"nvidia.com/gpu": "2"},
        "requested": {"nvidia.com/gpu": "2"},
        "gpus": 0.5,
    }
    found = decode_report(document(pods={"u1": pod})).pods["u1"]
    assert (found.allocated.gpu, found.requested.gpu) == (NANO // 2, 2 * NANO)
    assert decode_report(document()).pods["u1"].allocated.cpu == 1_500_000_000


def test_a_pod_whose_containers_have_all_ended_costs_nothing() -> None:
    pod = {"namespace": "a", "name": "b", "effective": {"cpu": "2"}, "phase": "terminal"}
    found = decode_report(document(pods={"u1": pod}))
    assert (dict(found.pods), found.gone) == ({}, ("u1",))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "not JSON"),
        (b"[" * 50_000, "not JSON"),
        (b"[]", "must be an object"),
        (document(schema=2), "schema: 2 is not read"),
        (document(node="../../etc"), "node: .* is not the name"),
        (document(node=""), "node: "),
        (document(epoch="1"), "epoch: invalid epoch"),
        (document(generation=-1), "generation: must be"),
        (document(generation=True), "generation: must be"),
        (document(base={"epoch": "x"}), "base.generation"),
        (document(pods={"": {}}), "is not the UID"),
        (document(pods={"u1": {"name": "x"}}), "needs namespace and name"),
        (document(pods={"u1": {"namespace": "a", "name": "b", "gpus": -1}}), "number of devices"),
        (document(pods={"u1": {"namespace": "a", "name": "b", "effective": {"cpu": "lots"}}}), "effective"),
        (document(pods={"u1": {"namespace": "a", "name": "b", "effective": {"cpu": "-4"}}}), "cpu: is less than 0"),
        (document(pods={"u1": {"namespace": "a", "name": "b", "requested": {"memory": "-1n"}}}), "less than 0"),
        (document(pods={"u1": {"namespace": "a", "name": "b", "gpuMemory": {"devices": 1}}}), "number of devices"),
        (
            document(pods={"u1": {"namespace": "a", "name": "b", "gpuMemory": {"devices": 0, "mebibytes": 1}}}),
            "devices",
        ),
        (document(pods={f"u{number}": {} for number in range(5001)}), "5001 entries"),
        (document(gone=[7]), "gone"),
    ],
)
def test_what_is_no_report_is_refused_by_field(body: bytes, why: str) -> None:
    with pytest.raises(ReportError, match=why):
        decode_report(body)
