"""`pinfold host-services` as an admin runs it; the files are read by a real systemd where there is one."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from agent.commands.host_services import command
from agent.config import ConfigError
from agent.formats.host_services import FILE_NAME, HOST_UNITS, MARK
from agent.model.cpuset import CPUSet
from agent.node.drop_in_files import DropInError
from tests.agents import TWO_SOCKETS, pod_text, running

V2 = {
    f"system/{unit}.d/{FILE_NAME}": f"{MARK}\n[{part}]\nAllowedCPUs=0,16\n"
    for unit, part in (
        ("system.slice", "Slice"),
        ("user.slice", "Slice"),
        ("machine.slice", "Slice"),
        ("init.scope", "Scope"),
    )
}
V1 = {
    f"system.conf.d/{FILE_NAME}": f"{MARK}\n[Manager]\nCPUAffinity=0,16\n",
    **{
        f"system/{unit}.service.d/{FILE_NAME}": f"{MARK}\n[Service]\nCPUAffinity=0-8191\n"
        for unit in ("containerd", "crio", "docker")
    },
}


class Host:
    """A machine of two sockets, its cgroup version, and its /etc/systemd."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.systemd = directory / "systemd"
        self.values: dict[str, Any] = {
            "node": {"root": str(TWO_SOCKETS)},
            "enforcement": {"cgroupRoot": str(directory / "cgroup")},
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0,16",
        }
        self.boot(2)

    def boot(self, version: int) -> None:
        mount = self.directory / "cgroup"
        shutil.rmtree(mount, ignore_errors=True)
        mark = mount / ("cgroup.controllers" if version == 2 else "cpuset/cpuset.cpus")
        mark.parent.mkdir(parents=True)
        mark.write_text("cpuset cpu memory\n" if version == 2 else "0-31\n")

    def run(self, *options: str) -> Result:
        path = self.directory / "config.yaml"
        path.write_text(yaml.safe_dump(self.values))
        words = ["--config", str(path), "--directory", str(self.systemd), *options]
        return CliRunner().invoke(command, words, standalone_mode=False)

    def files(self) -> Mapping[str, str]:
        found = (path for path in self.systemd.rglob("*") if path.is_file())
        return {str(path.relative_to(self.systemd)): path.read_text() for path in found}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.mark.parametrize(("version", "files"), [(2, V2), (1, V1)])
def test_apply_writes_what_plan_shows_once_and_remove_leaves_nothing(
    host: Host, version: int, files: Mapping[str, str]
) -> None:
    host.boot(version)
    planned = host.run("-o", "json")
    assert planned.exception is None, planned.output
    assert not host.files()
    shown = json.loads(planned.output)
    told = {str(Path(each["path"]).relative_to(host.systemd)): each["content"] for each in shown["files"]}
    assert (shown["applied"], told) == (False, files)
    assert "systemctl daemon-re" in host.run("--apply").output
    assert host.files() == files
    before = {path: path.stat().st_mtime_ns for path in host.systemd.rglob("*.conf")}
    assert "nothing to change" in host.run("--apply").output
    assert before == {path: path.stat().st_mtime_ns for path in host.systemd.rglob("*.conf")}
    assert f"{len(files)} files changed" in host.run("--remove").output
    assert not host.files()
    assert not list((host.systemd / "system").iterdir())
    assert "nothing to change" in host.run("--remove").output


def test_after_a_removal_the_units_that_stay_narrow_are_named_with_what_widens_them(host: Host) -> None:
    group = host.directory / "cgroup" / "system.slice"
    group.mkdir()
    (group / "cpuset.cpus").write_text("0,16\n")
    applied = json.loads(host.run("--apply", "-o", "json").output)
    assert applied["next"] == ["systemctl daemon-reload"]
    widen = f"echo 0-31 > {group}/cpuset.cpus"
    removed = json.loads(host.run("--remove", "-o", "json").output)
    assert removed["next"] == ["systemctl daemon-reload", widen]
    host.run("--apply")
    assert f"  {widen}\n" in host.run("--remove").output
    assert json.loads(host.run("--remove", "-o", "json").output)["next"] == []


def test_other_reserved_cpus_replace_the_files_and_another_cgroup_version_takes_the_old_ones_away(host: Host) -> None:
    host.run("--apply")
    host.values["reservedSystemCPUs"] = "0-1,16-17"
    assert "replace" in host.run().output
    host.run("--apply")
    assert {text.splitlines()[-1] for text in host.files().values()} == {"AllowedCPUs=0-1,16-17"}
    host.values["reservedSystemCPUs"] = "0,16"
    host.boot(1)
    host.run("--apply")
    assert host.files() == V1


def test_files_of_others_are_neither_replaced_nor_removed_and_stay_beside_ours(host: Host) -> None:
    theirs = host.systemd / "system" / "user.slice.d" / FILE_NAME
    theirs.parent.mkdir(parents=True)
    theirs.write_text("[Slice]\nCPUWeight=50\n")
    for mode in ("--plan", "--apply", "--remove"):
        result = host.run(mode)
        assert isinstance(result.exception, DropInError), result.output
        assert f"{theirs}: not written by pinfold" in str(result.exception)
    assert host.files() == {f"system/user.slice.d/{FILE_NAME}": "[Slice]\nCPUWeight=50\n"}
    theirs.rename(theirs.with_name("10-weight.conf"))
    host.run("--apply")
    host.run("--remove")
    assert host.files() == {"system/user.slice.d/10-weight.conf": "[Slice]\nCPUWeight=50\n"}


def test_a_link_at_the_place_of_a_drop_in_is_not_followed(host: Host, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text(f"{MARK}\n")
    link = host.systemd / "system" / "user.slice.d" / FILE_NAME
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    result = host.run("--apply")
    assert isinstance(result.exception, DropInError)
    assert elsewhere.read_text() == f"{MARK}\n"


def test_without_reserved_cpus_there_is_nothing_to_write(host: Host) -> None:
    host.values |= {"cpuManagerPolicy": "none", "reservedSystemCPUs": ""}
    result = host.run("--apply")
    assert isinstance(result.exception, ConfigError)
    assert "set reservedSystemCPUs" in result.exception.hint
    assert not host.files()


def test_cpus_that_an_amount_has_chosen_are_used_with_a_warning_how_to_fix_them(host: Host) -> None:
    host.values |= {"reservedSystemCPUs": "", "systemReserved": {"cpu": "2"}}
    result = host.run("--apply", "-o", "json")
    (warning,) = json.loads(result.output)["warnings"]
    assert "reservedSystemCPUs: '0,16'" in warning
    assert host.files() == V2


@pytest.mark.parametrize(
    ("key", "group"),
    [("parent", "system.slice/pinfold.service/pods"), ("kubeletCgroupRoot", "/user.slice/mine")],
)
def test_containers_inside_a_host_unit_are_not_narrowed_with_it(host: Host, key: str, group: str) -> None:
    host.values["enforcement"][key] = group
    result = host.run("--apply")
    assert isinstance(result.exception, ConfigError)
    assert f"enforcement.{key}: {group.lstrip('/')} is inside {group.strip('/').split('/')[0]}" in str(result.exception)
    assert not host.files()


def test_shared_adds_the_pool_that_the_running_agent_shares_now(host: Host, tmp_path: Path) -> None:
    with running(tmp_path / "agent", node={"root": str(TWO_SOCKETS)}, reservedSystemCPUs="0,16") as agent:
        agent.manifest("db", pod_text("db", "4"))
        agent.until_pod("db")
        host.values["control"] = {"socket": str(agent.directory / "control.sock")}
        exclusive = CPUSet.parse(agent.cpus()["db"])
        host.run("--shared", "--apply")
    assert len(exclusive) == 4
    everything = CPUSet.parse("0-31")
    assert {text.splitlines()[-1] for text in host.files().values()} == {f"AllowedCPUs={everything - exclusive}"}


@pytest.mark.parametrize("version", [1, 2])
def test_systemd_itself_understands_the_files(host: Host, version: int) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    host.boot(version)
    host.run("--apply")
    units = list(HOST_UNITS) if version == 2 else ["containerd.service"]
    place = host.systemd / "system"
    if version == 1:
        (place / "containerd.service").write_text("[Service]\nExecStart=/bin/true\n")
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{place}:"}

    def verify() -> str:
        words = [tool, "verify", "--recursive-errors=no", *units]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60, check=False)
        return "\n".join(line for line in done.stderr.splitlines() if FILE_NAME in line)

    assert verify() == ""
    broken = place / f"{units[0]}.d" / FILE_NAME
    broken.write_text(broken.read_text().replace("CPUs=", "Wrong=").replace("CPUAffinity=", "Wrong="))
    assert "Unknown key" in verify()  # it did read them
