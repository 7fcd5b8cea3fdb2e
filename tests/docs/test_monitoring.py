"""Dashboard and alert rules name only series that the agent serves, with labels that these have."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.agents import PATIENCE_SECONDS, pod_text, running
from tests.serve.browser import free_port

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "monitoring"
_SERIES = re.compile(r"\b((?:pinfold|kubelet|resource_manager|process)_\w+)(?:\{([^}]*)\})?")
_LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
_GROUPED = re.compile(r"\bby \(([^)]*)\)")
_FROM_PROMETHEUS = {"instance", "job", "le"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> str:
    """/metrics of an agent that has granted and refused something."""
    port = free_port()
    upstream = {"upstream": {"socket": "/nowhere/kubelet.sock"}}
    with running(tmp_path_factory.mktemp("agent"), http={"port": port}) as agent:
        agent.stop()
        agent.config["podResources"] = {"socket": str(agent.socket), **upstream}
        agent.config |= {"memoryManagerPolicy": "Static", "kubeReserved": {"memory": "1Gi"}}
        agent.config |= {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1124Mi"}}]}
        agent.start()
        agent.manifest("a", pod_text("a", "4"))
        agent.manifest("b", pod_text("b", "40"))
        agent.until(lambda status: len(status["pods"]) == len(status["refused"]) == 1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as answer:
            text: str = answer.read().decode()
            return text


@pytest.fixture(scope="module")
def labels(served: str) -> dict[str, set[str]]:
    """Series -> its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(served):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in alerts())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_expressions_use_series_and_labels_that_exist(where: str, expression: str, labels: dict[str, set[str]]) -> None:
    used = _SERIES.findall(expression)
    assert used or "up{" in expression, f"{where}: no series"
    known: set[str] = set(_FROM_PROMETHEUS)
    for name, selector in used:
        assert name in labels, f"{where}: {name} is not served"
        assert set(_LABEL.findall(selector)) <= labels[name] | _FROM_PROMETHEUS, f"{where}: {name}{{{selector}}}"
        known |= labels[name]
    for group in _GROUPED.findall(expression):
        assert {label.strip() for label in group.split(",")} <= known, f"{where}: by ({group})"


def test_the_readme_names_only_series_that_exist(labels: dict[str, set[str]]) -> None:
    text = (FOLDER / "README.md").read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in labels} | set(labels)
    for name, given in re.findall(r"`(pinfold_\w+)(?:\{([^}]*)\})?`", text):
        assert name in families, name
        assert set(given.split(",")) - {""} <= labels.get(name, set()), name


def test_the_readme_names_every_series_of_our_own(served: str) -> None:
    named = set(
        re.findall(r"pinfold_\w+", (FOLDER / "README.md").read_text() + (FOLDER.parent / "reports.md").read_text())
    )
    families = re.findall(r"^# TYPE (pinfold_\w+)", served, re.MULTILINE)
    assert len(families) > 20
    assert [name for name in families if name not in named] == []


def test_alerts_say_what_is_wrong_and_what_to_do() -> None:
    names = [rule["alert"] for rule in alerts()]
    assert len(set(names)) == len(names)
    for rule in alerts():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["description"].endswith(".")


def test_panels_do_not_overlap_and_fit_the_width() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


_TESTS = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'pinfold_ready{instance="n1",job="pinfold"}', values: '0x20'}
      - {series: 'pinfold_leaked_cpus{instance="n1"}', values: '0x20'}
      - {series: 'pinfold_drift_repairs_total{instance="n1",writer="systemd"}', values: '0 2 4 6 8 10x20'}
    alert_rule_test:
      - eval_time: 10m
        alertname: PinfoldNotReady
        exp_alerts: [{exp_labels: {severity: critical, instance: n1, job: pinfold}, exp_annotations: %s}]
      - {eval_time: 10m, alertname: PinfoldCPUsLeaked, exp_alerts: []}
"""


@pytest.mark.real
def test_promtool_accepts_rules_and_our_names(served: str, tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed (Debian package prometheus)")

    def promtool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = ["promtool", *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)

    rules = FOLDER / "alerts.yaml"
    checked = promtool("check", "rules", str(rules))
    assert checked.returncode == 0, checked.stderr
    ready = next(rule["annotations"] for rule in alerts() if rule["alert"] == "PinfoldNotReady")
    said = json.dumps({key: text.replace("{{ $labels.instance }}", "n1") for key, text in ready.items()})
    (tmp_path / "tests.yaml").write_text(_TESTS % (rules, said))
    tested = promtool("test", "rules", str(tmp_path / "tests.yaml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr
    complaints = promtool("check", "metrics", text=served).stderr.splitlines()
    assert [line for line in complaints if line.startswith(("pinfold_", "process_"))] == []
