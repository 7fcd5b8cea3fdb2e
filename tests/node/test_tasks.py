"""What /proc says of processes: this one for real, odd ones from small trees."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.model.cpuset import CPUSet
from agent.node.tasks import Task, TaskError, affinity, foreign_tasks, read_task, tasks

PROC = Path("/proc")


def process(proc: Path, pid: int, *, name: str = "sleep", allowed: str = "0-3", flags: int = 0) -> None:
    fields = ["S", *(["0"] * 49)]
    fields[9 - 3] = str(flags)
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (directory / "status").write_text(f"Name:\t{name}\nCpus_allowed_list:\t{allowed}\nMems_allowed_list:\t0-1\n")


def test_this_process_is_read_as_the_kernel_has_it() -> None:
    me = read_task(PROC, os.getpid())
    assert set(me.allowed) == os.sched_getaffinity(0)
    assert me.allowed == affinity(os.getpid())
    assert not me.kernel
    assert os.getpid() in {task.pid for task in tasks(PROC)}


def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    process(tmp_path, 7, name="a) (b c", allowed="0,2")
    assert read_task(tmp_path, 7) == Task(7, "a) (b c", CPUSet.parse("0,2"), 0b11, kernel=False)


def test_foreign_tasks_are_those_that_may_run_where_they_own_nothing(tmp_path: Path) -> None:
    process(tmp_path, 1, name="init", allowed="0-3")
    process(tmp_path, 2, name="kworker/1:0", allowed="1", flags=0x00200000)
    process(tmp_path, 30, name="owner", allowed="1-2")
    process(tmp_path, 31, name="elsewhere", allowed="0,3")
    (tmp_path / "self").mkdir()
    (tmp_path / "99").mkdir()  # ended between the listing and the look
    assert [task.name for task in foreign_tasks(tmp_path, CPUSet.parse("1-2"), {30})] == ["init"]


def test_a_process_that_is_not_there_or_not_readable_is_named(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="4194304"):
        affinity(4_194_304)
    with pytest.raises(TaskError, match="/5"):
        read_task(tmp_path, 5)
    process(tmp_path, 6)
    (tmp_path / "6" / "status").write_text("Name:\tx\n")
    with pytest.raises(TaskError, match="unreadable"):
        read_task(tmp_path, 6)
