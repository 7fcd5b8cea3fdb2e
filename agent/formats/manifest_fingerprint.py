"""Whether an edit of a pod file is a resize: a fingerprint of all that is not one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from agent.formats.documents import Value
from agent.model.resources import CPU, MEMORY

_RESIZABLE = (CPU, MEMORY)


def fingerprint(manifest: Mapping[str, Value]) -> str:
    """SHA-256 of a pod manifest without its status and without what in-place resize can change: cpu and memory.

    Two manifests of one pod with the same fingerprint differ by a resize at most; otherwise the pod has to end for the edit.
    The order of keys, comments and the spelling of the file do not matter.
    """
    kept = {key: value for key, value in manifest.items() if key != "status"}
    if isinstance(spec := kept.get("spec"), Mapping):
        kept["spec"] = _spec(spec)
    return hashlib.sha256(json.dumps(kept, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _spec(spec: Mapping[str, Value]) -> Mapping[str, Value]:
    kept = _without_sizes(spec)
    for listed in ("initContainers", "containers"):
        if isinstance(containers := kept.get(listed), list):
            kept[listed] = [_without_sizes(each) if isinstance(each, Mapping) else each for each in containers]
    return kept


def _without_sizes(holder: Mapping[str, Value]) -> dict[str, Value]:
    """A container or pod spec without the sizes in its `resources`; what is left empty is as good as absent."""
    kept = dict(holder)
    resources = kept.pop("resources", None)
    if not isinstance(resources, Mapping):
        return kept if resources is None else {**kept, "resources": resources}
    left: dict[str, Value] = {}
    for key, value in resources.items():
        if isinstance(value, Mapping):
            value = {name: amount for name, amount in value.items() if name not in _RESIZABLE}
        if value:
            left[key] = value
    return {**kept, "resources": left} if left else kept
