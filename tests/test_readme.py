"""README.md keeps its form and its word: two commands of one line each, and the output that the first one gives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[1] / "README.md"
CAPTURED = "A captured machine"


def blocks(text: str) -> list[str]:
    """The contents of the fenced blocks, in order."""
    return re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_first_two_blocks_are_one_command_each() -> None:
    run, test, *_ = blocks(README.read_text(encoding="utf-8"))
    assert len(run.splitlines()) == len(test.splitlines()) == 1
    assert run.endswith("pinfold demo\n")
    assert "pytest" in test
    assert "[dev]" in test


def test_what_is_shown_of_the_captured_machine_is_what_the_demo_prints() -> None:
    """The other half depends on the machine."""
    shown = blocks(README.read_text(encoding="utf-8"))[2]
    done = subprocess.run(
        [sys.executable, "-m", "agent", "demo"], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout[done.stdout.index(CAPTURED) :].strip() == shown[shown.index(CAPTURED) :].strip()
