"""What happens inside the virtual node: everything is done here and written down, the tests outside judge it.

Runs with the guest's own Python as root; /job has the program (site/), the unit and its companions (systemd/), and out/. Two
boots: the second one, with the disk of the first, is the reboot.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any

JOB = Path("/job")
sys.path.insert(0, "/opt/pinfold/site")
CGROUP = Path("/sys/fs/cgroup")
PATIENCE_SECONDS = 120.0
SEEN: dict[str, Any] = {}
PODS: dict[str, dict[str, Any]] = {}  # what the kubelet lists
INSTANCE = "ab" * 32
CONFIG = """\
cpuManagerPolicy: static
reservedSystemCPUs: "0-1"
topologyManagerPolicy: best-effort
topologyManagerScope: pod
kubeletVersion: "1.37"
enforcement: {periodSeconds: 1}
"""
BESIDE = "sources: {kubelet: {url: 'http://127.0.0.1:10255', periodSeconds: 0.5}}\n"


def sh(*command: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
    )
    return {"code": done.returncode, "said": done.stdout + done.stderr}


def until(done: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        try:
            if found := done():
                return found
        except Exception:  # noqa: BLE001 - not yet
            pass
        time.sleep(0.2)
    raise AssertionError(f"not within {PATIENCE_SECONDS} s: {what}; {json.dumps(status())[:3000]}")


def status() -> Any:
    from agent.serve.control_client import ControlClient

    return ControlClient(Path("/run/pinfold/control.sock"), timeout_seconds=60.0).call("status", {})


def pod(name: str) -> Any:
    return next(each for each in status()["pods"] if each["name"] == name)


def show(*names: str) -> dict[str, str]:
    lines = sh("systemctl", "show", "pinfold", *(f"--property={name}" for name in names))["said"].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def manifest(name: str, resources: dict[str, Any], containers: dict[str, dict[str, Any]]) -> None:
    spec: dict[str, Any] = {
        "containers": [{"name": each, "image": "example", "resources": sizes} for each, sizes in containers.items()]
    }
    if resources:
        spec["resources"] = resources
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
    path = Path("/etc/pinfold/manifests") / f"{name}.json"
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def scope_of(name: str, container: str) -> Path:
    """The cgroup of a container of `pinfold exec`."""
    from agent.policy.systemd_units import container_scope

    return CGROUP / container_scope(PurePosixPath("pinfold.slice"), str(pod(name)["uid"]), container)


def start_in(name: str, container: str) -> Path:
    """A process in the container, by `pinfold exec` under systemd: its cgroup."""
    sh("systemd-run", f"--unit={name}-{container}", "pinfold", "exec", name, container, "--", "sleep", "100000")
    group = scope_of(name, container)
    until(lambda: (group / "cgroup.procs").read_text().split(), f"a process in {group}")
    return group


def grip(group: Path) -> dict[str, str]:
    """What a cgroup and its first process may use, as the kernel says."""
    found = {
        name: (group / name).read_text().strip()
        for name in ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.mems", "cpu.max")
        if (group / name).exists()
    }
    pids = (group / "cgroup.procs").read_text().split()
    if pids:
        found["affinity"] = ",".join(map(str, sorted(os.sched_getaffinity(int(pids[0])))))
    return found


def properties(unit: str, *names: str) -> dict[str, str]:
    """What systemd says of a unit."""
    lines = sh("systemctl", "show", unit, *(f"--property={name}" for name in names))["said"].splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def repairs() -> list[str]:
    """The agent's lines about drift, so far."""
    sh("journalctl", "--sync")
    lines = sh("journalctl", "--no-pager", "-u", "pinfold", "-o", "cat")["said"].splitlines()
    return [line for line in lines if "drift repaired" in line or "not kept" in line]


def told_again(groups: dict[str, Path]) -> Any:
    """A daemon-reload: what the cgroups say right after it and some looks later, and what the agent had to repair.

    control: an empty slice that is written directly. The kernel refuses to take the set from one that holds processes.
    """
    control = CGROUP / "control.slice"
    sh("systemctl", "start", control.name)
    until((control / "cpuset.cpus").exists, "a slice of nobody's")
    (control / "cpuset.cpus").write_text("0")
    before, known = {name: grip(group) for name, group in groups.items()}, repairs()
    done = sh("systemctl", "daemon-reload")
    at_once = {name: grip(group) for name, group in groups.items()}
    time.sleep(4.0)  # periodSeconds is 1
    return {
        **done,
        "before": before,
        "at once": at_once,
        "later": {name: grip(group) for name, group in groups.items()},
        "control": grip(control)["cpuset.cpus"],
        "repairs": [line for line in repairs() if line not in known],
    }


def step(function: Callable[[], Any]) -> None:
    started = time.monotonic()
    try:
        seen = function()
    except Exception:  # noqa: BLE001 - the next step may tell more
        seen = {"error": traceback.format_exc()}
    SEEN[function.__name__] = {**(seen or {}), "took": round(time.monotonic() - started, 1)}
    print(function.__name__, json.dumps(SEEN[function.__name__])[:500], flush=True)


GROUPS: dict[str, Path] = {}


def machine() -> Any:
    return {"topology": json.loads(sh("pinfold", "topology", "-o", "json")["said"]), "kernel": os.uname().release}


def install() -> Any:
    units = JOB / "systemd"
    for source, target in (
        ("pinfold.service", "/etc/systemd/system"),
        ("sysusers.d/pinfold.conf", "/etc/sysusers.d"),
        ("tmpfiles.d/pinfold.conf", "/etc/tmpfiles.d"),
    ):
        Path(target).mkdir(parents=True, exist_ok=True)
        shutil.copy(units / source, target)
    ran = [sh("systemd-sysusers"), sh("systemd-tmpfiles", "--create", "/etc/tmpfiles.d/pinfold.conf")]
    Path("/etc/pinfold/config.yaml").write_text(CONFIG)
    override = Path("/etc/systemd/system/pinfold.service.d/emulated.conf")
    override.parent.mkdir()
    override.write_text("[Service]\nTimeoutStartSec=600\n")  # emulated CPUs on a busy machine
    ran += [sh("systemctl", "daemon-reload"), sh("pinfold", "config", "check"), sh("pinfold", "doctor")]
    return {"ran": ran}


def start() -> Any:
    began = time.monotonic()
    done = sh("systemctl", "enable", "--now", "pinfold", seconds=300)
    seconds = time.monotonic() - began
    return {**done, "seconds": round(seconds, 1), **show("ActiveState", "StatusText", "NRestarts"), "status": status()}


def exclusive() -> Any:
    manifest("db", {}, {"main": {"limits": {"cpu": "2", "memory": "64Mi"}}})
    manifest("web", {}, {"main": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "100m"}}})
    until(lambda: len(status()["pods"]) == 2, "two pods")
    for name in ("db", "web"):
        GROUPS[name] = start_in(name, "main")
    until(lambda: grip(GROUPS["db"])["affinity"] != grip(GROUPS["web"])["affinity"], "different CPUs")
    return {name: {"container": grip(group), "pod": grip(group.parent)} for name, group in GROUPS.items()}


def bubble() -> Any:
    sizes = {"cpu": "2", "memory": "256Mi"}
    manifest(
        "bub",
        {"requests": sizes, "limits": sizes},
        {"own": {"limits": {"cpu": "1", "memory": "64Mi"}}, "rest": {}},
    )
    until(lambda: pod("bub"), "the pod")
    groups = {name: start_in("bub", name) for name in ("own", "rest")}
    GROUPS["own"] = groups["own"]
    return {
        "status": pod("bub"),
        "pod": grip(groups["own"].parent),
        **{name: grip(group) for name, group in groups.items()},
    }


def drift() -> Any:
    before = grip(GROUPS["db"])
    (GROUPS["db"] / "cpuset.cpus").write_text("0-7")
    until(lambda: grip(GROUPS["db"]) == before, "the set as before")
    return {"before": before, "after": grip(GROUPS["db"])}


def daemon_reload() -> Any:
    return told_again({**GROUPS, "pod of db": GROUPS["db"].parent})


def scope() -> Any:
    """What systemd says of the units of `pinfold exec`, and what becomes of them."""
    unit = properties(GROUPS["db"].name, "ActiveState", "Slice", "Delegate", "ControlGroup", "AllowedCPUs", "MemoryMax")
    pids = (GROUPS["db"] / "cgroup.procs").read_text().split()
    manifest("short", {}, {"main": {"limits": {"cpu": "500m", "memory": "64Mi"}}})
    until(lambda: pod("short"), "the pod")
    group = scope_of("short", "main")
    script = "cat /proc/self/cgroup; grep Cpus_allowed_list /proc/self/status"
    ran = [sh("pinfold", "exec", "short", "main", "--", "sh", "-c", script) for _ in range(5)]
    shared = status()["cpus"]["shared"]
    until(lambda: not group.exists(), "the end of the scope")
    (Path("/etc/pinfold/manifests") / "short.json").unlink()
    until(lambda: all(each["name"] != "short" for each in status()["pods"]), "the pod's end")
    until(lambda: not group.parent.exists(), "the end of its slice")
    left = [path for path in Path("/run/systemd/transient").iterdir() if str(group.parent.name) in path.name]
    return {
        "unit": unit,
        "pids": pids,
        "ran": ran,
        "group": str(group.relative_to(CGROUP)),
        "shared": shared,
        "left": len(left),
    }


def restart() -> Any:
    """systemctl restart of the agent: processes and grants stay."""

    def held() -> Any:
        return {name: {**grip(group), "pids": (group / "cgroup.procs").read_text()} for name, group in GROUPS.items()}

    before, known, pods = held(), repairs(), status()["pods"]
    stopped = sh("systemctl", "stop", "pinfold", seconds=300)
    down = held()
    started = sh("systemctl", "start", "pinfold", seconds=300)
    until(lambda: status()["ready"], "ready")
    time.sleep(2.0)
    return {
        "codes": [stopped["code"], started["code"]],
        "before": before,
        "down": down,
        "after": held(),
        "pods": status()["pods"] == pods,
        "repairs": [line for line in repairs() if line not in known],
    }


def reload() -> Any:
    return {**sh("systemctl", "reload", "pinfold"), **show("ActiveState")}


def host_services() -> Any:
    """Services of the host leave for the reserved CPUs and come back; db and the agent's own groups stay."""
    ran = []

    def now() -> dict[str, str]:
        journald = properties("systemd-journald.service", "MainPID")["MainPID"]
        units = {unit: Path("/sys/fs/cgroup", unit, "cpuset.cpus.effective") for unit in ("system.slice", "init.scope")}
        return {
            "journald": ",".join(map(str, sorted(os.sched_getaffinity(int(journald))))),
            "pid 1": ",".join(map(str, sorted(os.sched_getaffinity(1)))),
            "db": grip(GROUPS["db"])["affinity"],
            **{unit: path.read_text().strip() for unit, path in units.items() if path.exists()},
        }

    seen = {"before": now()}
    for mode in ("apply", "remove"):
        ran.append(sh("pinfold", "host-services", f"--{mode}", "-o", "json"))
        ran += [sh("sh", "-euc", command) for command in json.loads(ran[-1]["said"])["next"]]
        seen[mode] = now()
    return {"ran": ran, **seen}


def offline() -> Any:
    """A CPU of db's goes and comes back."""
    before = grip(GROUPS["db"])
    cpu = before["affinity"].split(",")[-1]
    switch = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    switch.write_text("0")
    marked = until(lambda: pod("db")["degraded"], "the mark")
    during = {**grip(GROUPS["db"]), "online": status()["cpus"]["online"]}
    switch.write_text("1")
    until(lambda: not pod("db")["degraded"], "no mark")
    until(lambda: grip(GROUPS["db"]) == before, "all CPUs again")
    return {"cpu": cpu, "before": before, "marked": marked, "during": during, "after": grip(GROUPS["db"])}


def offline_shared() -> Any:
    before = status()["cpus"]["shared"]
    cpu = before.replace("-", ",").split(",")[-1]
    switch = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    switch.write_text("0")
    during = until(lambda: (shared := status()["cpus"]["shared"]) != before and shared, "a smaller pool")
    switch.write_text("1")
    until(lambda: status()["cpus"]["shared"] == before, "the pool as before")
    until(lambda: grip(GROUPS["web"])["cpuset.cpus.effective"] == before, "the shared container on all of it")
    return {"cpu": cpu, "before": before, "during": during}


def _restarted(kill: int) -> Any:
    before = {name: grip(group) for name, group in GROUPS.items()}
    main, held = show("MainPID")["MainPID"], status()["pods"]
    os.kill(int(main), kill)
    until(
        lambda: show("MainPID", "ActiveState") not in ({"MainPID": main, "ActiveState": "active"},) and status(),
        "a new agent",
    )
    until(lambda: show("MainPID")["MainPID"] not in (main, "0"), "another process")
    until(lambda: status()["ready"], "ready")
    after = {name: grip(group) for name, group in GROUPS.items()}
    return {"before": before, "after": after, "pods": status()["pods"] == held, **show("ActiveState", "NRestarts")}


def killed() -> Any:
    return _restarted(signal.SIGKILL)


def watchdog() -> Any:
    return _restarted(signal.SIGSTOP)


def beside() -> Any:
    """A kubelet with the systemd driver: slices and scopes as it makes them, and its /pods."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"kind": "PodList", "items": list(PODS.values())}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 10255), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Path("/etc/pinfold/config.yaml").write_text(CONFIG + BESIDE)
    done = sh("systemctl", "restart", "pinfold", seconds=300)
    scope = [
        "--scope",
        f"--unit=cri-containerd-{INSTANCE}.scope",
        "--slice=kubepods-podu_1.slice",
        "-p",
        "Delegate=yes",
    ]
    subprocess.Popen(["systemd-run", *scope, "sleep", "100000"], stdin=subprocess.DEVNULL)
    sh("systemctl", "start", "kubepods-burstable.slice")  # a QoS slice without pods
    other = ["--scope", "--unit=other.scope", "--slice=kubepods-besteffort-podu_2.slice", "-p", "Delegate=yes"]
    subprocess.Popen(["systemd-run", *other, "sleep", "100000"], stdin=subprocess.DEVNULL)
    sizes = {"cpu": "2", "memory": "64Mi"}
    PODS["u-1"] = {
        "metadata": {"name": "gu", "namespace": "default", "uid": "u-1"},
        "spec": {"containers": [{"name": "main", "resources": {"limits": sizes, "requests": sizes}}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {"name": "main", "containerID": f"containerd://{INSTANCE}", "state": {"running": {}}}
            ],
        },
    }
    container = CGROUP / f"kubepods.slice/kubepods-podu_1.slice/cri-containerd-{INSTANCE}.scope"
    wanted = until(lambda: pod("gu")["containers"][0]["cpus"], "the kubelet's pod")
    until(lambda: grip(container)["cpuset.cpus.effective"] == wanted, "its container pinned")
    besteffort = CGROUP / "kubepods.slice/kubepods-besteffort.slice"
    burstable = CGROUP / "kubepods.slice/kubepods-burstable.slice"
    until(
        lambda: {grip(qos)["cpuset.cpus.effective"] for qos in (besteffort, burstable)} == {status()["cpus"]["shared"]},
        "the QoS slices narrowed",
    )
    groups = {"container": container, "besteffort": besteffort, "burstable": burstable, "pod": container.parent}
    first = {name: grip(group) for name, group in groups.items()}
    kept = {unit.name: properties(unit.name, "AllowedCPUs")["AllowedCPUs"] for unit in groups.values()}
    return {
        **done,
        "cpus": wanted,
        "shared": status()["cpus"]["shared"],
        **first,
        "kept": kept,
        "reloaded": told_again(groups),
        "problems": status()["problems"],
    }


def journal() -> Any:
    return {"lines": sh("journalctl", "--no-pager", "-u", "pinfold", "-o", "cat")["said"].splitlines()[-400:]}


def before_reboot() -> Any:
    sh("sync")
    return {"pods": [each for each in status()["pods"] if each["name"] != "gu"], "epoch": status()["epoch"]}


def after_reboot() -> Any:
    until(lambda: status()["ready"] or status()["problems"], "an answer")
    return {
        "pods": [each for each in status()["pods"] if each["name"] != "gu"],
        "epoch": status()["epoch"],
        **show("ActiveState", "NRestarts"),
        "db": grip(start_in("db", "main")),
    }


FIRST = (
    *(
        machine,
        install,
        start,
        exclusive,
        bubble,
        drift,
        scope,
        daemon_reload,
        restart,
        reload,
        host_services,
        offline,
        offline_shared,
        killed,
        watchdog,
    ),
    *(beside, before_reboot, journal),
)


def main() -> None:
    first = not (JOB / "out/first.json").exists()
    if first:
        shutil.copytree(JOB / "site", "/opt/pinfold/site")
        program = Path("/opt/pinfold/bin/pinfold")
        program.parent.mkdir()
        program.write_text('#!/bin/sh\nPYTHONPATH=/opt/pinfold/site exec /usr/bin/python3 -m agent "$@"\n')
        program.chmod(0o755)
        Path("/usr/local/bin/pinfold").symlink_to(program)
    for function in FIRST if first else (after_reboot, journal):
        step(function)
    (JOB / "out" / ("first.json" if first else "second.json")).write_text(json.dumps(SEEN, indent=1))


if __name__ == "__main__":
    main()
