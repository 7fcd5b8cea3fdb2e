"""Build hook: writes down the commit that a wheel or sdist was made from, for `pinfold --version` (agent/version.py)."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds agent/commit.txt where the tree is a git checkout; an sdist already carries the one that it was made with."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or not (root / ".git").exists():
            return
        told = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode:  # another user's checkout, or no git here: --version says that the commit is not known
            self.app.display_warning(f"the commit is not known: {told.stderr.strip()}")
            return
        self._directory = tempfile.TemporaryDirectory()
        note = Path(self._directory.name) / "commit.txt"
        note.write_text(told.stdout, encoding="ascii")
        build_data["force_include"][str(note)] = "agent/commit.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()
