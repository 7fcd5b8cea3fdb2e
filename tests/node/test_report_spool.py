"""Reports as files: durable, in order, bounded, acknowledged by removal."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent.node.file_ops import FileOps
from agent.node.report_spool import ReportSpool, ReportSpoolError


def test_reports_wait_in_order_until_somebody_takes_them(tmp_path: Path) -> None:
    spool = ReportSpool(tmp_path / "spool", keep=10)
    for number in (1, 2, 10):
        spool.put(f"e-{number:012d}", b"%d" % number)
    assert [path.read_bytes() for path in spool.waiting()] == [b"1", b"2", b"10"]
    spool.waiting()[0].unlink()
    assert [path.name for path in ReportSpool(tmp_path / "spool", keep=10).waiting()] == [
        "e-000000000002.json",
        "e-000000000010.json",
    ]


def test_a_report_that_is_there_already_is_not_written_again(tmp_path: Path) -> None:
    spool = ReportSpool(tmp_path, keep=10)
    path = spool.put("e-1", b"first")
    before = path.stat().st_ino
    assert spool.put("e-1", b"first") == path
    assert path.stat().st_ino == before


def test_the_oldest_go_where_nobody_takes_them_and_are_counted(tmp_path: Path) -> None:
    lost: list[int] = []
    spool = ReportSpool(tmp_path, keep=3, dropped=lost.append)
    for number in range(5):
        spool.put(f"e-{number}", b"x")
    assert [path.name for path in spool.waiting()] == ["e-2.json", "e-3.json", "e-4.json"]
    assert lost == [1, 1]


class FullDisk(FileOps):
    """A disk that takes so many writes."""

    def __init__(self, writes: int) -> None:
        self.writes = writes

    def fsync(self, fd: int) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().fsync(fd)


def test_a_full_disk_leaves_nothing_half_written_and_the_next_report_is_tried(tmp_path: Path) -> None:
    disk = FullDisk(2)
    spool = ReportSpool(tmp_path, keep=10, files=disk)
    spool.put("e-1", b"one")
    with pytest.raises(ReportSpoolError, match="No space left") as caught:
        spool.put("e-2", b"two")
    assert "reports.spool.directory" in caught.value.hint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["e-1.json"]
    disk.writes = 2
    spool.put("e-3", b"three")
    assert [path.read_bytes() for path in spool.waiting()] == [b"one", b"three"]


def test_a_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    spool = ReportSpool(tmp_path / "spool", keep=10)
    (tmp_path / "spool").mkdir()
    (tmp_path / "spool" / "e-1.partial").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ReportSpoolError):
        spool.put("e-1", b"one")
    assert not (tmp_path / "elsewhere").exists()
