"""docs/differences.md, the tests it names and the table that `replay --check` counts by agree."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from agent.replay.known import KNOWN

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "docs/differences.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([a-z0-9-]+)`( \(\*counted\*\))? \|(.*)\|$", TEXT, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`(tests/[^`:]+)::([^`]+)`", TEXT)))


def test_every_difference_has_a_name_a_reason_and_a_test() -> None:
    names = [name for name, _, _ in ROWS]
    assert len(names) == len(set(names)) > 20
    for name, _, rest in ROWS:
        what, why, tests = (cell.strip() for cell in rest.rsplit("|", 2))
        assert what.endswith("."), name
        assert why.endswith("."), name
        assert "::" in tests, name


def test_what_replay_counts_as_known_is_what_the_document_says() -> None:
    assert {name for name, counted, _ in ROWS if counted} == {difference.name for difference in KNOWN}
    for difference in KNOWN:
        assert difference.reason
        assert difference.kinds


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_named_test_exists(path: str, name: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".jsonl"):
        assert name in {json.loads(line)["id"] for line in text.splitlines()}
    else:
        assert name in {node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
