"""Reading the configuration: defaults < kubeletConfig < file < drop-ins < flags, each value with its origin.

Unknown keys and wrong types are refused by name, file and line. One frozen object comes out, built once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from agent.config_keys import locate, nearest, overlay, whole_value
from agent.config_schema import Config
from agent.errors import BadInputError

DEFAULT_PATH = Path("/etc/pinfold/config.yaml")
MAX_BYTES = 1024 * 1024
MAX_VALUES = 10_000  # a whole KubeletConfiguration has some hundred

# what is read from an existing KubeletConfiguration, so that nothing is entered twice
KUBELET_KEYS = (
    "cpuManagerPolicy",
    "cpuManagerPolicyOptions",
    "reservedSystemCPUs",
    "systemReserved",
    "kubeReserved",
    "evictionHard",
    "memoryManagerPolicy",
    "reservedMemory",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "topologyManagerPolicyOptions",
    "featureGates",
)


class ConfigError(BadInputError):
    """The configuration cannot be used."""

    hint = "see docs/configuration.md, which has every key and its values"


@dataclass(frozen=True, slots=True)
class Loaded:
    """The configuration and where each value came from: dotted key -> "FILE:LINE", "flag" or "default"."""

    config: Config
    origins: Mapping[str, str] = field(default_factory=dict)

    def origin(self, key: str) -> str:
        """Where this key's value came from; a section's default where nothing set it."""
        while key:
            if key in self.origins:
                return self.origins[key]
            key = key.rpartition(".")[0]
        return "default"


def load(path: Path | None = None, flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read the configuration.

    path: the file; None = /etc/pinfold/config.yaml where it exists. Drop-ins are `config.d/*.yaml` beside it, in name order.
    flags: dotted key -> value, stronger than any file. Raises ConfigError.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for file in _files(path):
        document, lines = read_yaml(file)
        origins = {key: where for key, where in origins.items() if not _replaced(key, document)}
        origins |= {key: f"{file}:{line}" for key, line in lines.items()}
        values = overlay(values, document)
    kubelet = (flags or {}).get("kubeletConfig", values.get("kubeletConfig"))
    if isinstance(kubelet, str):
        values, origins = _over_kubelet(Path(kubelet), values, origins)
    for key, value in (flags or {}).items():
        _set(values, key, value)
        origins[key] = "flag"
    try:
        return Loaded(Config.model_validate(values), origins)
    except ValidationError as error:
        raise ConfigError(_explain(error, origins), hint=_meant(error)) from error


def _files(path: Path | None) -> Iterator[Path]:
    main = path if path is not None else DEFAULT_PATH
    if path is not None or main.exists():
        yield main
    drop_ins = main.parent / "config.d"
    if drop_ins.is_dir():
        yield from sorted(drop_ins.glob("*.yaml"))


def read_yaml(path: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """One YAML mapping and the line of every key in it (dotted). Raises ConfigError naming file and line."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", hint="check the path and its permissions") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path}: larger than {MAX_BYTES} bytes")
    lines: dict[str, int] = {}
    try:
        tree = yaml.compose(data, Loader=yaml.SafeLoader)
        if tree is not None:
            _lines(tree, "", lines, path)  # first: it bounds what aliases and merge keys unfold to
        document = yaml.safe_load(data)
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # ValueError: of a date or number that cannot be
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        raise ConfigError(f"{where}: not YAML: {getattr(error, 'problem', error)}") from error
    if document is None or tree is None:
        return {}, {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: expected keys and values, found {type(document).__name__}")
    return document, lines


def _lines(node: yaml.Node, prefix: str, lines: dict[str, int], path: Path) -> None:
    if len(lines) > MAX_VALUES:
        raise ConfigError(f"{path}: more than {MAX_VALUES} values, or aliases that unfold to as many")
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = f"{prefix}{key.value}"
            line = key.start_mark.line + 1
            if name in lines:
                raise ConfigError(f"{path}:{line}: {name} is given twice, first in line {lines[name]}")
            lines[name] = line
            _lines(value, f"{name}.", lines, path)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            lines[f"{prefix}{index}"] = value.start_mark.line + 1
            _lines(value, f"{prefix}{index}.", lines, path)


def _replaced(key: str, document: Mapping[str, Any]) -> bool:
    """Whether this document gives another value to the key, or to the map or list that it is part of."""
    found: Any = document
    for step in whole_value(key):
        if not isinstance(found, Mapping):
            return True
        if step not in found:
            return False
        found = found[step]
    return True


def _over_kubelet(path: Path, values: dict[str, Any], origins: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    document, lines = read_yaml(path)
    if document.get("kind", "KubeletConfiguration") != "KubeletConfiguration":
        raise ConfigError(f"{path}: kind is {document.get('kind')!r}, expected KubeletConfiguration")
    below = {key: document[key] for key in KUBELET_KEYS if document.get(key) is not None}
    known = {key: f"{path}:{line}" for key, line in lines.items() if key.split(".")[0] in below}
    return {**below, **values}, {**known, **origins}


def _set(values: dict[str, Any], key: str, value: Any) -> None:
    steps, _ = locate(key)
    for number, step in enumerate(steps[:-1], 1):
        if values.get(step) is None:
            values[step] = {}
        if not isinstance(values[step], dict):
            raise ConfigError(f"flag: {key}: {'.'.join(steps[:number])} holds no keys (given: {_shown(values[step])})")
        values[step] = values = dict(values[step])
    values[steps[-1]] = value


def _explain(error: ValidationError, origins: Mapping[str, str]) -> str:
    """Every fault with its key and line, the first one first."""
    faults = []
    for fault in error.errors(include_url=False):
        key = _dotted(fault)
        what = _WHAT.get(fault["type"], fault["msg"].removeprefix("Input "))
        if isinstance(cause := (fault.get("ctx") or {}).get("error"), ValueError):
            what = str(cause)
        if not key:  # of several sections together; what is said begins with the key then
            key, _, what = what.partition(": ")
        where = Loaded(Config(), origins).origin(key)
        # a section whose keys contradict each other is in the file, and too long to be repeated
        given = (
            ""
            if isinstance(fault["input"], Mapping) or fault["type"] in _SAYS_ALL
            else f" (given: {_shown(fault['input'])})"
        )
        faults.append(f"{where}: {key}: {what}{given}")
    return "\n".join(faults)


def _meant(error: ValidationError) -> str | None:
    """What to do about unknown keys that are nearly known."""
    unknown = [_dotted(fault) for fault in error.errors(include_url=False) if fault["type"] == "extra_forbidden"]
    meant = [found for key in unknown if (found := nearest(key))]
    return f"did you mean {', '.join(meant)}? docs/configuration.md has every key" if meant else None


def _dotted(fault: ErrorDetails) -> str:
    return ".".join(str(part) for part in fault["loc"])


_SAYS_ALL = ("extra_forbidden", "missing")
_WHAT = {
    "extra_forbidden": "unknown key",
    "string_type": "expected text; write it in quotes",
    "int_type": "expected a whole number, without quotes",
    "float_type": "expected a number, without quotes",
    "bool_type": "expected true or false, without quotes",
    "list_type": "expected a list",
    "model_type": "expected keys and values below it",
    "dict_type": "expected keys and values below it",
}


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
