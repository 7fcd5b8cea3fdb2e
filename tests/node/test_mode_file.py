"""The mode that an operator has set: durable, and cautious where it cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.node.mode_file import Mode, ModeFile, ModeFileError


def test_it_holds_over_restarts(tmp_path: Path) -> None:
    path = tmp_path / "mode"
    assert ModeFile(path).mode is Mode.RUNNING
    for mode in (Mode.PAUSED, Mode.RELEASED, Mode.RUNNING):
        ModeFile(path).set(mode)
        assert ModeFile(path).mode is mode
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff\xfe", b"paused" * 50])
def test_what_cannot_be_understood_means_paused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mode").write_bytes(content)
    assert ModeFile(tmp_path / "mode").mode is Mode.PAUSED


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("running")
    (tmp_path / "mode").symlink_to(tmp_path / "elsewhere")
    assert ModeFile(tmp_path / "mode").mode is Mode.PAUSED


def test_where_it_cannot_be_kept_nothing_changes(tmp_path: Path) -> None:
    file = ModeFile(tmp_path / "absent" / "mode")
    with pytest.raises(ModeFileError, match="absent/mode"):
        file.set(Mode.PAUSED)
    assert file.mode is Mode.RUNNING
