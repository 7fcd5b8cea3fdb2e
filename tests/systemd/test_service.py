"""The unit under a real systemd 252: installed as docs/install.md says, booted in a container, watched from inside.

One boot for all: `inside.py` does everything in there and writes down what it saw, each test here judges one part of that.
What a container cannot show: cgroup v2 and what Delegate= does there. Here the v1 controllers are the host's, shown read-only by
nspawn and made writable by `inside.py`, which runs as well in a virtual machine with v2.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from release.bundle import build_wheel
from tests.systemd.cache import REPOSITORY, dependency_wheels, root_file_system
from tests.systemd.container import boot
from tests.systemd.document import sections

# the first run on a machine makes a root file system
pytestmark = [pytest.mark.real, pytest.mark.timeout(1500)]

Seen = Mapping[str, Any]
EXPOSURE = 3.0  # below this; systemd calls up to 4 OK
# what `systemd-analyze security` finds open, and why; the unit says the same beside the line
OPEN = {
    "UserOrDynamicUser": "the cgroup files of pods are root's",
    "CapabilityBoundingSet_CAP_DAC_FOWNER_IPC_OWNER": "cgroup hierarchies have mode 0555 at the top",
    "ProtectControlGroups": "writing cgroups is what the agent is for",
    "SystemCallFilter_privileged": "chown, for podResources.group",
    "ProtectProc": "the process that holds a socket is named",
    "ProcSubset": "/proc/meminfo, the boot id",
    "PrivateUsers": "the group of the PodResources socket, and who connects",
    "PrivateNetwork": "metrics and health on the host's loopback",
    "IPAddressDeny": "a kubelet or an API server may be a source",
    "RestrictAddressFamilies_AF_UNIX": "PodResources, control, systemd",
    "RestrictAddressFamilies_AF_INET_INET6": "HTTP",
    "RestrictAddressFamilies_AF_NETLINK": "the C library",
    "Delegate": "controllers on cgroup v2",
    "UMask": "cgroups are for monitoring to read",
    "DeviceAllow": "what PrivateDevices=yes leaves: null, zero, random and the like",
    "RootDirectoryOrRootImage": "the agent is a Python of the host's",
}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """What was seen, by step."""
    _need_means()
    root, wheels = root_file_system(), dependency_wheels()
    directory = tmp_path_factory.mktemp("systemd")
    job, out, dist = (directory / name for name in ("job", "out", "dist"))
    for made in (job, out, dist):
        made.mkdir()
    build_wheel(dist)
    for name in ("inside.py", "units.py"):
        shutil.copy(Path(__file__).with_name(name), job)
    group = f"pinfold-systemd-{os.getpid()}"
    told = {"parent": group, "sections": sections(REPOSITORY / "docs" / "install.md")}
    (job / "install.json").write_text(json.dumps(told))
    boot(root, job, out, {"/wheels": wheels, "/dist": dist}, group)
    seen: Seen = json.loads((out / "seen.json").read_text())
    print(json.dumps({step: facts["took"] for step, facts in seen.items()}))
    return seen


def _need_means() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to boot a container")
    for tool, package in (("systemd-nspawn", "systemd-container"), ("mmdebstrap", "mmdebstrap")):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}: apt-get install {package}")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU: nothing can be exclusive here")


def step(everything: Seen, name: str) -> Seen:
    """What one step saw; fails with its own traceback where it could not be done."""
    seen: Seen = everything[name]
    assert "error" not in seen, f"{seen['error']}\n{json.dumps(seen.get('journal'), indent=1)}"
    return seen


@pytest.mark.parametrize(
    "name",
    [
        *("program", "unit_files", "configuration", "start", "first_pod", "exec", "client", "reload", "upgrade"),
        "uninstall",
    ],
)
def test_every_command_of_the_installation_document_works(everything: Seen, name: str) -> None:
    ran = step(everything, name)["ran"]
    assert ran
    assert [each for each in ran if each["code"] != 0] == []


def test_every_section_with_commands_is_followed(everything: Seen) -> None:
    told = sections(REPOSITORY / "docs" / "install.md")
    ran = [each["commands"] for seen in everything.values() for each in seen.get("ran", ())]
    assert sorted(ran) == sorted(block for blocks in told.values() for block in blocks)


def test_systemd_finds_nothing_wrong_with_the_unit(everything: Seen) -> None:
    assert step(everything, "verify")["said"] == ""
    assert step(everything, "verify")["code"] == 0


def test_the_exposure_is_below_the_bound(everything: Seen) -> None:
    seen = step(everything, "security")
    found = re.search(r"Overall exposure level for pinfold\.service: ([\d.]+)", seen["verdict"])
    assert found is not None
    assert float(found[1]) < EXPOSURE
    assert seen["code"] == 0


def test_what_is_left_open_is_left_open_for_a_reason(everything: Seen) -> None:
    assert sorted(step(everything, "security")["open"]) == sorted(OPEN)


def test_every_loosened_line_of_the_unit_has_a_comment() -> None:
    lines = (REPOSITORY / "systemd" / "pinfold.service").read_text().splitlines()
    loose = re.compile(r"\w+=(no|default|all|root|CAP_.*|AF_.*|@chown)$")
    assert [line for before, line in pairwise(lines) if loose.match(line) and before[:1] != "#"] == []


def test_the_kernel_holds_the_agent_to_it(everything: Seen) -> None:
    seen = step(everything, "sandbox")
    cap_dac_override = f"{1 << 1:016x}"
    assert seen["status"]["CapEff"] == seen["status"]["CapBnd"] == cap_dac_override
    assert (seen["status"]["NoNewPrivs"], seen["status"]["Seccomp"]) == ("1", "2")
    writable = {path for path, mode in seen["mounts"].items() if mode == "rw" and path.startswith(("/etc", "/var"))}
    assert writable == {"/var/lib/pinfold", "/var/tmp"}  # the second is its own (PrivateTmp)
    assert seen["mounts"]["/"] == seen["mounts"]["/etc/pinfold"] == "ro"
    assert seen["mounts"]["/sys/fs/cgroup/cpuset"] == "rw"


def test_directories_and_socket_have_the_owners_that_the_document_promises(everything: Seen) -> None:
    assert step(everything, "sandbox")["directories"] == {
        "/run/pinfold": "750 root:pinfold",
        "/run/pinfold/pod-resources": "750 root:pinfold",
        "/run/pinfold/pod-resources/kubelet.sock": "660 root:pinfold",
        "/var/lib/pinfold": "700 root:pinfold",
        "/etc/pinfold": "755 root:root",
    }


def test_after_the_start_it_is_active_enabled_watched_and_says_how_it_is(everything: Seen) -> None:
    seen = step(everything, "start")
    assert seen["unit"] == {
        "ActiveState": "active",
        "UnitFileState": "enabled",
        "StatusText": "ready: 0 pods, 0 refused, generation 1",
        "WatchdogUSec": "30s",
        "NRestarts": "0",
    }
    assert seen["failed"] == ""


def test_it_is_active_only_when_ready_and_then_its_sockets_answer(everything: Seen) -> None:
    seen = step(everything, "readiness")
    assert (seen["held"]["ActiveState"], seen["held"]["SubState"]) == ("activating", "start")
    assert not seen["listens while held"]
    assert seen["listens when active"]
    assert seen["unit"]["StatusText"].startswith("ready: ")


def test_a_command_runs_on_the_pods_own_cpu(everything: Seen) -> None:
    assert step(everything, "first_pod")["pods"] == {"web": "1"}
    assert "Cpus_allowed_list:\t1\n" in step(everything, "exec")["ran"][0]["said"]


def test_systemd_makes_slices_and_scopes_as_it_is_asked_and_keeps_their_properties(everything: Seen) -> None:
    seen = step(everything, "units")
    assert (seen["version"], seen["top"]) == (252, "")
    assert seen["moved"], "the process is in its scope"
    wanted = {
        "AllowedCPUs": "0-1 17",
        "AllowedMemoryNodes": "0",
        "MemoryMax": f"{64 << 20}",
        "CPUWeight": "20",
        "CPUQuotaPerSecUSec": "1.500000s",
    }
    pod, scope = {**wanted, "Delegate": "no"}, {**wanted, "Delegate": "yes"}
    assert seen["said"] == [pod, scope]
    assert seen["after reload"] == [{**each, "AllowedCPUs": "1"} for each in (pod, scope)]
    assert seen["ended"] != 0
    assert not seen["left"], "no unit file stays behind"


def test_systemds_refusals_are_errors_that_name_the_unit(everything: Seen) -> None:
    seen = step(everything, "units")
    kinds = {name: kind for name, (kind, _) in seen["refusals"].items()}
    assert kinds == {
        "no such unit": "NoSuchUnitError",
        "exists": "UnitExistsError",
        "no such process": "SystemdError",
        "wrong type": "SystemdError",
    }
    assert seen["refusals"]["no such unit"][1].startswith("nosuch.scope: systemd refused to SetUnitProperties: ")


def test_a_member_of_the_group_reads_podresources_and_nobody_else(everything: Seen) -> None:
    seen = step(everything, "client")
    assert "kubelet.sock: not permitted" in seen["before"]
    assert "default/web\n  main  cpus 1\n" in seen["ran"][0]["said"]
    assert "control.sock: not permitted" in seen["control"], "the control socket is root's alone"


def test_the_hardening_lets_the_agent_move_processes_off_an_exclusive_cpu(everything: Seen) -> None:
    seen = step(everything, "enforcement")
    assert seen["before"] == "0-1"
    assert seen["now"] == {"shared": "0", "pinned": "1"}
    assert set(seen["cgroup modes"]) == {"755"}, "monitoring may look"
    assert seen["status text"]["StatusText"].startswith("ready: 2 pods")


def test_a_reload_returns_with_the_new_configuration_in_force(everything: Seen) -> None:
    seen = step(everything, "reload")
    assert seen["before"]["topologyManagerPolicy"] == "best-effort"
    assert seen["after"]["topologyManagerPolicy"] == "restricted"
    assert (seen["unit"]["ActiveState"], seen["unit"]["NRestarts"]) == ("active", "0")


def test_a_reload_of_a_wrong_configuration_fails_and_the_one_before_stays_in_force(everything: Seen) -> None:
    seen = step(everything, "broken_reload")
    assert seen["code"] != 0
    assert seen["after"] == seen["before"]
    assert (seen["unit"]["ActiveState"], seen["unit"]["NRestarts"]) == ("active", "0")
    assert seen["unit"]["StatusText"].startswith("not ready (configuration: ")
    assert "unknown CPU ID: 999" in seen["unit"]["StatusText"]
    assert seen["allowed"] == {"shared": "0", "pinned": "1"}
    told = [entry for entry in seen["journal"] if "unknown CPU ID: 999" in entry["MESSAGE"]]
    assert {entry["PRIORITY"] for entry in told} == {"3"}
    assert len(told) == 2, "by the agent and by the reloading command"
    assert seen["mended"] == 0
    assert seen["then"]["StatusText"].startswith("ready: ")


def test_a_stop_is_clean_and_keeps_state_pins_and_the_sockets_directory(everything: Seen) -> None:
    seen = step(everything, "stop")
    assert seen["unit"] == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    assert seen["seconds"] < 30, "the agent ends by itself, systemd need not kill it"
    assert seen["same file"]
    assert seen["same directory"]
    assert seen["sockets"] == []
    assert seen["allowed"] == {"shared": "0", "pinned": "1"}
    assert_as_before(seen["again"])


def assert_as_before(again: Seen) -> None:
    assert again["listens"]
    assert again["pods"] == again["allowed"] == {"shared": "0", "pinned": "1"}


def test_a_killed_agent_is_started_again_and_nothing_moves(everything: Seen) -> None:
    seen = step(everything, "kill")
    assert_as_before(seen["again"])
    assert seen["again"]["state"] == seen["before"]
    assert seen["same file"]
    assert seen["same directory"]


def test_an_agent_that_hangs_is_killed_by_the_watchdog_and_started_again(everything: Seen) -> None:
    seen = step(everything, "watchdog")
    assert seen["healthy"] == {"ActiveState": "active", "NRestarts": "0"}
    assert "watchdog" in [entry.get("UNIT_RESULT") for entry in seen["journal"]]
    assert_as_before(seen["again"])
    assert seen["again"]["state"] == seen["before"]


def test_wrong_configuration_at_the_start_fails_once_says_so_and_does_not_loop(everything: Seen) -> None:
    seen = step(everything, "wrong_at_start")
    assert seen["code"] != 0
    assert seen["unit"] == {"ActiveState": "failed", "SubState": "failed", "NRestarts": "0", "ExecMainStatus": "2"}
    (error,) = [entry for entry in seen["journal"] if "pinfold: error:" in entry["MESSAGE"]]
    assert error["MESSAGE"].endswith("zz-test.yaml:1: cpuManagerPolicie: unknown key")
    assert error["PRIORITY"] == "3"
    assert seen["mended"] == 0
    assert_as_before(seen["again"])


def test_the_journal_has_lines_with_their_priorities(everything: Seen) -> None:
    seen = step(everything, "refusal")
    (refusal,) = [entry for entry in seen["journal"] if entry["MESSAGE"].startswith("refused ")]
    assert (refusal["PRIORITY"], refusal["SYSLOG_IDENTIFIER"]) == ("4", "pinfold")
    assert "pod=default/large" in refusal["MESSAGE"]
    started = [entry for entry in seen["all"] if entry["MESSAGE"].startswith("started ")]
    assert {entry["PRIORITY"] for entry in started} == {"6"}


def test_an_upgrade_moves_nothing(everything: Seen) -> None:
    assert_as_before(step(everything, "upgrade")["again"])


def test_after_the_removal_nothing_is_left(everything: Seen) -> None:
    seen = step(everything, "uninstall")
    assert seen["left"] == []
    assert seen["unit"] == {"LoadState": "not-found"}
    assert seen["failed"] == ""
