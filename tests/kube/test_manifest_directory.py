"""The manifest directory: what counts as said, what is named and passed over, and what keeps a pod."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.kube import manifest_directory
from agent.kube.manifest_directory import Listing, ManifestDirectory
from tests.agents import pod_text


def names(listing: Listing) -> list[str]:
    return [each.pod.name for each in listing.pods]


@pytest.fixture
def source(tmp_path: Path) -> ManifestDirectory:
    (tmp_path / "a.yaml").write_text(pod_text("a", "2"))
    return ManifestDirectory(tmp_path)


@pytest.mark.parametrize(
    "short",
    [
        pytest.param("", id="cut to nothing by an editor"),
        pytest.param("# a.yaml\n", id="only the comment is written so far"),
        pytest.param(pod_text("b"), id="another pod, the first is still to come"),
        pytest.param(pod_text("a", "2", label="x"), id="another pod of the same name"),
    ],
)
def test_a_pod_ends_by_an_edit_only_when_two_looks_say_so(source: ManifestDirectory, short: str) -> None:
    before = source.list().pods
    path = source.path / "a.yaml"
    path.write_text(short)
    assert before[0] in source.list().pods
    path.write_text(pod_text("a", "2") + "\n")
    assert before[0] in source.list().pods
    assert source.list().pods == before
    path.write_text(short)
    assert before[0] in source.list().pods
    assert before[0] not in source.list().pods
    assert source.list().problems == ()


def test_new_pods_of_an_edited_file_come_at_once(source: ManifestDirectory) -> None:
    source.list()
    (source.path / "a.yaml").write_text(pod_text("b"))
    assert names(source.list()) == ["b", "a"]
    assert names(source.list()) == ["b"]


def test_a_resize_is_taken_at_once(source: ManifestDirectory) -> None:
    source.list()
    (source.path / "a.yaml").write_text(pod_text("a", "3"))
    (pod,) = source.list().pods
    assert str(pod.pod.containers[0].resources.limits["cpu"]) == "3"


def test_a_removed_file_ends_its_pods_at_once(source: ManifestDirectory) -> None:
    source.list()
    (source.path / "a.yaml").unlink()
    assert source.list() == Listing()


def test_a_broken_edit_keeps_what_ran_for_as_long_as_it_lasts(source: ManifestDirectory) -> None:
    source.list()
    (source.path / "a.yaml").write_text("kind: Pod\nmetadata: {name: a")
    for _ in range(3):
        listing = source.list()
        assert names(listing) == ["a"]
        assert "a.yaml:" in listing.problems[0]


def test_what_is_not_a_file_is_named_and_never_opened(source: ManifestDirectory) -> None:
    os.mkfifo(source.path / "fifo.yaml")
    (source.path / "directory.yaml").mkdir()
    (source.path / "device.yaml").symlink_to("/dev/zero")
    (source.path / "loop.yaml").symlink_to("loop.yaml")
    (source.path / "dangling.yaml").symlink_to("nowhere")
    listing = source.list()
    assert names(listing) == ["a"]
    assert len(listing.problems) == 5
    assert all(any(name in text for text in listing.problems) for name in ("fifo", "directory", "device", "loop"))
    assert source.list() == listing


def test_a_file_name_that_is_no_text_is_named_in_text(source: ManifestDirectory) -> None:
    (source.path / os.fsdecode(b"\xff.yaml")).write_bytes(b"broken: [")
    (problem,) = source.list().problems
    assert "\\xff.yaml" in problem.encode().decode()


def test_one_file_too_many_is_named_and_ends_nobody(source: ManifestDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest_directory, "MAX_FILES", 2)
    (source.path / "b.yaml").write_text(pod_text("b"))
    assert names(source.list()) == ["a", "b"]
    (source.path / "0.yaml").write_text(pod_text("zero"))
    listing = source.list()
    assert names(listing) == ["a", "b"]
    assert "1 files are not read" in listing.problems[0]
    (source.path / "a.yaml").unlink()
    assert (names(source.list()), source.list().problems) == (["zero", "b"], ())


def test_a_name_in_two_files_is_told(source: ManifestDirectory) -> None:
    (source.path / "b.yaml").write_text(pod_text("a"))
    (problem,) = source.list().problems
    assert "b.yaml:" in problem
    assert "pod default/a is in a.yaml too" in problem


def test_a_directory_that_cannot_be_listed_keeps_its_pods(source: ManifestDirectory, tmp_path: Path) -> None:
    source.list()
    moved = tmp_path.rename(tmp_path.with_name("moved"))
    tmp_path.write_text("a file in its place")
    listing = source.list()
    assert (names(listing), listing.readable) == (["a"], False)
    assert "Not a directory" in listing.problems[0]
    tmp_path.unlink()
    listing = source.list()
    assert not listing.readable
    assert "No such file or directory (make it, or name another in sources.manifests.path)" in listing.problems[0]
    moved.rename(tmp_path)
    assert (names(source.list()), source.list().problems, source.list().readable) == (["a"], (), True)
