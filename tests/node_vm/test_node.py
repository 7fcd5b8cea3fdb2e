"""A whole node: the installed unit on cgroup v2 with systemd, two sockets and NUMA, through offline CPUs, kills and a reboot.

Two boots for all: `inside.py` does everything in there and writes down what it saw, each test here judges one part of that:
    .venv/bin/python -m pytest tests/node_vm --long
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.model.cpuset import CPUSet
from release.bundle import build_wheel
from tests.node_vm.image import base_image
from tests.node_vm.machine import Machine
from tests.systemd.cache import REPOSITORY, dependency_wheels

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]  # not `real`: .ci/run has a step of its own for it

Seen = Mapping[str, Any]
TOOLS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "mke2fs": "e2fsprogs",
    "debugfs": "e2fsprogs",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What was seen, by step; the second boot's steps under `reboot`."""
    absent = "; ".join(f"{tool} (apt-get install {name})" for tool, name in TOOLS.items() if shutil.which(tool) is None)
    needs = absent or ("" if os.geteuid() == 0 else "root, to make a root file system")
    if needs:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"needs {needs}")
    image, wheels = base_image(), dependency_wheels()
    directory = tmp_path_factory.mktemp("vm")
    job = directory / "job"
    (job / "out").mkdir(parents=True)
    wheel = build_wheel(directory)
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", f"--find-links={wheels}"]
    only = ["--python-version=3.11", "--only-binary=:all:", f"--target={job / 'site'}", str(wheel)]
    subprocess.run([*install, *only], check=True)
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(job / "site")], check=False)
    shutil.copytree(REPOSITORY / "systemd", job / "systemd")
    shutil.copy(Path(__file__).with_name("inside.py"), job)
    (job / "run.sh").write_text("export PYTHONDONTWRITEBYTECODE=1\nexec python3 -u /job/inside.py\n")
    machine = Machine(image, job, directory)
    seen: dict[str, Any] = {}
    for boot, name in enumerate(("first.json", "second.json")):
        machine.boot()
        found = machine.out() / name
        assert found.exists(), f"boot {boot + 1}: {(machine.out() / 'log').read_text()[-4000:]}"
        steps = json.loads(found.read_text())
        seen.update(steps if boot == 0 else {"reboot": steps})
    took = {name: facts.get("took") for name, facts in seen.items()}
    print(json.dumps(took))
    return seen


def step(everything: Seen, name: str) -> Seen:
    """What one step saw; fails with its own traceback where it could not be done."""
    seen: Seen = everything[name]
    lines = everything.get("journal", {}).get("lines", ())[-40:]
    assert "error" not in seen, "\n".join((seen["error"], *lines))
    return seen


def cpus(text: str) -> CPUSet:
    return CPUSet.parse(text)


def test_the_machine_is_read_as_it_was_built(everything: Seen) -> None:
    topology = step(everything, "machine")["topology"]
    counts = topology["counts"]
    assert [counts[name] for name in ("online_cpus", "packages", "cores", "numa_nodes")] == [8, 2, 4, 2]


def test_installing_reports_nothing_wrong_and_the_node_is_fit(everything: Seen) -> None:
    assert [each for each in step(everything, "install")["ran"] if each["code"] != 0] == []


def test_the_unit_is_active_when_the_agent_is_ready(everything: Seen) -> None:
    seen = step(everything, "start")
    assert (seen["code"], seen["ActiveState"]) == (0, "active")
    assert seen["StatusText"].startswith("ready: ")
    assert seen["status"]["ready"]


def test_exclusive_and_shared_containers_are_where_the_kernel_says(everything: Seen) -> None:
    seen = step(everything, "exclusive")
    own, shared = seen["db"]["container"], seen["web"]["container"]
    assert len(cpus(own["cpuset.cpus.effective"])) == 2
    assert cpus(own["affinity"]) == cpus(own["cpuset.cpus.effective"])
    assert not cpus(own["affinity"]) & cpus(shared["affinity"])
    assert cpus(own["affinity"]) | cpus(shared["affinity"]) == cpus("0-7")
    assert own["cpu.max"].split()[0] == "max"
    assert seen["db"]["pod"]["cpu.max"].split()[0] == "max"
    assert shared["cpu.max"].split()[0] == "50000"


def test_a_bubble_confines_its_pod(everything: Seen) -> None:
    seen = step(everything, "bubble")
    bubble = cpus(seen["status"]["cpus"])
    assert len(bubble) == 2
    assert cpus(seen["own"]["affinity"]) | cpus(seen["rest"]["affinity"]) == bubble
    assert not cpus(seen["own"]["affinity"]) & cpus(seen["rest"]["affinity"])
    assert cpus(seen["pod"]["cpuset.cpus.effective"]) == bubble
    assert seen["pod"]["cpu.max"].split()[0] == seen["own"]["cpu.max"].split()[0] == "max"


def test_what_others_write_to_the_cgroups_is_undone(everything: Seen) -> None:
    seen = step(everything, "drift")
    assert seen["after"] == seen["before"]


def assert_kept(reloaded: Seen) -> None:
    assert reloaded["code"] == 0
    assert reloaded["control"] == "", "a set that was written past systemd is lost"
    assert reloaded["before"] == reloaded["at once"] == reloaded["later"]
    assert reloaded["repairs"] == []


def test_a_daemon_reload_takes_nothing_from_containers_and_nothing_has_to_be_repaired(everything: Seen) -> None:
    assert_kept(step(everything, "daemon_reload"))


def test_a_container_of_exec_is_a_delegated_scope_in_the_slice_of_its_pod(everything: Seen) -> None:
    seen, own = step(everything, "scope"), step(everything, "exclusive")["db"]["container"]
    unit = seen["unit"]
    assert unit["ControlGroup"].startswith("/pinfold.slice/pinfold-pod")
    assert unit["ControlGroup"].endswith(".main.scope")
    assert (unit["ActiveState"], unit["Delegate"], unit["MemoryMax"]) == ("active", "yes", str(64 << 20))
    assert cpus(unit["AllowedCPUs"].replace(" ", ",")) == cpus(own["cpuset.cpus"])
    assert len(seen["pids"]) == 1, "the command, and nothing beside it"


def test_commands_can_follow_each_other_in_a_container_and_leave_no_unit(everything: Seen) -> None:
    seen = step(everything, "scope")
    said = f"0::/{seen['group']}\nCpus_allowed_list:\t{seen['shared']}\n"
    assert seen["ran"] == [{"code": 0, "said": said}] * 5
    assert seen["left"] == 0


def test_what_exec_has_started_outlives_a_stop_of_the_agent_with_its_grant(everything: Seen) -> None:
    seen = step(everything, "restart")
    assert seen["codes"] == [0, 0]
    assert seen["before"] == seen["down"] == seen["after"]
    assert seen["pods"]
    assert seen["repairs"] == []


def test_a_reload_is_done_when_systemctl_returns(everything: Seen) -> None:
    seen = step(everything, "reload")
    assert (seen["code"], seen["ActiveState"]) == (0, "active")


def test_services_of_the_host_leave_for_the_reserved_cpus_and_come_back(everything: Seen) -> None:
    seen = step(everything, "host_services")
    assert [each for each in seen["ran"] if each["code"] != 0] == []
    narrowed = {name: cpus(text) for name, text in seen["apply"].items()}
    own = cpus(step(everything, "exclusive")["db"]["container"]["affinity"])
    assert narrowed.pop("db") == own
    assert set(narrowed) == {"journald", "pid 1", "system.slice", "init.scope"}
    assert set(narrowed.values()) == {cpus("0-1")}
    assert cpus(seen["remove"].pop("db")) == own
    assert {cpus(text) for text in seen["remove"].values()} == {cpus("0-7")}


def test_an_exclusive_cpu_goes_offline_and_comes_back(everything: Seen) -> None:
    seen = step(everything, "offline")
    assert seen["cpu"] in seen["marked"]
    assert cpus(seen["during"]["affinity"]) == cpus(seen["before"]["affinity"]) - cpus(seen["cpu"])
    assert not cpus(seen["during"]["online"]) & cpus(seen["cpu"])
    assert seen["after"] == seen["before"]


def test_a_shared_cpu_goes_offline_and_comes_back(everything: Seen) -> None:
    seen = step(everything, "offline_shared")
    assert cpus(seen["during"]) == cpus(seen["before"]) - cpus(seen["cpu"])


@pytest.mark.parametrize("name", ["killed", "watchdog"])
def test_the_agent_is_started_again_and_moves_nothing(everything: Seen, name: str) -> None:
    seen = step(everything, name)
    assert seen["before"] == seen["after"]
    assert seen["pods"]
    assert (seen["ActiveState"], int(seen["NRestarts"]) > 0) == ("active", True)


def test_beside_a_kubelet_with_the_systemd_driver(everything: Seen) -> None:
    seen = step(everything, "beside")
    assert seen["code"] == 0
    assert len(cpus(seen["cpus"])) == 2
    assert cpus(seen["container"]["affinity"]) == cpus(seen["cpus"])
    assert seen["container"]["cpu.max"].split()[0] == "max"
    for qos in ("besteffort", "burstable"):
        assert cpus(seen[qos]["cpuset.cpus.effective"]) == cpus(seen["shared"])
    assert not cpus(seen["shared"]) & cpus(seen["cpus"])
    kept = [cpus(text.replace(" ", ",")) for text in seen["kept"].values()]
    assert kept == [cpus(seen["cpus"]), *[cpus(seen["shared"])] * 2, cpus(seen["pod"]["cpuset.cpus"])]
    assert_kept(seen["reloaded"])
    assert seen["problems"] == []


def test_a_reboot_keeps_the_state(everything: Seen) -> None:
    before, after = step(everything, "before_reboot"), step(everything["reboot"], "after_reboot")
    held = [[(pod["uid"], pod["name"], pod["containers"]) for pod in each["pods"]] for each in (before, after)]
    assert held[0] == held[1]
    assert before["epoch"] == after["epoch"]
    assert (after["ActiveState"], after["NRestarts"]) == ("active", "0")
    assert cpus(after["db"]["affinity"]) == cpus(step(everything, "exclusive")["db"]["container"]["affinity"])


def test_the_journal_is_for_people(everything: Seen) -> None:
    lines = step(everything, "journal")["lines"]
    assert any(line.startswith("admitted pod=default/db ") for line in lines)
    assert any(line.startswith("hotplug events=") for line in lines)
    assert not any("Traceback" in line for line in lines)
