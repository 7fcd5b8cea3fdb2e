"""`pinfold --version` names the commit: of a build, of a checkout, or says that it is not known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from agent import __version__
from agent.version import commit


def test_a_build_says_what_it_was_built_from(tmp_path: Path) -> None:
    (tmp_path / "commit.txt").write_text("0123456789ab-dirty\n")
    assert commit(tmp_path) == "0123456789ab-dirty"


def test_a_checkout_says_where_it_stands(tmp_path: Path) -> None:
    def git(*words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *words], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    package = tmp_path / "agent"
    package.mkdir()
    (package / "module.py").write_text("first = 1\n")
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    head = git("rev-parse", "--short=12", "HEAD")
    assert commit(package) == head
    (package / "module.py").write_text("first = 2\n")
    assert commit(package) == f"{head}-dirty"


def test_elsewhere_the_commit_is_not_known(tmp_path: Path) -> None:
    package = tmp_path / "agent"
    package.mkdir()
    assert commit(package) == "unknown"


def test_the_command_prints_release_and_commit() -> None:
    command = [sys.executable, "-m", "agent", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == f"pinfold {__version__} (commit {commit()})\n"
