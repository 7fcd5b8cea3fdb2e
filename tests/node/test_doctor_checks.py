"""What `pinfold doctor` finds, on trees that have one thing wrong each."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import pytest

from agent.model.cpuset import CPUSet
from agent.node import doctor_checks as doctor
from agent.node.doctor_checks import Finding, Level
from tests.node.scripted_cgroup2 import ScriptedV2
from tests.policy.cpu_machines import regular

OK, WARNING, FAILURE = Level.OK, Level.WARNING, Level.FAILURE


def put(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def levels(findings: Iterable[Finding]) -> list[Level]:
    found = list(findings)
    assert all(each.hint for each in found if each.level is FAILURE), found
    return [each.level for each in found]


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("6.1.0-44-amd64", OK),
        ("5.4.0", OK),
        ("5.3.1", WARNING),
        ("4.17", FAILURE),
        ("3.10.0-1160.el7", FAILURE),
        ("?", WARNING),
    ],
)
def test_kernel(tmp_path: Path, version: str, level: Level) -> None:
    put(tmp_path, "proc/sys/kernel/osrelease", f"{version}\n")
    assert levels(doctor.kernel(tmp_path)) == [level]


def test_a_node_without_cpusets_is_not_fit(tmp_path: Path) -> None:
    (finding,) = doctor.cgroups(tmp_path, PurePosixPath("pinfold"))
    assert finding.level is FAILURE
    assert "cpuset" in finding.text


def test_a_hierarchy_with_everything_is_fit(tmp_path: Path) -> None:
    root = ScriptedV2(tmp_path / "cgroup").root
    assert levels(doctor.cgroups(root, PurePosixPath("pinfold"))) == [OK, OK]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_hierarchy_that_cannot_be_written(tmp_path: Path) -> None:
    root = ScriptedV2(tmp_path / "cgroup").root
    root.chmod(0o500)
    assert levels(doctor.cgroups(root, PurePosixPath("pinfold")))[-1] is FAILURE


def test_a_runtime_that_does_not_answer(tmp_path: Path) -> None:
    (finding,) = doctor.runtime(str(tmp_path / "none.sock"), tmp_path)
    assert finding.level is FAILURE
    assert "runtimeEndpoint" in finding.hint


def test_a_runtime_that_is_not_configured_is_named(tmp_path: Path) -> None:
    put(tmp_path, "run/containerd/containerd.sock", "")
    (finding,) = doctor.runtime("", tmp_path)
    assert (finding.level, finding.text) == (OK, "not configured; here is /run/containerd/containerd.sock")


def test_a_kubelet_that_pins(tmp_path: Path) -> None:
    assert levels(doctor.kubelet(tmp_path)) == [OK]
    put(tmp_path, "config.yaml", "cpuManagerPolicy: static\nmemoryManagerPolicy: Static\n")
    assert levels(doctor.kubelet(tmp_path)) == [FAILURE, FAILURE]


@pytest.mark.parametrize(
    ("name", "level"), [("irqbalance", WARNING), ("numad", FAILURE), ("tuned", WARNING), ("sshd", OK)]
)
def test_services_that_work_against_pins(tmp_path: Path, name: str, level: Level) -> None:
    put(tmp_path, "proc/17/comm", f"{name}\n")
    put(tmp_path, "proc/self/comm", "numad\n")  # not a process id
    assert levels(doctor.services(tmp_path)) == [level]


@pytest.mark.parametrize(
    ("reserved", "command_line", "expected"),
    [
        ("0,4", "", [OK]),
        ("0", "", [WARNING]),
        ("0,4", "quiet isolcpus=2-3", [WARNING, OK]),
        ("0,4", "isolcpus=nohz,domain,0,4 quiet", [OK]),
        ("0,4", "xisolcpus=2 isolcpus=", [OK]),
    ],
)
def test_reserved_cpus(reserved: str, command_line: str, expected: list[Level]) -> None:
    found = list(doctor.reserved_cpus(regular(8, smt=2), CPUSet.parse(reserved), command_line))
    assert levels(found) == expected
    if reserved == "0":
        assert found[0].hint == "reserve whole cores: 0,4"


def test_clock(tmp_path: Path) -> None:
    put(tmp_path, "state", "")
    now = (tmp_path / "state").stat().st_mtime
    source = "sys/devices/system/clocksource/clocksource0/current_clocksource"
    put(tmp_path, source, "tsc")
    assert levels(doctor.clock(tmp_path, now, [tmp_path / "state", tmp_path / "absent"])) == [OK]
    assert levels(doctor.clock(tmp_path, now - 3600, [tmp_path / "state"])) == [WARNING, OK]
    assert levels(doctor.clock(tmp_path, 0.0, [])) == [FAILURE]
    put(tmp_path, source, "hpet")
    assert levels(doctor.clock(tmp_path, now, [])) == [WARNING]


def test_directories_that_are_not_there_yet_are_judged_by_what_is_above(tmp_path: Path) -> None:
    (finding,) = doctor.directories({"state.directory": tmp_path / "a" / "b"})
    assert (finding.level, finding.text) == (OK, f"state.directory: {tmp_path}")


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, level in (("GOOD_FREE_BYTES", WARNING), ("MIN_FREE_BYTES", FAILURE)):
        monkeypatch.setattr(doctor, name, 1 << 70)
        assert levels(doctor.directories({"state.directory": tmp_path})) == [level]
