"""Which pinfold this is: the release and the commit it was built from."""

from __future__ import annotations

import subprocess
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

from agent import __version__

NOTE = "commit.txt"  # written by hatch_build.py into wheels and sdists


def commit(package: Path = Path(__file__).parent) -> str:
    """The commit, abbreviated, with `-dirty` where files had been changed; "unknown" outside of builds and checkouts.

    package: the directory of the installed package.
    """
    try:
        return (package / NOTE).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return _of_checkout(package.parent) or "unknown"


def _of_checkout(root: Path) -> str:
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def compiled(module: str = "agent.policy.cpu_packed") -> bool:
    """Whether this module would run as compiled code; by default one of those that a compiled wheel carries (hatch_build.py)."""
    found = find_spec(module)
    return found is not None and (found.origin or "").endswith(tuple(EXTENSION_SUFFIXES))


def version_text() -> str:
    """What `pinfold --version` prints."""
    return f"pinfold {__version__} (commit {commit()}{', compiled' if compiled() else ''})"
