"""Settings through unit properties: a scripted manager in front of a scripted kernel, and what each of them may do wrong."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet
from agent.node.cgroup import Hierarchy, detect
from agent.node.cgroup_errors import NotEffectiveError
from agent.node.exec_cgroups import ExecCgroups
from agent.node.exec_units import ExecUnits
from agent.node.systemd_bus import SystemdBus, SystemdError
from agent.node.tasks import Process, TaskError
from agent.node.unit_writer import UnitWriter
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup
from agent.policy.cgroup_settings import Settings
from tests.node.scripted_cgroup2 import ScriptedV2
from tests.node.scripted_manager import Answer, RefusalError, ScriptedManager

QOS = PurePosixPath("kubepods.slice/kubepods-burstable.slice")
PLAIN = PurePosixPath("kubepods/burstable")
NARROW = Settings(cpus=CPUSet.parse("0-2"))
MAIN = ContainerCgroup("u-1", "main")


class Corner:
    """A manager that does to the kernel what it is asked. lost: properties it takes and forgets. refuses: every call."""

    def __init__(self, root: Path) -> None:
        self.kernel = ScriptedV2(root / "cgroup")
        self.hierarchy: Hierarchy = detect(self.kernel.root, self.kernel)
        self.manager = ScriptedManager(root, act=self.act)
        self.bus = SystemdBus(root)
        self.writer = UnitWriter(self.hierarchy, self.bus)
        self.exec = ExecCgroups(self.hierarchy, units=ExecUnits(self.hierarchy, self.bus, self.writer))
        self.lost: set[str] = set()
        self.refuses = ""

    def act(self, member: str, body: tuple[Any, ...]) -> Answer:
        if self.refuses:
            raise RefusalError("org.freedesktop.systemd1.NoSuchUnit", self.refuses)
        match member:
            case "SetUnitProperties":
                self.tell(self.group(body[0]), dict(body[2]))
            case "StartTransientUnit":
                self.start(body[0], dict(body[2]))
                return "o", ("/job",)
            case "StopUnit":
                self.hierarchy.remove(self.group(body[0]))
                return "o", ("/job",)
        return "", ()

    def start(self, unit: str, said: dict[str, Any]) -> None:
        inside = self.group(said["Slice"][1]) if "Slice" in said else PurePosixPath("pinfold.slice")
        if self.hierarchy.exists(inside / unit):
            raise RefusalError("org.freedesktop.systemd1.UnitExists", "was already loaded")
        self.hierarchy.create(inside / unit)
        self.tell(inside / unit, said)
        for pid in said.get("PIDs", ("au", ()))[1]:
            self.kernel.run(inside / unit, pid)

    def tell(self, group: PurePosixPath, said: dict[str, Any]) -> None:
        for name, file in (("AllowedCPUs", "cpuset.cpus"), ("AllowedMemoryNodes", "cpuset.mems")):
            if name in said and name not in self.lost:
                self.kernel.write(self.kernel.root / group / file, str(CPUSet(int.from_bytes(said[name][1], "little"))))
        if "CPUQuotaPerSecUSec" in said:
            self.kernel.write(self.kernel.root / group / "cpu.max", f"{said['CPUQuotaPerSecUSec'][1] // 10} 100000")

    def group(self, unit: str) -> PurePosixPath:
        (found,) = self.kernel.root.rglob(unit.replace("\\", "[\\]"))
        return PurePosixPath(found.relative_to(self.kernel.root))

    @property
    def asked(self) -> list[str]:
        return [member for member, _ in self.manager.calls]

    def says(self, group: PurePosixPath, name: str = "cpuset.cpus") -> str:
        return self.kernel.read(self.kernel.root / group / name)


@pytest.fixture
def corner(tmp_path: Path) -> Iterator[Corner]:
    made = Corner(tmp_path)
    for group in (QOS, PLAIN):
        made.hierarchy.create(group)
    with made.manager.listening():
        yield made


def test_a_slice_is_told_through_systemd_and_only_through_systemd(corner: Corner) -> None:
    corner.writer.write(QOS, NARROW)
    assert (corner.asked, corner.says(QOS)) == (["SetUnitProperties"], "0-2")
    assert [name for name, _ in corner.kernel.writes if "kubepods-burstable.slice/cpuset" in name] == [
        f"{QOS}/cpuset.cpus"
    ]
    assert corner.writer.problems() == ()


def test_a_cgroup_that_is_no_unit_is_written_directly(corner: Corner) -> None:
    corner.writer.write(PLAIN, NARROW)
    corner.writer.hold({PLAIN: NARROW})
    assert (corner.asked, corner.says(PLAIN)) == ([], "0-2")


def test_what_systemd_refuses_is_written_directly_and_told(corner: Corner) -> None:
    corner.refuses = "no such unit here"
    corner.writer.write(QOS, NARROW)
    assert corner.says(QOS) == "0-2"
    (problem,) = corner.writer.problems()
    assert problem.startswith("1 cgroups are written past systemd")
    assert "kubepods-burstable.slice: systemd refused to SetUnitProperties: no such unit here" in problem


def test_what_systemd_takes_and_forgets_is_written_directly_and_told(corner: Corner) -> None:
    corner.lost = {"AllowedCPUs"}
    corner.writer.write(QOS, Settings(cpus=CPUSet.parse("0-2"), mems=1))
    assert (corner.says(QOS), corner.says(QOS, "cpuset.mems")) == ("0-2", "0")
    assert "systemd took AllowedCPUs, and the cgroup does not say so" in corner.writer.problems()[0]


def test_a_set_that_is_not_in_effect_is_the_parents_fault_not_systemds(corner: Corner) -> None:
    corner.kernel.write(corner.kernel.root / QOS.parent / "cpuset.cpus", "4-7")
    with pytest.raises(NotEffectiveError):
        corner.writer.write(QOS, Settings(cpus=CPUSet.parse("3-4")))
    assert corner.says(QOS) == "3-4"
    assert corner.writer.problems() == ()


def test_a_quota_finer_than_a_percent_is_rounded_for_systemd_and_exact_in_the_file(corner: Corner) -> None:
    corner.writer.write(QOS, Settings(quota_us=12_500))
    assert corner.says(QOS, "cpu.max") == "12500 100000"
    corner.writer.hold({QOS: Settings(quota_us=12_500)})
    assert corner.asked == ["SetUnitProperties"], "told again, systemd would round the file"
    assert corner.writer.problems() == ()


def test_a_quota_that_is_right_and_finer_than_a_percent_is_left_to_the_file(corner: Corner) -> None:
    corner.kernel.write(corner.kernel.root / QOS / "cpu.max", "12500 100000")
    corner.writer.hold({QOS: Settings(cpus=CPUSet.parse("0-2"), quota_us=12_500)})
    assert corner.manager.calls == [("SetUnitProperties", (QOS.name, True, [("AllowedCPUs", ("ay", b"\x07"))]))]
    assert corner.says(QOS, "cpu.max") == "12500 100000"


def test_what_is_right_already_is_told_once(corner: Corner) -> None:
    for _ in range(3):
        corner.writer.hold({QOS: NARROW})
    assert corner.asked == ["SetUnitProperties"]


def test_what_could_not_be_told_is_tried_at_every_look_until_it_can(corner: Corner) -> None:
    corner.refuses = "not now"
    corner.writer.write(QOS, NARROW)
    corner.writer.hold({QOS: NARROW})
    assert corner.writer.problems()
    corner.refuses = ""
    corner.writer.hold({QOS: NARROW})
    assert (corner.asked, corner.writer.problems()) == (["SetUnitProperties"] * 3, ())


def test_a_problem_ends_with_its_cgroup(corner: Corner) -> None:
    corner.refuses = "not now"
    corner.writer.write(QOS, NARROW)
    corner.writer.hold({QOS: NARROW})
    corner.writer.hold({})
    assert corner.writer.problems() == ()


# --- pinfold exec ---


@pytest.fixture
def process() -> Iterator[Process]:
    with subprocess.Popen(["sleep", "600"]) as child:
        yield Process.of(child.pid)
        child.kill()


def scope(corner: Corner) -> PurePosixPath:
    return PurePosixPath(r"pinfold.slice/pinfold-podu\x2d1.slice/pinfold-u-1.main.scope")


def test_exec_starts_a_scope_in_its_pods_slice_around_the_process(corner: Corner, process: Process) -> None:
    directories = corner.exec.prepare(MAIN, Settings(cpus=CPUSet.parse("0-3")), NARROW, process)
    assert directories == (corner.kernel.root / scope(corner),)
    assert corner.exec.processes(MAIN) == (process.pid,)
    assert (corner.says(scope(corner)), corner.says(scope(corner).parent)) == ("0-2", "0-3")
    assert corner.asked.count("StartTransientUnit") == 2


def test_the_units_are_found_again_by_another_agent_whatever_its_configuration(
    corner: Corner, process: Process
) -> None:
    corner.exec.prepare(MAIN, Settings(), NARROW, process)
    (corner.kernel.root / "pinfold.slice/pinfold-admins.slice").mkdir()
    expected = {PodCgroup("u-1"): scope(corner).parent, MAIN: scope(corner)}
    for again in (ExecCgroups(corner.hierarchy), corner.exec):
        assert again.find() == expected
        assert again.running("u-1") == ("main",)
        assert again.alive(MAIN)


def test_a_second_command_joins_the_scope_that_is_there(corner: Corner, process: Process) -> None:
    for _ in range(2):
        corner.exec.prepare(MAIN, Settings(), NARROW, process)
    assert corner.asked.count("StartTransientUnit") == 2, "slice and scope, once"


def test_a_pod_stays_in_plain_cgroups_where_it_began(corner: Corner, process: Process) -> None:
    before = ExecCgroups(corner.hierarchy)
    before.open()
    before.prepare(MAIN, Settings(), NARROW)
    corner.exec.prepare(ContainerCgroup("u-1", "other"), Settings(), NARROW, process)
    assert set(corner.exec.find().values()) == {PurePosixPath(f"pinfold/u-1{end}") for end in ("", "/main", "/other")}
    assert corner.exec.remove(PodCgroup("u-1"))
    assert corner.asked == []


def test_the_slice_is_stopped_only_when_nothing_runs_in_it(corner: Corner, process: Process) -> None:
    corner.exec.prepare(MAIN, Settings(), NARROW, process)
    assert not corner.exec.remove(PodCgroup("u-1"))
    assert not corner.exec.remove(MAIN)
    assert "StopUnit" not in corner.asked
    corner.kernel.end(process.pid)
    assert corner.exec.remove(PodCgroup("u-1"))
    assert not corner.hierarchy.exists(scope(corner).parent)


def test_a_process_of_another_pid_namespace_or_time_is_not_moved(corner: Corner) -> None:
    other = Process(os.getpid(), Process.of(os.getpid()).started + 1)
    with pytest.raises(TaskError, match="is another than the one that asks"):
        corner.exec.prepare(MAIN, Settings(), NARROW, other)
    with pytest.raises(BadInputError, match="process must be named"):
        corner.exec.prepare(MAIN, Settings(), NARROW, None)
    assert corner.asked == []


def test_a_manager_that_refuses_a_scope_is_an_error_and_nothing_is_made(corner: Corner, process: Process) -> None:
    corner.refuses = "not today"
    with pytest.raises(SystemdError, match="not today"):
        corner.exec.prepare(MAIN, Settings(), NARROW, process)
    assert corner.exec.find() == {}
