"""Whether the kubelet of this node pins CPUs or memory itself: two managers on one node would undo each other's work.

What counts is the kubelet's configuration; where that is not to be found, what its state files were written by.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import yaml

from agent.errors import AgentError

MAX_BYTES = 16 << 20
_KEYS = {"cpuManagerPolicy": ("static", "none"), "memoryManagerPolicy": ("Static", "None")}
_STATE = {"cpuManagerPolicy": "cpu_manager_state", "memoryManagerPolicy": "memory_manager_state"}


@dataclass(frozen=True, slots=True)
class PolicyConflict:
    """A policy of the kubelet's that pins. file: where it says so."""

    key: str
    value: str
    file: Path

    def __str__(self) -> str:
        return f"{self.file}: the kubelet runs with {self.key} {self.value}"


class KubeletConflictError(AgentError):
    """The kubelet of this node pins too."""

    hint = (
        "set the kubelet's policies to none/None and restart it (docs/operations.md), "
        "or let pinfold only observe: enforcement.onKubeletPolicy: observe"
    )


def kubelet_conflicts(root: Path, config: Path | None = None) -> tuple[PolicyConflict, ...]:
    """The kubelet's own static policies. root: its directory, /var/lib/kubelet. config: its configuration file, None = the
    one in `root`. Files that are absent or cannot be read say nothing.
    """
    path = config or root / "config.yaml"
    configured = _read_config(path)
    found = []
    for key, (pinning, off) in _KEYS.items():
        file, value = path, str(configured.get(key, off))
        if not configured:
            file = root / _STATE[key]
            value = _policy_name(file)
        if value == pinning:
            found.append(PolicyConflict(key, value, file))
    return tuple(found)


def _read_config(path: Path) -> dict[str, object]:
    try:
        value = yaml.safe_load(_read(path))
    except (OSError, yaml.YAMLError, RecursionError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _policy_name(path: Path) -> str:
    try:
        value = json.loads(_read(path))
    except (OSError, ValueError, RecursionError):
        return ""
    return str(value.get("policyName", "")) if isinstance(value, dict) else ""


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        return stream.read(MAX_BYTES)
