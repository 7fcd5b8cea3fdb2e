"""Whether this node's kubelet pins too, from what it leaves on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.backends import conflicts
from agent.config_schema import Config
from agent.node.kubelet_policy import KubeletConflictError, kubelet_conflicts
from tests.shared import SHARED


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, [], id="no kubelet"),
        pytest.param({"config.yaml": "cpuManagerPolicy: static"}, ["cpuManagerPolicy"], id="configured"),
        pytest.param({"config.yaml": "memoryManagerPolicy: Static"}, ["memoryManagerPolicy"], id="memory"),
        pytest.param(
            {"config.yaml": "kind: KubeletConfiguration", "cpu_manager_state": '{"policyName":"static"}'},
            [],
            id="a file of former times beside a configuration that pins no more",
        ),
        pytest.param({"cpu_manager_state": '{"policyName":"static"}'}, ["cpuManagerPolicy"], id="state file alone"),
        pytest.param({"cpu_manager_state": '{"policyName":"none"}'}, [], id="state file of policy none"),
        pytest.param({"cpu_manager_state": "[1", "memory_manager_state": "[]"}, [], id="damaged files say nothing"),
        pytest.param({"config.yaml": "a: [", "cpu_manager_state": '{"policyName":"static"}'}, ["cpuManagerPolicy"]),
        pytest.param({"config.yaml": "- 1"}, [], id="no configuration at all"),
    ],
)
def test_what_the_files_say(tmp_path: Path, files: dict[str, str], expected: list[str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert [each.key for each in kubelet_conflicts(tmp_path)] == expected


def test_the_agent_refuses_or_observes_as_configured(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("cpuManagerPolicy: static")
    values = {"node": {"kubeletRoot": str(tmp_path)}}
    with pytest.raises(KubeletConflictError, match="the kubelet runs with cpuManagerPolicy static") as refused:
        conflicts(Config.model_validate(values))
    assert "onKubeletPolicy: observe" in refused.value.hint
    observing = Config.model_validate({**values, "enforcement": {"onKubeletPolicy": "observe"}})
    assert len(conflicts(observing)) == 1
    assert not conflicts(Config.model_validate({**values, "enforcement": {"backend": "none"}}))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("capture", "keys"),
    [("host-v1-2cpu", ["cpuManagerPolicy"]), ("vm-v2-2numa-smt", ["cpuManagerPolicy", "memoryManagerPolicy"])],
)
def test_a_real_kubelets_files_are_understood(shared_dir: Path, capture: str, keys: list[str]) -> None:
    folder = SHARED / "samples/kubelet" / capture
    assert [each.key for each in kubelet_conflicts(folder)] == keys
    assert [each.key for each in kubelet_conflicts(folder, folder / "kubelet-config.yaml")] == keys
