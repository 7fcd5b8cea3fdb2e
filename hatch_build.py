"""Build hook: the commit that a wheel or sdist was made from, and a wheel with compiled modules where that is asked for.

The commit is for `pinfold --version` (agent/version.py). PINFOLD_COMPILED=1 compiles the modules that pyproject.toml lists, by
Cython, from the same source, and puts them beside it; without it a wheel is pure Python.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

COMPILED = "PINFOLD_COMPILED"  # "1": compile
# annotations stay what they are in Python: not checked, and an int has no width
DIRECTIVES = {"language_level": 3, "annotation_typing": False, "binding": True}


class PinfoldHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds agent/commit.txt where the tree is a git checkout (an sdist already carries its own), and compiled modules."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        return ["cython>=3.3,<4", "setuptools>=77"] if self._compiles else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._directory = tempfile.TemporaryDirectory()
        if (Path(self.root) / ".git").exists():
            self._write_commit(build_data)
        if self._compiles:
            self._compile(build_data)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    @property
    def _compiles(self) -> bool:
        return self.target_name == "wheel" and os.environ.get(COMPILED) == "1"

    def _write_commit(self, build_data: dict[str, Any]) -> None:
        told = subprocess.run(
            ["git", "-C", self.root, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            check=False,
        )
        if told.returncode:  # another user's checkout, or no git here: --version says that the commit is not known
            self.app.display_warning(f"the commit is not known: {told.stderr.strip()}")
            return
        note = Path(self._directory.name) / "commit.txt"
        note.write_text(told.stdout, encoding="ascii")
        build_data["force_include"][str(note)] = "agent/commit.txt"

    def _compile(self, build_data: dict[str, Any]) -> None:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension

        work = Path(self._directory.name) / "compiled"
        with contextlib.chdir(self.root):  # tracebacks name the source as the wheel does: agent/...
            wanted = [
                Extension(path.removesuffix(".py").replace("/", "."), [path], extra_compile_args=["-O2", "-g0"])
                for path in self.config["compiled"]
            ]
            modules = cythonize(wanted, build_dir=str(work / "c"), compiler_directives=DIRECTIVES, quiet=True)
            command = Distribution({"name": "pinfold", "ext_modules": modules}).get_command_obj("build_ext")
            command.build_lib, command.build_temp = str(work / "lib"), str(work / "temp")
            command.parallel = os.cpu_count()
            command.ensure_finalized()
            command.run()
        for library in (work / "lib").rglob("*.so"):
            build_data["force_include"][str(library)] = str(library.relative_to(work / "lib"))
        build_data["pure_python"], build_data["infer_tag"] = False, True
