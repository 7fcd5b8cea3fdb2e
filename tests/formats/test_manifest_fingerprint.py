"""Which edits of a pod file are a resize."""

from __future__ import annotations

import pytest

from agent.formats.manifest_fingerprint import fingerprint
from agent.formats.yaml_reader import read_yaml

WEB = """
metadata: {name: web}
spec:
  resources: {limits: {cpu: 4}}
  initContainers:
  - {name: side, restartPolicy: Always, resources: {requests: {cpu: 1}}}
  containers:
  - name: app
    image: app:1
    resources:
      requests: {cpu: 1, memory: 1Gi}
      limits: {example.com/device: 1}
"""


def of(text: str) -> str:
    value = read_yaml(text).value
    assert isinstance(value, dict)
    return fingerprint(value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("cpu: 1, memory: 1Gi", "cpu: 3, memory: 1.5Gi", id="other sizes of an app"),
        pytest.param("requests: {cpu: 1}", "requests: {cpu: 2}", id="of a sidecar"),
        pytest.param("limits: {cpu: 4}", "limits: {cpu: 8}", id="of the pod"),
        pytest.param("requests: {cpu: 1, memory: 1Gi}", "requests: {}", id="no sizes"),
        pytest.param("  resources: {limits: {cpu: 4}}\n", "", id="no pod-level object"),
        pytest.param(
            "metadata: {name: web}", "status: {phase: Running}\nmetadata: {name: web} # mine", id="a status, a comment"
        ),
    ],
)
def test_an_edit_of_cpu_and_memory_only_is_a_resize(old: str, new: str) -> None:
    assert old in WEB
    assert of(WEB.replace(old, new)) == of(WEB)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("app:1", "app:2", id="another image"),
        pytest.param("example.com/device: 1", "example.com/device: 2", id="devices"),
        pytest.param("name: app", "name: main", id="another name"),
        pytest.param("restartPolicy: Always, ", "", id="no sidecar any more"),
        pytest.param("metadata: {name: web}", "metadata: {name: web, labels: {a: b}}", id="a label"),
        pytest.param("resources: {requests: {cpu: 1}}", "resources: 1", id="nonsense"),
    ],
)
def test_any_other_edit_is_not(old: str, new: str) -> None:
    assert old in WEB
    assert of(WEB.replace(old, new)) != of(WEB)


def test_the_order_of_keys_does_not_matter_but_that_of_containers_does() -> None:
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
    pair = [{"name": "a"}, {"name": "b"}]
    assert fingerprint({"spec": {"containers": pair}}) != fingerprint({"spec": {"containers": pair[::-1]}})


def test_odd_documents_have_a_fingerprint_too() -> None:
    odd = ("spec:", "spec: 1", "spec: []", "spec: {}", "spec: {containers: 1}", "spec: {containers: [1]}")
    assert len({of(text) for text in odd}) == len(odd)
