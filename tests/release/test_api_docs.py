"""The API pages of what other programs import are made without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from release.api_docs import PUBLIC


@pytest.mark.long
def test_the_api_pages_are_made_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "release.api_docs", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()
    for name in PUBLIC:
        page = tmp_path / name.replace(".", "/")
        assert page.with_suffix(".html").is_file(), name
    assert "connect" in (tmp_path / "agent/client.html").read_text(encoding="utf-8")
    assert not list(tmp_path.rglob("*_pb2*"))


def test_a_directory_is_wanted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "release.api_docs"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "release.api_docs DIRECTORY" in done.stderr
