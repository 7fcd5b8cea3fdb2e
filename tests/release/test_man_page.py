"""The manual page and the completion scripts are those of the commands as they are, and the real tools can read them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agent.cli import COMMANDS
from release.man_page import CHECKOUT, COMPLETIONS, PAGE, completion, page

REMEDY = "run: .venv/bin/python -m release.man_page"


def test_the_manual_page_in_the_repository_is_that_of_the_commands() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), REMEDY


def test_every_command_has_its_place_in_the_manual_page() -> None:
    told = {
        line.split()[2] for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(".SS pinfold ")
    }
    assert told == set(COMMANDS)


def test_groff_has_no_complaint_about_the_manual_page() -> None:
    if shutil.which("groff") is None:
        pytest.skip("needs groff")
    command = ["groff", "-man", "-ww", "-z", str(PAGE)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout + said.stderr == ""


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_the_completion_script_in_the_repository_is_what_pinfold_prints(shell: str) -> None:
    path = CHECKOUT / "completion" / COMPLETIONS[shell]
    assert path.read_text(encoding="utf-8") == completion(shell), REMEDY


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("pinfold", "topo"), "topology"),
        (("pinfold", "checkpoint", "ver"), "verify"),
        (("pinfold", "status", "--wa"), "--watch"),
    ],
)
def test_bash_completes_what_is_begun(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    program = tmp_path / "pinfold"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m agent "$@"\n')
    program.chmod(0o755)
    script = (
        f"complete() {{ :; }}; compopt() {{ :; }}; . {CHECKOUT}/completion/pinfold.bash; "
        f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _pinfold_completion pinfold; "
        'echo "${COMPREPLY[@]}"'
    )
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(CHECKOUT)}
    command = [bash, "--norc", "-euc", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    assert done.stdout.split() == [expected]
