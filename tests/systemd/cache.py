"""What a test with a booted system needs and takes long to get, kept outside the tree: a root file system and wheels.

Each lives in a directory named after the content of its recipe, so that another recipe makes another one and nothing grows
stale by being edited. Everything can be built from nothing; deleting the cache costs time only.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from release.bundle import PLATFORMS, download, requirements

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_SECONDS = 900.0  # on a busy machine with a slow mirror
SUITE = "bookworm"  # systemd 252, Python 3.11: the oldest that docs/install.md promises
PYTHON = "3.11"
PACKAGES = ("systemd", "systemd-sysv", "python3", "python3-venv", "curl")
OPTIONS = (
    "--variant=minbase",
    '--aptopt=Apt::Install-Recommends "false"',
    *(f"--dpkgopt=path-exclude=/usr/share/{unread}/*" for unread in ("man", "doc", "locale")),
)


def cache_directory() -> Path:
    """Where it is kept: $XDG_CACHE_HOME/pinfold-tests, by default below ~/.cache."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pinfold-tests"


def root_file_system() -> Path:
    """A Debian of SUITE with PACKAGES, as a directory; nobody may change it."""
    recipe = (*OPTIONS, f"--include={','.join(PACKAGES)}", SUITE)

    def build(directory: Path) -> None:
        run(["mmdebstrap", *recipe, str(directory)])

    return kept("rootfs", recipe, build)


def dependency_wheels() -> Path:
    """The wheels that pinfold needs on SUITE, as a directory for `pip --find-links`."""
    wanted, machine = requirements(), platform.machine()
    recipe = (PYTHON, machine, *PLATFORMS, *wanted)

    def build(directory: Path) -> None:
        directory.mkdir()
        download(wanted, directory, PYTHON, machine)

    return kept("wheels", recipe, build)


def kept(kind: str, recipe: tuple[str, ...], build: Callable[[Path], None]) -> Path:
    """The directory of this kind that `build` fills by this recipe; built once."""
    key = hashlib.sha256("\n".join(recipe).encode()).hexdigest()[:16]
    path = cache_directory() / f"{kind}-{key}"
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.with_suffix(".lock")):
        if not path.is_dir():
            new = path.with_suffix(".new")
            shutil.rmtree(new, ignore_errors=True)  # of a build that was cut off
            build(new)
            new.rename(path)
    return path


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def run(command: list[str]) -> None:
    """A command that must succeed; what it said where it did not."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"
