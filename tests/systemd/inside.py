"""Runs as root inside the booted container: follows docs/install.md word by word, then treats the service as systemd and
admins do, and writes down what it saw. Judging is left to test_service.py. Standard library only: this is not our Python.

Reads /job/install.json: {"parent": cgroup name, "sections": {heading: [block of commands, ...]}}. Writes /out/seen.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

UNIT = "pinfold.service"
OVERRIDE = Path("/run/systemd/system/pinfold.service.d/test.conf")
SOCKET = Path("/run/pinfold/pod-resources/kubelet.sock")
STATE = Path("/var/lib/pinfold/pinfold_state")
CONFIG = Path("/etc/pinfold/config.d/zz-test.yaml")
HOME = Path("/root/install")
SECONDS = 60.0  # for one thing to happen, on a busy machine

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  containers:
    - name: main
      image: example
      resources: {resources}
"""

Seen = dict[str, Any]


def run(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def unit(*properties: str) -> Seen:
    """Properties of the unit; all of them as text."""
    said = run("systemctl", "show", UNIT, f"--property={','.join(properties)}").stdout
    return dict(line.split("=", 1) for line in said.splitlines())


def main_pid() -> int:
    return int(unit("MainPID")["MainPID"])


def until(what: str, done: Callable[[], Any], pause: float = 0.05) -> Any:
    """What `done` gives as soon as that is true."""
    end = time.monotonic() + SECONDS
    while not (given := done()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {SECONDS} s; {unit('ActiveState', 'SubState', 'StatusText')}")
        time.sleep(pause)
    return given


def status() -> Seen:
    """The agent's own account, {} where it does not answer."""
    asked = run("pinfold", "status", "-o", "json")
    try:
        answer: Seen = json.loads(asked.stdout)
    except ValueError:
        return {}
    return answer


def pods() -> dict[str, str]:
    """Pod -> CPUs of its container main."""
    return {pod["name"]: pod["containers"][0]["cpus"] for pod in status().get("pods", ())}


def follow(sections: dict[str, list[str]], heading: str, between: Callable[[], Any] = bool) -> list[Seen]:
    """Run the commands of a section of docs/install.md, block by block, as an admin pastes them."""
    ran = []
    for block in sections[heading]:
        done = run("bash", "-euo", "pipefail", "-c", block, cwd=HOME)
        ran.append({"commands": block, "code": done.returncode, "said": done.stdout})
        between()
    return ran


def write_pod(name: str, resources: str) -> None:
    """A manifest, put there in one step."""
    directory = Path("/etc/pinfold/manifests")
    new = directory / f".{name}"
    new.write_text(POD.format(name=name, resources=resources))
    new.rename(directory / f"{name}.yaml")


def allowed(pid: int) -> str:
    """The CPUs a process may run on, from the kernel."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("Cpus_allowed_list:"))


def start_in(pod: str) -> int:
    """A process in the pod's container by `pinfold exec`; its pid."""
    pid_file = Path(f"/run/{pod}.pid")
    script = f"echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600"
    subprocess.Popen(["pinfold", "exec", pod, "main", "--", "sh", "-c", script], stdin=subprocess.DEVNULL)
    return int(until(f"a process in {pod}", lambda: pid_file.exists() and pid_file.read_text()))


def answers(path: Path) -> bool:
    """Whether somebody accepts a connection there."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(os.fspath(path))
        except OSError:
            return False
    return True


def override(text: str) -> None:
    """Settings of the unit for the next step only, as `systemctl edit --runtime` makes them."""
    OVERRIDE.parent.mkdir(parents=True, exist_ok=True)
    OVERRIDE.write_text(text)
    run("systemctl", "daemon-reload")


def journal(*arguments: str) -> list[Seen]:
    """Entries about the unit, by itself or by systemd."""
    said = run("journalctl", "--output=json", f"--unit={UNIT}", *arguments).stdout
    keep = ("MESSAGE", "PRIORITY", "_PID", "_COMM", "UNIT_RESULT", "EXIT_STATUS", "SYSLOG_IDENTIFIER")
    entries = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    return [{key: entry[key] for key in keep if key in entry} for entry in entries]


@contextlib.contextmanager
def journal_of_this() -> Iterator[list[Seen]]:
    """What the journal got during the block, filled in at its end."""
    cursor = run("journalctl", "--show-cursor", "--lines=0").stdout.partition("cursor: ")[2].strip()
    found: list[Seen] = []
    yield found
    run("journalctl", "--sync")
    found.extend(journal(f"--after-cursor={cursor}"))


# --- the steps, in order; each gives what it saw ---


class Steps:
    """sections: of docs/install.md. parent: the cgroup for everything that is made here."""

    def __init__(self, sections: dict[str, list[str]], parent: str) -> None:
        self.sections = sections
        self.parent = parent
        self.pids: dict[str, int] = {}

    def program(self) -> Seen:
        return {"ran": follow(self.sections, "The program")}

    def unit_files(self) -> Seen:
        return {"ran": follow(self.sections, "The unit")}

    def verify(self) -> Seen:
        done = run("systemd-analyze", "verify", "--man=no", UNIT)
        return {"code": done.returncode, "said": done.stdout}

    def configuration(self) -> Seen:
        Path("/etc/pinfold/config.d/test.yaml").write_text(f"enforcement:\n  parent: {self.parent}\n")
        return {"ran": follow(self.sections, "The configuration")}

    def start(self) -> Seen:
        ran = follow(self.sections, "The start")
        facts = unit("ActiveState", "UnitFileState", "StatusText", "WatchdogUSec", "NRestarts")
        return {"ran": ran, "unit": facts, "failed": self._failed()}

    def readiness(self) -> Seen:
        """A start, held half-way: what does systemd say before and after READY?"""
        run("systemctl", "stop", UNIT)
        run("systemctl", "start", "--no-block", UNIT)
        pid = until("a process", main_pid, pause=0)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        held = unit("ActiveState", "SubState", "StatusText")
        listens = answers(SOCKET)
        os.kill(pid, signal.SIGCONT)
        until("active", lambda: unit("ActiveState")["ActiveState"] == "active", pause=0)
        return {
            "held": held,
            "listens while held": listens,
            "listens when active": answers(SOCKET),
            "unit": unit("StatusText", "NRestarts", "NotifyAccess"),
        }

    def security(self) -> Seen:
        done = run("systemd-analyze", "security", "--no-pager", "--threshold=30", UNIT)
        verdict = next((line for line in done.stdout.splitlines() if "Overall exposure level" in line), "")
        rows = json.loads(run("systemd-analyze", "security", "--no-pager", "--json=short", UNIT).stdout)
        opened = [row["json_field"] for row in rows if row.get("exposure")]
        return {"code": done.returncode, "verdict": verdict, "open": opened}

    def sandbox(self) -> Seen:
        """What the kernel says about the running agent."""
        pid = main_pid()
        facts = dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
        options = {mount[4]: mount[5].split(",")[0] for mount in mounts}
        return {
            "status": {key: facts[key].strip() for key in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid", "Gid")},
            "mounts": options,
            "directories": {
                str(path): f"{path.stat().st_mode & 0o7777:o} {path.owner()}:{path.group()}"
                for path in (SOCKET.parent.parent, SOCKET.parent, SOCKET, STATE.parent, CONFIG.parent.parent)
            },
        }

    def first_pod(self) -> Seen:
        ran = follow(self.sections, "The first pod", lambda: until("the pod", lambda: "web" in pods()))
        return {"ran": ran, "pods": pods()}

    def exec(self) -> Seen:
        return {"ran": follow(self.sections, "Running a command in it")}

    def units(self) -> Seen:
        """units.py, in the program that was installed."""
        done = run("/opt/pinfold/bin/python", "/job/units.py")
        if done.returncode != 0:
            return {"error": done.stdout}
        seen: Seen = json.loads(done.stdout)
        return seen

    def client(self) -> Seen:
        run("useradd", "--system", "--no-create-home", "exporter")
        before = run("runuser", "-u", "exporter", "--", "pinfold", "podresources", "check")
        ran = follow(self.sections, "A monitoring agent")
        return {"ran": ran, "before": before.stdout, "control": self._as_exporter("pinfold", "status")}

    def _as_exporter(self, *command: str) -> str:
        return run("runuser", "-u", "exporter", "--", *command).stdout

    def enforcement(self) -> Seen:
        """Written by the agent in its sandbox, read back from the kernel."""
        (Path("/etc/pinfold/manifests") / "web.yaml").unlink()
        write_pod("shared", "{}")
        until("the pods", lambda: pods().keys() == {"shared"})
        self.pids["shared"] = start_in("shared")
        before = allowed(self.pids["shared"])
        write_pod("pinned", '{limits: {cpu: "1", memory: 64Mi}}')
        until("the pods", lambda: pods().keys() == {"shared", "pinned"})
        self.pids["pinned"] = start_in("pinned")
        until("the shared process to leave", lambda: allowed(self.pids["shared"]) != before)
        groups = [path for path in Path("/sys/fs/cgroup").rglob(f"{self.parent}/**") if path.is_dir()]
        return {
            "before": before,
            "now": self._allowed(),
            "pods": pods(),
            "cgroup modes": [f"{path.stat().st_mode & 0o777:o}" for path in groups],
            "status text": unit("StatusText"),
        }

    def _allowed(self) -> dict[str, str]:
        return {name: allowed(pid) for name, pid in self.pids.items()}

    def reload(self) -> Seen:
        before = status()["policy"]
        with journal_of_this() as entries:
            ran = follow(self.sections, "Changing the configuration")
        return {
            "ran": ran,
            "before": before,
            "after": status()["policy"],
            "unit": unit("ActiveState", "StatusText", "NRestarts"),
            "journal": entries,
        }

    def broken_reload(self) -> Seen:
        before = status()["policy"]
        CONFIG.write_text("reservedSystemCPUs: '999'\n")
        with journal_of_this() as entries:
            done = run("systemctl", "reload", UNIT)
        seen = {
            "code": done.returncode,
            "unit": unit("ActiveState", "StatusText", "NRestarts"),
            "before": before,
            "after": status()["policy"],
            "allowed": self._allowed(),
            "journal": entries,
        }
        CONFIG.unlink()
        seen["mended"] = run("systemctl", "reload", UNIT).returncode
        seen["then"] = unit("ActiveState", "StatusText")
        return seen

    def stop(self) -> Seen:
        """systemctl stop, and start again."""
        held, inode = STATE.read_bytes(), SOCKET.parent.stat().st_ino
        began = time.monotonic()
        run("systemctl", "stop", UNIT)
        seen = {
            "seconds": time.monotonic() - began,
            "unit": unit("ActiveState", "Result", "ExecMainStatus"),
            "same file": STATE.read_bytes() == held,
            "allowed": self._allowed(),
            "sockets": [path.name for path in SOCKET.parent.iterdir()],
        }
        run("systemctl", "start", UNIT)
        return {**seen, "same directory": SOCKET.parent.stat().st_ino == inode, "again": self._again()}

    def _again(self) -> Seen:
        """After the agent has come back."""
        return {"pods": pods(), "allowed": self._allowed(), "listens": answers(SOCKET), "state": self._held()}

    def _held(self) -> Seen:
        held = status()
        return {key: held[key] for key in ("generation", "epoch", "cpus", "pods") if key in held}

    def kill(self) -> Seen:
        """SIGKILL of the main process."""
        held, inode, restarts = self._held(), SOCKET.parent.stat().st_ino, self._restarts()
        file = STATE.read_bytes()
        os.kill(main_pid(), signal.SIGKILL)
        until("a restart", lambda: self._restarts() > restarts)
        until("active", lambda: unit("ActiveState")["ActiveState"] == "active")
        return {
            "before": held,
            "again": self._again(),
            "same file": STATE.read_bytes() == file,
            "same directory": SOCKET.parent.stat().st_ino == inode,
        }

    def _restarts(self) -> int:
        return int(unit("NRestarts")["NRestarts"])

    def watchdog(self) -> Seen:
        """The main process stops answering. The unit's 30 s would be long to wait for."""
        override("[Service]\nWatchdogSec=4s\n")
        run("systemctl", "restart", UNIT)
        time.sleep(5)  # a healthy agent feeds it
        healthy = unit("ActiveState", "NRestarts")
        held = self._held()
        with journal_of_this() as entries:
            os.kill(main_pid(), signal.SIGSTOP)
            until("a restart", lambda: self._restarts() > int(healthy["NRestarts"]))
            until("active", lambda: unit("ActiveState")["ActiveState"] == "active")
        override("")
        return {"healthy": healthy, "journal": entries, "before": held, "again": self._again()}

    def wrong_at_start(self) -> Seen:
        """A configuration that a restart cannot mend."""
        run("systemctl", "stop", UNIT)
        CONFIG.write_text("cpuManagerPolicie: static\n")
        with journal_of_this() as entries:
            done = run("systemctl", "start", UNIT)
            time.sleep(3)  # longer than RestartSec
        seen = {"code": done.returncode, "unit": unit("ActiveState", "SubState", "NRestarts", "ExecMainStatus")}
        CONFIG.unlink()
        seen["mended"] = run("systemctl", "start", UNIT).returncode
        return {**seen, "journal": entries, "again": self._again()}

    def refusal(self) -> Seen:
        """A pod that does not fit: a warning in the journal."""
        with journal_of_this() as entries:
            write_pod("large", '{limits: {cpu: "4096", memory: 64Mi}}')
            until("the refusal", lambda: status()["refused"])
        return {"journal": entries, "all": journal("--boot")}

    def upgrade(self) -> Seen:
        ran = follow(self.sections, "Upgrading")
        return {"ran": ran, "again": self._again()}

    def uninstall(self) -> Seen:
        ran = follow(self.sections, "Removing it")
        places = ("/opt/pinfold", "/etc/pinfold", "/var/lib/pinfold", "/run/pinfold", "/usr/local/bin/pinfold")
        left = [place for place in places if Path(place).exists()]
        return {"ran": ran, "left": left, "unit": unit("LoadState"), "failed": self._failed()}

    def _failed(self) -> str:
        return run("systemctl", "--failed", "--plain", "--no-legend").stdout


ORDER = (
    *("program", "unit_files", "verify", "configuration", "start", "readiness", "security", "sandbox", "first_pod"),
    *(
        "exec",
        "units",
        "client",
        "enforcement",
        "reload",
        "broken_reload",
        "stop",
        "kill",
        "watchdog",
        "wrong_at_start",
    ),
    *("refusal", "upgrade", "uninstall"),
)


def make_cgroups_writable() -> None:
    """nspawn shows the host's v1 controllers read-only; a machine that runs the agent has them writable."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup" and options.split(",")[0] == "ro":
            run("mount", "-o", "remount,bind,rw", where)


def main() -> None:
    job = json.loads(Path("/job/install.json").read_text())
    os.environ["PIP_NO_INDEX"], os.environ["PIP_FIND_LINKS"] = "1", "/wheels"
    os.environ["PATH"] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    make_cgroups_writable()
    HOME.mkdir()
    for wheel in Path("/dist").iterdir():
        (HOME / wheel.name).symlink_to(wheel)
    steps = Steps(job["sections"], job["parent"])
    seen: dict[str, Seen] = {}
    for name in ORDER:
        began = time.monotonic()
        try:
            seen[name] = getattr(steps, name)()
        except Exception:  # noqa: BLE001 - the rest may still tell something
            seen[name] = {"error": traceback.format_exc(), "journal": journal("--boot", "--lines=30")}
        seen[name]["took"] = round(time.monotonic() - began, 2)
        Path("/out/seen.json").write_text(json.dumps(seen, indent=1))


if __name__ == "__main__":
    main()
