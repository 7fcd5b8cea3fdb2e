"""`pinfold explain --lint`: mistakes in pod files, found without any machine."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from agent.config_schema import Config
from agent.errors import BadInputError
from agent.formats.manifests import decode_manifests
from agent.node_config import feature_gates
from agent.policy.feature_gates import FeatureGates
from agent.policy.lint_finding import Finding, Severity
from agent.policy.pod_lint import lint_pod
from agent.policy.topology_options import TopologyPolicyName, TopologyScope


class NoPodError(BadInputError):
    """A file without a pod: whoever asked about it meant another."""

    def __init__(self, file: str) -> None:
        super().__init__(f"{file}: no pod in it", hint="give a file with a Pod of v1, or a List or PodList of them")


def lint_files(files: Mapping[str, bytes], config: Config, output: str) -> int:
    """Print what is noticed about the pods of these files; 1 where some pod would be refused wherever it runs.

    config: for the gates and the scope; with its defaults both scopes are considered. output: "text" or "json".
    """
    gates = FeatureGates.of(feature_gates(config), kubelet_version=config.kubeletVersion)
    aligned = config.topologyManagerPolicy != TopologyPolicyName.NONE
    scope = TopologyScope(config.topologyManagerScope) if aligned else None
    pods = list(_pods(files, gates, scope))
    if output == "json":
        click.echo(json.dumps([_encode(*pod) for pod in pods], indent=2))
    else:
        click.echo("\n\n".join("\n".join(_lines(*pod)) for pod in pods))
    bad = any(finding.severity is Severity.ERROR for _, _, findings in pods for finding in findings)
    return 1 if bad else 0


def _pods(
    files: Mapping[str, bytes], gates: FeatureGates, scope: TopologyScope | None
) -> Iterator[tuple[str, str, tuple[Finding, ...]]]:
    for file, data in files.items():
        found = decode_manifests(data, file, pod_level_resources=gates.pod_level_resources)
        if found.problems:
            raise found.problems[0]
        if not found.pods:
            raise NoPodError(file)
        for each in found.pods:
            yield f"{Path(file)}:{each.line}", each.pod.namespaced_name, lint_pod(each.pod, gates, scope)


def _lines(place: str, name: str, findings: tuple[Finding, ...]) -> Iterator[str]:
    yield f"{place}: pod {name}: {'nothing to say' if not findings else f'{len(findings)} found'}"
    for finding in findings:
        yield f"  {finding}"
        yield f"    {finding.advice}"


def _encode(place: str, name: str, findings: tuple[Finding, ...]) -> Mapping[str, Any]:
    return {
        "place": place,
        "pod": name,
        "findings": [
            {
                "rule": finding.rule,
                "severity": str(finding.severity),
                "path": finding.path,
                "message": finding.message,
                "advice": finding.advice,
            }
            for finding in findings
        ],
    }
