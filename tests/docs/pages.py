"""What is written for people and can be held to its word: pages, their fenced blocks and what stands in code marks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    ROOT / "README.md",
    *(
        path
        for path in (ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "checkpoints/FORMATS.md")
        if path.exists()
    ),
    *sorted((ROOT / "docs").rglob("*.md")),
)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?:\A|\n)\n((?:    .*\n)+)")
_MARKED = re.compile(r"`([^`]+)`")


def name(page: Path) -> str:
    """How a page is named in tests: from the repository's root."""
    return str(page.relative_to(ROOT))


def fenced(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page, in order; of some languages, or all."""
    found = _FENCED.findall(page.read_text(encoding="utf-8"))
    return [block for language, block in found if not languages or language in languages]


def marked(page: Path) -> list[str]:
    """What stands in code marks outside of fenced blocks."""
    return _MARKED.findall(_FENCED.sub("", page.read_text(encoding="utf-8")))


def command_lines(page: Path) -> Iterator[str]:
    """Every line that a reader would type: of shell blocks, indented blocks and code marks."""
    for block in fenced(page, "", "sh", "bash"):
        yield from block.replace("\\\n", " ").splitlines()
    for block in _INDENTED.findall(_FENCED.sub("", page.read_text(encoding="utf-8"))):
        yield from block.splitlines()
    yield from (text.replace("\n", " ") for text in marked(page))


def literals(module: Path) -> Iterator[str]:
    """The texts of a module, docstrings too; what is filled in is `X`."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
            yield "".join(map(str, parts))
