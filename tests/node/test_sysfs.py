"""Bounded reads of small files: what is absent, what is damaged, what cannot be read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.model.cpuset import MAX_CPUS, CPUListError, CPUSet
from agent.node.sysfs import MAX_FILE_BYTES, Notes, Sysfs, SysfsError, parse_mask
from tests.node.sysfs_tree import format_mask


def sysfs_with(root: Path, **files: bytes) -> Sysfs:
    for name, content in files.items():
        (root / name).write_bytes(content)
    return Sysfs(root)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        pytest.param(b"0-3\n", "0-3", id="a line"),
        pytest.param(b"0-3\n\0", "0-3", id="a NUL behind the newline, as some kernels write"),
        pytest.param(b"\0\n", "", id="a NUL for an empty list"),
        pytest.param(b"", "", id="nothing"),
        pytest.param(b" \n", "", id="blanks"),
    ],
)
def test_a_file_is_read_without_nuls_and_blanks(tmp_path: Path, content: bytes, text: str) -> None:
    sysfs = sysfs_with(tmp_path, online=content)
    assert sysfs.read("online") == text
    assert sysfs.notes.lines() == ()


def test_an_absent_file_is_none(tmp_path: Path) -> None:
    assert sysfs_with(tmp_path, file=b"1\n").read("file/below") is None
    assert Sysfs(tmp_path).read("nothing") is None
    assert Sysfs(tmp_path).names("nothing") == frozenset()


def test_a_file_that_cannot_be_read_is_an_error_with_its_full_path(tmp_path: Path) -> None:
    (tmp_path / "online").mkdir()
    with pytest.raises(SysfsError, match=f"{tmp_path}/online: Is a directory"):
        Sysfs(tmp_path).read("online")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_an_error_with_its_full_path(tmp_path: Path) -> None:
    sysfs = sysfs_with(tmp_path, online=b"0\n")
    (tmp_path / "online").chmod(0)
    with pytest.raises(SysfsError, match=f"{tmp_path}/online: Permission denied"):
        sysfs.read("online")


def test_a_fifo_in_a_tree_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "online")
    assert Sysfs(tmp_path).read("online") == ""


def test_an_endless_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "online").symlink_to("/dev/zero")
    with pytest.raises(SysfsError, match=f"longer than {MAX_FILE_BYTES} bytes"):
        Sysfs(tmp_path).read("online")


def test_files_longer_than_a_page_are_read_whole(tmp_path: Path) -> None:
    every_second = CPUSet.of(range(0, 4096, 2))
    assert sysfs_with(tmp_path, cpulist=f"{every_second}\n".encode()).cpu_list("cpulist") == every_second


def test_content_without_a_final_newline_is_used_and_noted(tmp_path: Path) -> None:
    sysfs = sysfs_with(tmp_path, cpulist=b"0-1")
    assert sysfs.cpu_list("cpulist") == CPUSet.parse("0-1")
    assert sysfs.notes.lines() == ("cpulist does not end with a newline: cut short, or written by hand",)


@pytest.mark.parametrize("text", ["0-", "3-0", "a", "0-3;5", "0-99999", "\xff\xfe"])
def test_a_damaged_list_is_none_and_noted(tmp_path: Path, text: str) -> None:
    sysfs = sysfs_with(tmp_path, cpulist=f"{text}\n".encode("latin-1"))
    assert sysfs.cpu_list("cpulist") is None
    assert "cpulist is not a CPU set" in sysfs.notes.lines()[0]


@pytest.mark.parametrize(
    ("text", "number"), [("7", 7), ("-1", -1), ("", None), ("7 kB", None), ("0x7", None), ("9" * 30, None)]
)
def test_numbers(tmp_path: Path, text: str, number: int | None) -> None:
    sysfs = sysfs_with(tmp_path, core_id=f"{text}\n".encode())
    assert sysfs.number("core_id") == number
    assert bool(sysfs.notes.lines()) == (number is None and text != "")


def test_numbered_entries_are_in_order_of_number_and_nothing_else(tmp_path: Path) -> None:
    for name in ("cpu10", "cpu2", "cpu1", "cpufreq", "cpuidle", "cpu", "cpu1x", "xcpu3", "cpu٣"):
        (tmp_path / name).mkdir()
    assert Sysfs(tmp_path).numbered("", "cpu") == (1, 2, 10)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        pytest.param("f", "0-3", id="short"),
        pytest.param("0,0000000f", "0-3", id="first word not padded, as on sparc64"),
        pytest.param("00000001,00000000", "32", id="the most significant word comes first"),
        pytest.param("00000000,00000000", "", id="none"),
        pytest.param("", "", id="empty"),
    ],
)
def test_masks(text: str, cpus: str) -> None:
    assert str(parse_mask(text)) == cpus


@pytest.mark.parametrize("text", ["g", "0f,", "123456789", "-1", "0x0f", "1," + ",".join(["0"] * (MAX_CPUS // 32))])
def test_what_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(CPUListError):
        parse_mask(text)


@given(st.sets(st.integers(0, MAX_CPUS - 1), max_size=40))
def test_every_set_survives_the_mask_format(cpus: set[int]) -> None:
    assert parse_mask(format_mask(CPUSet.of(cpus))) == CPUSet.of(cpus)


def test_notes_of_one_kind_make_one_line() -> None:
    notes = Notes()
    for cpu in (3, 1, 2):
        notes.add("odd", CPUSet.of([cpu]))
    notes.add("plain")
    notes.add("plain")
    assert notes.lines() == ("odd: CPUs 1-3", "plain")


def test_a_fault_of_many_cpus_makes_one_note(tmp_path: Path) -> None:
    sysfs = Sysfs(tmp_path)
    for cpu in range(4):
        sysfs.doubt(f"sys/cpu{cpu}/topology/core_id", "is not a number")
    assert sysfs.notes.lines() == ("sys/cpuN/topology/core_id is not a number: CPUs 0-3",)
