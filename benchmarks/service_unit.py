"""What systemd/pinfold.service gives the agent: what is measured shall have the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.machine import ROOT
from benchmarks.problems import WrongResultError

UNIT = ROOT / "systemd" / "pinfold.service"


def environment(unit: Path = UNIT) -> Mapping[str, str]:
    """Its `Environment=`, as systemd.exec(5) reads it: several in a line, quoted as a whole; an empty one takes all back.

    Raises WrongResultError for a line that says it in a way that is not read here (specifiers, files).
    """
    found: dict[str, str] = {}
    for name, value in _service(unit.read_text()):
        if name in ("EnvironmentFile", "PassEnvironment", "UnsetEnvironment") or (
            name == "Environment" and "%" in value
        ):
            raise WrongResultError(f"{unit}: {name}={value}: only plain Environment= is understood here")
        if name == "Environment":
            pairs = [word.partition("=") for word in shlex.split(value)]
            found = {**found, **{key: text for key, _, text in pairs}} if pairs else {}
    return found


def _service(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of the section [Service], in order; a name may come again."""
    section = ""
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and line[0] not in "#;":
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
