"""The compiled wheel decides as the pure one does: the same tests and vectors, run against compiled modules."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from agent.version import compiled
from release.compiled import build, check, install, modules


def test_every_module_that_is_compiled_exists_and_is_pure() -> None:
    assert "agent.policy.cpu_packed" in modules()  # the one that `pinfold --version` looks at
    for name in modules():
        assert name.split(".")[1] in ("model", "policy", "queues"), name
        assert find_spec(name) is not None, name


def test_a_version_says_compiled_of_compiled_modules_only() -> None:
    assert not compiled("agent.version")
    assert not compiled("agent.no_such_module")
    assert compiled("pydantic_core._pydantic_core")  # an extension module that every installation has


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_the_compiled_wheel_passes_the_tests_of_the_pure_rooms_and_the_vectors(tmp_path: Path) -> None:
    away = tmp_path / "away"
    away.mkdir()
    version, *parts = check(install(build(tmp_path / "built"), tmp_path / "environment"), away)
    assert version.endswith(", compiled)")
    assert parts
