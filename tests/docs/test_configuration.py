"""docs/configuration.md has every key of the schema, and no other; configurations that pages show can be loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import pytest
import yaml

from agent.config import load
from agent.config_schema import Config
from agent.config_schema_values import Section
from tests.docs.pages import PAGES, ROOT, fenced, name

TABLES = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
_KEY = re.compile(r"`(\.?[A-Za-z]+(?:\.[A-Za-z]+)*)`")


def keys(schema: type[Section], prefix: str = "") -> Iterator[str]:
    """Dotted keys of the values below a section; a map of sections has NAME for its keys, a list of them is one value."""
    for key, field in schema.model_fields.items():
        inner = list(sections(field.annotation))
        if not inner:
            yield prefix + key
        for section, step in inner:
            yield from keys(section, f"{prefix}{key}{step}.")


def sections(annotation: Any) -> Iterator[tuple[type[Section], str]]:
    """The sections that a value may be, with the step that leads to each."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        yield annotation, ""
    elif get_origin(annotation) is dict:
        yield from ((section, f".NAME{step}") for section, step in sections(get_args(annotation)[1]))
    elif get_origin(annotation) is UnionType or "Union" in str(get_origin(annotation)):
        for each in get_args(annotation):
            yield from sections(each)


def documented() -> set[str]:
    """The keys of the tables. `.key` beside a whole one is that of the same section; a section's own row has its keys as text."""
    found: set[str] = set()
    for line in TABLES.splitlines():
        cells = line.split(" | ")
        if not line.startswith("| `"):
            continue
        section = ""
        for key in _KEY.findall(cells[0]):
            if not key.startswith("."):
                section = key.rpartition(".")[0]
                found.add(key)
            else:
                found |= {section + key} if section else {f"sources.{each}{key}" for each in ("kubelet", "apiserver")}
        if len(cells) > 2:
            found |= {
                f"{key}.{inner}" for key in found & SECTIONS for inner in _KEY.findall(cells[-1]) if inner[0] != "."
            }
    return found


SECTIONS = {key.rpartition(".")[0] for key in keys(Config)}


def test_every_key_is_documented() -> None:
    assert set(keys(Config)) - documented() == set()


def test_every_documented_key_exists() -> None:
    there = set(keys(Config)) | SECTIONS
    rows = {key for line in TABLES.splitlines() if line.startswith("| `") for key in _KEY.findall(line.split(" | ")[0])}
    assert {key for key in rows if not any(each == key or each.endswith(key) for each in there)} == set()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_a_configuration_that_a_page_shows_can_be_loaded(page: Path, tmp_path: Path) -> None:
    for block in fenced(page, "yaml"):
        if yaml.safe_load(block).keys() <= Config.model_fields.keys():
            path = tmp_path / "config.yaml"
            path.write_text(block)
            load(path)
