"""A file of static pods -> pods: YAML or JSON, several documents, lists. One broken document does not lose the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from agent.errors import BadInputError
from agent.formats.documents import Document, DocumentError, Lines, Value, decode_text, split_documents
from agent.formats.json_reader import read_json
from agent.formats.manifest_fingerprint import fingerprint
from agent.formats.pod_defaults import apply_defaults
from agent.formats.pods import PodError, decode_pod, describe
from agent.formats.yaml_reader import read_yaml
from agent.model.pod import Pod

MAX_PODS = 1000  # of one file; a node runs a few hundred at most

_QUOTED = re.compile(r'\s*[{\[]\s*["{\[]')  # begins as only JSON usually does
_LISTS = ("List", "PodList")
_REQUIREMENTS = ("requests", "limits", "claims")  # the fields of core/v1 ResourceRequirements


class ManifestError(BadInputError):
    """A document, or a pod in it, that cannot be used. `source` and `line` say where it is."""

    hint = "correct that document; the other pods of the file are not affected"

    def __init__(self, source: str, line: int, why: str, *, hint: str | None = None) -> None:
        super().__init__(f"{source}:{line}: {why}", hint=hint)
        self.source = source
        self.line = line
        self.why = why


@dataclass(frozen=True, slots=True)
class ManifestPod:
    """A pod of a file, defaults applied. fingerprint: the same as before where an edit is a resize at most."""

    pod: Pod
    line: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Manifests:
    """What a file holds: the pods that can be used, and what is wrong with the rest."""

    pods: tuple[ManifestPod, ...]
    problems: tuple[ManifestError, ...]


def decode_manifests(data: bytes, source: str, *, pod_level_resources: bool = True) -> Manifests:
    """Read a file of pods. source: its name, for messages. pod_level_resources: the feature gate PodLevelResources.

    Nothing is raised: whatever cannot be used is among the problems.
    """
    pods: list[ManifestPod] = []
    problems: list[ManifestError] = []
    names: dict[str, int] = {}
    for found in _objects(data, source):
        if isinstance(found, ManifestError):
            problems.append(found)
            continue
        try:
            each = _pod(found, source, pod_level_resources)
            name = each.pod.namespaced_name
            if name in names:
                raise ManifestError(source, each.line, f"pod {name} is in line {names[name]} of this file already")
            if len(pods) == MAX_PODS:
                raise ManifestError(
                    source, each.line, f"pod {name} is one more than the {MAX_PODS} pods a file may have"
                )
        except ManifestError as error:
            problems.append(error)
        else:
            names[name] = each.line
            pods.append(each)
    return Manifests(tuple(pods), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Object:
    """A pod's object, from a document of its own or from a list."""

    value: Mapping[str, Value]
    lines: Lines


def _objects(data: bytes, source: str) -> Iterator[_Object | ManifestError]:
    try:
        text = decode_text(data)
    except DocumentError as error:
        yield ManifestError(source, error.line, error.why)
        return
    for first_line, part in split_documents(text):
        try:
            document = _read(part, first_line)
        except DocumentError as error:
            yield ManifestError(source, error.line, error.why)
        else:
            yield from _pods_of(document, source)


def _read(text: str, first_line: int) -> Document:
    if not text.lstrip().startswith(("{", "[")):
        return read_yaml(text, first_line)
    try:  # JSON proper: some of its escapes mean nothing to YAML
        return read_json(text, first_line)
    except DocumentError as not_json:
        try:  # JSON's look, YAML's rules: {metadata: {name: web}}
            return read_yaml(text, first_line)
        except DocumentError as not_yaml:
            raise (not_json if _QUOTED.match(text) else not_yaml) from None


def _pods_of(document: Document, source: str) -> Iterator[_Object | ManifestError]:
    value, lines = document.value, document.lines
    if value is None:
        return
    if not isinstance(value, Mapping):
        yield ManifestError(source, lines.line, "a document must be an object with apiVersion, kind, metadata and spec")
    elif why := _refusal(value, (*_LISTS, "Pod")):
        yield ManifestError(source, lines.line, why)
    elif value["kind"] == "Pod":
        yield _Object(value, lines)
    else:
        yield from _pods_of_list(value, lines, source)


def _pods_of_list(value: Mapping[str, Value], lines: Lines, source: str) -> Iterator[_Object | ManifestError]:
    items = value.get("items")
    if items is not None and not isinstance(items, list):
        yield ManifestError(source, lines.find("items"), "items must be a list")
        return
    for index, item in enumerate(items or ()):
        path = f"items[{index}]"
        if not isinstance(item, Mapping):
            yield ManifestError(source, lines.find(path), f"{path} must be an object")
        # the items of a PodList need not say what they are
        elif value["kind"] == "List" and (why := _refusal(item, ("Pod",))):
            yield ManifestError(source, lines.find(path), f"{path}: {why}")
        else:
            yield _Object(item, _members_of(lines, "items", str(index)))


def _members_of(lines: Lines, *keys: str) -> Lines:
    for key in keys:
        lines = lines.members.get(key, Lines(lines.line))
    return lines


def _refusal(value: Mapping[str, Value], kinds: tuple[str, ...]) -> str:
    """Why an object is none of these core/v1 kinds; "" where it is one."""
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None or version is None:
        return f"{describe(value)}: apiVersion and kind are required"
    if kind not in kinds or version != "v1":
        return f"{str(kind)[:80]} of {str(version)[:80]} ({describe(value)}) is not read here, only {', '.join(kinds)} of v1"
    return ""


def _pod(found: _Object, source: str, pod_level_resources: bool) -> ManifestPod:
    _check_requirements(found, source)
    try:
        pod = decode_pod(found.value)
    except PodError as error:
        raise ManifestError(source, found.lines.find(error.path), str(error), hint=error.hint) from error
    defaulted = apply_defaults(pod, pod_level_resources=pod_level_resources)
    return ManifestPod(defaulted, found.lines.line, fingerprint(found.value))


def _check_requirements(found: _Object, source: str) -> None:
    """Refuse a misspelt field in `resources`: passed over, it would silently cost a pod its CPUs."""
    for path, resources in _requirements(found.value.get("spec")):
        for key in resources:
            if key not in _REQUIREMENTS:
                why = f"pod {describe(found.value)}: {path}.{key[:80]}: there is no such field"
                hint = f"the fields of resources are {', '.join(_REQUIREMENTS)}"
                raise ManifestError(source, found.lines.find(f"{path}.{key}"), why, hint=hint)


def _requirements(spec: Value) -> Iterator[tuple[str, Mapping[str, Value]]]:
    if not isinstance(spec, Mapping):
        return
    holders: list[tuple[str, Value]] = [("spec", spec)]
    for listed in ("initContainers", "containers"):
        containers = spec.get(listed)
        if isinstance(containers, list):
            holders += [(f"spec.{listed}[{index}]", each) for index, each in enumerate(containers)]
    for path, holder in holders:
        if isinstance(holder, Mapping) and isinstance(resources := holder.get("resources"), Mapping):
            yield f"{path}.resources", resources
