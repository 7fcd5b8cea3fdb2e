"""`pinfold topology` from the command line: the three outputs, captured machines, and what it says of a wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from agent.cli import main
from tests.node.sysfs_machines import EXAMPLE_ARCHIVE, FIXTURES


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of `pinfold topology ARGS`."""
    with pytest.raises(SystemExit) as exit_info:
        main(["topology", *args])
    output = capsys.readouterr()
    assert isinstance(exit_info.value.code, int)
    return exit_info.value.code, output.out, output.err


def test_this_machine_is_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys)
    assert status == 0
    assert "CPUs 0" in out


def test_text_is_the_golden_file(capsys: pytest.CaptureFixture[str]) -> None:
    machine = FIXTURES / "two-socket-smt"
    assert run(capsys, "--sysroot", str(machine)) == (0, (machine / "topology.golden").read_text(encoding="utf-8"), "")


def test_json_of_a_directory_and_of_its_archive_are_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    from_directory = run(capsys, "--sysroot", str(FIXTURES / "two-socket-smt"), "-o", "json")
    from_archive = run(capsys, "--sysroot", str(EXAMPLE_ARCHIVE), "-o", "json")
    assert from_directory == from_archive
    assert json.loads(from_archive[1])["counts"]["cores"] == 16


def test_svg_is_one_well_formed_picture(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "--sysroot", str(EXAMPLE_ARCHIVE), "--output", "svg")
    assert status == 0
    assert ElementTree.fromstring(out).tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        pytest.param("missing", 2, "does not exist", id="no such path"),
        pytest.param(
            "empty", 3, "empty/sys/devices/system/cpu: shows no online CPU", id="a directory that is no sysfs"
        ),
        pytest.param("text", 2, "text: cannot be unpacked", id="a file that is no archive"),
        pytest.param("cut", 3, "cut/sys/devices/system/cpu/online: cut short", id="a truncated tree"),
        pytest.param("unreadable", 3, "cpu0/topology/core_id: Is a directory", id="a file that cannot be read"),
    ],
)
def test_a_wrong_sysroot_is_named_with_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, status: int, said: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("not an archive")
    cpu = tmp_path / "cut/sys/devices/system/cpu"
    (cpu / "cpu1").mkdir(parents=True)
    (cpu / "cpu1/online").write_text("1\n")
    (cpu / "online").write_text("0")
    (tmp_path / "unreadable/sys/devices/system/cpu/cpu0/topology/core_id").mkdir(parents=True)
    code, out, err = run(capsys, "--sysroot", str(tmp_path / name))
    assert (code, out) == (status, "")
    assert said in err


def test_an_error_comes_with_a_hint(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert (
        "hint:  give --sysroot (for an agent: node.root) the directory (or archive) that holds sys/ and proc/"
        in run(capsys, "--sysroot", str(tmp_path))[2]
    )
