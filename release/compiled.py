"""The compiled wheel: built, installed by itself, and put to the tests of the pure rooms and to the conformance vectors.

`python -m release.compiled [--output dist]`, in a checkout, on a machine with a C compiler and a network. The modules listed in
pyproject.toml (tool.hatch.build.hooks.custom) are compiled from the same source; nothing else differs from the pure wheel.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from release.bundle import CHECKOUT, BuildError, run

VECTORS = CHECKOUT.parent / "shared" / "conformance" / "check.py"
ROOMS = ("model", "policy", "queues", "formats", "replay")
BESIDE_TESTS = ("tests", "fixtures", "checkpoints", "examples", "docs", "systemd", "README.md", "pyproject.toml")
ORIGINS = "import importlib, sys; [print(importlib.import_module(name).__file__) for name in sys.argv[1:]]"


def modules() -> tuple[str, ...]:
    """The names of the modules that are compiled."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))
    paths: list[str] = project["tool"]["hatch"]["build"]["hooks"]["custom"]["compiled"]
    return tuple(path.removesuffix(".py").replace("/", ".") for path in paths)


def build(directory: Path) -> Path:
    """The compiled wheel of the checkout as it is, for the Python that runs this. Raises BuildError."""
    command = [sys.executable, "-m", "build", "--wheel", f"--outdir={directory}", str(CHECKOUT)]
    run(command, environment=_away(PINFOLD_COMPILED="1"))
    (wheel,) = directory.glob("pinfold-*-linux_*.whl")
    return wheel


def install(wheel: Path, directory: Path) -> Path:
    """A new environment in `directory` with the wheel and what its tests need. Gives its `bin`. Raises BuildError."""
    run([sys.executable, "-m", "venv", str(directory)], environment=_away())
    pip = [str(directory / "bin/pip"), "install", "-q", str(wheel), "pytest", "pytest-timeout", "hypothesis"]
    run(pip, environment=_away())
    return directory / "bin"


def check(programs: Path, away: Path) -> list[str]:
    """Run what must hold for the installed wheel, in `away`, where no checkout is. Gives the last line of each part.

    Raises BuildError: a test or a vector fails, or a module that should be compiled is not.
    """
    for name in BESIDE_TESTS:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, away / name, symlinks=True)  # sysfs has links in circles
        else:
            shutil.copy(CHECKOUT / name, away)
    python = str(programs / "python")
    origins = run([python, "-c", ORIGINS, *modules()], away, _away()).split()
    pure = [
        origin for origin in origins if not origin.endswith(".so") or not Path(origin).is_relative_to(programs.parent)
    ]
    if pure:
        raise BuildError(f"not compiled, or not those of the wheel: {', '.join(pure)}")
    parts = [
        [str(programs / "pinfold"), "--version"],
        [python, "-m", "pytest", "-q", "-m", "not shared", *(f"tests/{room}" for room in ROOMS)],
    ]
    if VECTORS.exists():
        parts.append([sys.executable, str(VECTORS), "all", "--pinfold", str(programs / "pinfold")])
    return [run(part, away, _away()).strip().splitlines()[-1] for part in parts]


def _away(**more: str) -> Mapping[str, str]:
    """Our environment without what would lead the tests back to the checkout or make skipped ones errors."""
    return {**{name: value for name, value in os.environ.items() if name not in ("CI", "PYTHONPATH")}, **more}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m release.compiled", description=__doc__)
    parser.add_argument("--output", type=Path, default=CHECKOUT / "dist")
    output = parser.parse_args().output
    try:
        with tempfile.TemporaryDirectory() as temporary:
            built, away = Path(temporary) / "built", Path(temporary) / "away"
            away.mkdir()
            wheel = build(built)
            print(*check(install(wheel, Path(temporary) / "environment"), away), sep="\n", flush=True)
            output.mkdir(parents=True, exist_ok=True)
            print(shutil.copy(wheel, output))
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
