"""Links between pages lead somewhere, and files that a page names are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, marked, name

_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FILE = re.compile(r"(?:agent|tests|docs|examples|systemd|checkpoints|fixtures|benchmarks|release)/[\w./-]+")


def anchors(page: Path) -> set[str]:
    """What may stand behind `#`: the headings as a forge makes anchors of them."""
    headings = _HEADING.findall(page.read_text(encoding="utf-8"))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_pages_and_headings(page: Path) -> None:
    for target in _LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    for text in marked(page):
        if _FILE.fullmatch(text):
            assert (ROOT / text).exists(), text


def test_every_page_can_be_reached_from_the_readme() -> None:
    known, found = set[Path](), [ROOT / "README.md"]
    while found:
        page = found.pop()
        if page in known or page.suffix != ".md":
            continue
        known.add(page)
        targets = [each.partition("#")[0] for each in _LINK.findall(page.read_text(encoding="utf-8"))]
        found += [(page.parent / each).resolve() for each in targets if each and "://" not in each]
    kept = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    pages = [ROOT / line for line in kept.splitlines() if line.endswith(".md")]
    assert [name(page) for page in pages if page.exists() and page not in known] == []
