"""Files of objects that somebody writes while they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.kube.object_files import ObjectFileError, ObjectFiles

ONE, TWO = "kind: Queue\nmetadata: {name: one}\n", "kind: Queue\nmetadata: {name: two}\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "queues.yaml"
    path.write_text(f"{ONE}---\n{TWO}")
    return path


@pytest.fixture
def files(path: Path) -> ObjectFiles:
    """Read once."""
    files = ObjectFiles([path])
    assert files.changed()
    assert len(files.read()) == 2
    assert not files.changed()
    return files


def test_a_file_written_in_place_counts_once_it_is_the_same_at_two_looks(path: Path, files: ObjectFiles) -> None:
    path.write_text(ONE)  # the first half of what is to come
    assert not files.changed()
    path.write_text(f"{ONE}---\n{TWO}---\n{ONE}")
    assert not files.changed()
    assert files.changed()
    assert len(files.read()) == 3
    assert not files.changed()


def test_a_file_renamed_into_its_place_counts_at_once(path: Path, files: ObjectFiles) -> None:
    new = path.with_name("new")
    new.write_text(ONE)
    new.rename(path)
    assert files.changed()


def test_a_file_that_had_objects_and_is_empty_is_refused_until_it_says_that_there_are_none(
    path: Path, files: ObjectFiles
) -> None:
    """As between the opening and the writing of `> file`, or on a full disk. Taken, it would release every node."""
    for empty in ("", "---\n", "# nothing\n"):
        path.write_text(empty)
        with pytest.raises(ObjectFileError, match=r"queues.yaml: is empty, and had objects before"):
            files.read()
        assert not files.changed()
        assert files.changed()  # still not read
    for none in ("kind: List\nitems: []\n", '{"kind": "List", "items": []}'):  # the latter is what docs and hint say
        path.write_text(none)
        assert files.read() == [{"kind": "List", "items": []}]


def test_an_empty_file_that_never_had_objects_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "later.yaml").write_text("# to be filled\n")
    assert ObjectFiles([tmp_path]).read() == []


def test_a_file_that_grows_holds_up_the_others(tmp_path: Path, path: Path) -> None:
    """All are read together, so what the others say by then may belong to what is still to come."""
    other = tmp_path / "other.yaml"
    other.write_text("kind: A\n")
    files = ObjectFiles([tmp_path])
    files.read()
    path.write_text("kind: Half\n")
    renamed = tmp_path / "renamed.yaml"
    renamed.write_text("kind: B\n")
    renamed.rename(other)
    assert not files.changed()
    path.write_text("kind: Half\n---\nkind: Whole\n")
    assert not files.changed()
    assert files.changed()


def test_a_file_that_comes_or_goes_in_a_directory_counts(tmp_path: Path, path: Path) -> None:
    files = ObjectFiles([tmp_path])
    assert len(files.read()) == 2
    (tmp_path / "more.yaml").write_text(ONE)
    assert not files.changed()
    assert files.changed()
    assert len(files.read()) == 3
    path.unlink()
    assert files.changed()
    assert len(files.read()) == 1
