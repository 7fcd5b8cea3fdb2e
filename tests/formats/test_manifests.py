"""Files of static pods: what is read, and what is said about the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.formats.manifests import MAX_PODS, Manifests, decode_manifests
from agent.policy.qos import qos_class
from tests.shared import SHARED

WEB = """apiVersion: v1
kind: Pod
metadata: {name: web, namespace: team-a}
spec:
  containers:
  - name: app
    image: app:1
    resources:
      limits: {cpu: 2, memory: 1.5Gi}
"""


def decode(text: str) -> Manifests:
    return decode_manifests(text.encode(), "web.yaml")


def names(manifests: Manifests) -> list[str]:
    return [each.pod.namespaced_name for each in manifests.pods]


def problems(manifests: Manifests) -> list[str]:
    assert all(problem.hint and problem.exit_status == 2 for problem in manifests.problems)
    return [str(problem) for problem in manifests.problems]


def test_a_pod_is_read_with_its_defaults() -> None:
    manifests = decode(WEB)
    assert manifests.problems == ()
    (web,) = manifests.pods
    assert (web.pod.namespaced_name, web.pod.uid, web.line) == ("team-a/web", "", 1)
    assert str(web.pod.containers[0].resources.requests["memory"]) == "1536Mi"
    assert qos_class(web.pod, pod_level_resources=True) == "Guaranteed"


def test_the_gate_decides_about_pod_level_defaults() -> None:
    text = WEB + "  resources: {limits: {cpu: 4}}\n"
    for gate, expected in ((True, {"cpu", "memory"}), (False, set())):
        (web,) = decode_manifests(text.encode(), "web.yaml", pod_level_resources=gate).pods
        assert web.pod.resources is not None
        assert set(web.pod.resources.requests) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", [], id="an empty file"),
        pytest.param("# nothing yet\n---\n", [], id="comments"),
        pytest.param("null", [], id="null"),
        pytest.param(WEB + "---\n" + WEB.replace("web", "db"), ["team-a/web", "team-a/db"], id="two documents"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n",
            ["default/a"],
            id="a list",
        ),
        pytest.param(
            '{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a"}}]}', ["default/a"], id="a PodList"
        ),
        pytest.param('{"apiVersion":"v1","kind":"PodList","items":null}', [], id="an empty PodList"),
        pytest.param("{apiVersion: v1, kind: Pod, metadata: {name: a}}", ["default/a"], id="YAML that looks like JSON"),
        pytest.param(
            '{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}\n---\n' + WEB,
            ["default/a", "team-a/web"],
            id="both",
        ),
    ],
)
def test_a_file_may_hold(text: str, expected: list[str]) -> None:
    manifests = decode(text)
    assert (names(manifests), problems(manifests)) == (expected, [])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            "a: b: c\n", "web.yaml:11: not YAML: mapping values are not allowed in this context", id="no YAML"
        ),
        pytest.param("text\n", "web.yaml:11: a document must be an object with apiVersion, kind", id="text"),
        pytest.param("kind: Pod\n", "web.yaml:11: without a name: apiVersion and kind are required", id="no version"),
        pytest.param(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n",
            "web.yaml:11: Deployment of apps/v1 (default/web) is not read here, only List, PodList, Pod of v1",
            id="another kind",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata:\n  name: Web\n",
            "web.yaml:14: pod default/Web: metadata.name: 'Web' is not a valid name",
            id="a bad name",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: x\n    resources:\n"
            "      requests:\n        cpu: 1\n        memory: 1GB\n",
            "web.yaml:20: pod default/a: spec.containers[0].resources.requests[memory]: invalid quantity '1GB'",
            id="a bad quantity",
        ),
        pytest.param(
            "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: x\n    resources:\n"
            "      request: {cpu: 1}\n",
            "web.yaml:18: pod default/a: spec.containers[0].resources.request: there is no such field",
            id="a misspelt field of resources",
        ),
        pytest.param("apiVersion: v1\nkind: List\nitems: {}\n", "web.yaml:13: items must be a list", id="no list"),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- 1\n", "web.yaml:14: items[0] must be an object", id="no object"
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: List\n",
            "web.yaml:14: items[0]: List of v1 (without a name) is not read here, only Pod of v1",
            id="a list in a list",
        ),
        pytest.param(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: a\n    uid: ../x\n",
            "web.yaml:18: pod default/a: metadata.uid: '../x' is not a valid uid",
            id="a bad pod of a list",
        ),
        pytest.param(WEB, "web.yaml:11: pod team-a/web is in line 1 of this file already", id="the same pod again"),
    ],
)
def test_one_broken_document_is_named_and_the_others_are_read(text: str, expected: str) -> None:
    manifests = decode(f"{WEB}---\n{text}---\n{WEB.replace('web', 'db')}")
    assert names(manifests) == ["team-a/web", "team-a/db"]
    (problem,) = problems(manifests)
    assert problem.startswith(expected)


def test_broken_json_is_named_by_its_own_line() -> None:
    assert problems(decode('{"apiVersion": "v1",\n "kind": "Pod"\n "metadata": {}}')) == [
        "web.yaml:3: not JSON: Expecting ',' delimiter"
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\xff\xfe", "web.yaml:1: not UTF-8 text"),
        (b"a" * 10**6, "web.yaml:1: has 1000000 bytes, at most 524288 are read"),
        (b"[" * 10**5, "web.yaml:1: "),
    ],
)
def test_a_file_that_is_no_text_is_one_problem(data: bytes, expected: str) -> None:
    manifests = decode_manifests(data, "web.yaml")
    assert manifests.pods == ()
    assert problems(manifests)[0].startswith(expected)


def test_a_file_has_a_limited_number_of_pods() -> None:
    items = [{"metadata": {"name": f"p{index}"}} for index in range(MAX_PODS + 2)]
    manifests = decode(json.dumps({"apiVersion": "v1", "kind": "PodList", "items": items}))
    assert len(manifests.pods) == MAX_PODS
    assert [problem.why for problem in manifests.problems] == [
        f"pod default/p{MAX_PODS + extra} is one more than the {MAX_PODS} pods a file may have" for extra in (0, 1)
    ]


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything(data: bytes) -> None:
    decode_manifests(data, "f")
    decode_manifests(WEB.encode() + b"---\n" + data, "f")


SAMPLES = sorted((SHARED / "samples/kubelet").rglob("manifests/*.yaml")) + sorted(
    (SHARED / "samples/kubelet").rglob("pods.json")
)


@pytest.mark.shared
@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_files_that_a_kubelet_ran_or_gave_are_read_whole(path: Path) -> None:
    manifests = decode_manifests(path.read_bytes(), path.name)
    assert manifests.problems == ()
    assert manifests.pods
