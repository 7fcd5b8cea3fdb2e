"""What the offline bundle's builder does by itself; tests/systemd/test_offline_bundle.py builds a whole one and installs it."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

import pytest

from release.bundle import BuildError, download, pack, requirements


def tree(root: Path, mode: int, when: int) -> Path:
    (root / "wheels").mkdir(parents=True)
    for name in ("install.sh", "wheels/b.whl", "wheels/a.whl"):
        (root / name).write_text(name)
        (root / name).chmod(mode)
        os.utime(root / name, (when, when))
    return root


def test_the_same_files_give_the_same_archive_whoever_packs_them_and_when(tmp_path: Path) -> None:
    archives = [tmp_path / "one.tar.gz", tmp_path / "two.tar.gz"]
    pack(tree(tmp_path / "here" / "pinfold", 0o600, 1_000_000_000), archives[0])
    pack(tree(tmp_path / "there" / "pinfold", 0o666, 1_700_000_000), archives[1])
    assert archives[0].read_bytes() == archives[1].read_bytes()


def test_only_the_installer_is_executable_and_all_is_roots(tmp_path: Path) -> None:
    pack(tree(tmp_path / "pinfold", 0o600, 0), tmp_path / "archive.tar.gz")
    with tarfile.open(tmp_path / "archive.tar.gz") as archive:
        members = archive.getmembers()
    assert {each.name for each in members if each.isfile() and each.mode & 0o111} == {"pinfold/install.sh"}
    assert {each.name for each in members} == {
        *("pinfold", "pinfold/install.sh", "pinfold/wheels", "pinfold/wheels/a.whl", "pinfold/wheels/b.whl"),
    }
    assert {(each.uid, each.gid) for each in members} == {(0, 0)}


def test_a_tool_that_fails_is_quoted(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="no-such-wheel"):
        download(["./no-such-wheel.whl"], tmp_path, "3.11", "x86_64")


def test_every_run_time_dependency_is_wanted() -> None:
    assert {"grpcio", "pydantic", "pyudev"} <= {name.split(">")[0] for name in requirements()}
