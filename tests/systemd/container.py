"""Boots a root file system with systemd as PID 1, runs one program in it and powers it off (systemd-nspawn(1)).

The root is an overlay in memory: what happens inside is forgotten, except for what the program writes to /out. cgroup v1
controllers are the host's own, so whoever uses them names a group to be removed afterwards.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
BOOT_SECONDS = 300.0  # everything in it, on a busy machine
_UNIT = """\
[Unit]
Description=The checks of this container
[Service]
Type=exec
ExecStart=/usr/bin/python3 -u /job/inside.py
ExecStopPost=/bin/systemctl --no-block poweroff
StandardOutput=append:/out/log
StandardError=append:/out/log
"""


def boot(root: Path, job: Path, out: Path, binds: Mapping[str, Path], group: str) -> None:
    """Boot `root` with `job` at /job, run /job/inside.py there until it ends, and power off.

    binds: path inside -> directory, read-only. group: cgroups of this name are removed afterwards wherever they are, with
    what runs in them.
    """
    (job / "checks.service").write_text(_UNIT)
    wanted = job / "multi-user.target.d"
    wanted.mkdir()
    (wanted / "checks.conf").write_text("[Unit]\nWants=checks.service\n")
    units = "/etc/systemd/system"
    shown = {
        "/job": job,
        f"{units}/checks.service": job / "checks.service",
        f"{units}/{wanted.name}": wanted,
        **binds,
    }
    command = [
        *("systemd-nspawn", "--quiet", f"--directory={root}", "--volatile=overlay", "--private-network"),
        *("--register=no", "--console=pipe", f"--bind={out}:/out"),
        *(f"--bind-ro={path}:{inside}" for inside, path in shown.items()),
        "--boot",
    ]
    with _own_cgroup(group) as (enter, option):
        try:
            _run([*enter, *command, *option])
        finally:
            _remove_groups(group)


def run_in(root: Path, script: str, binds: Mapping[str, Path], group: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in `root` without booting it; what it wrote, both streams together. No network, nothing is kept."""
    command = [
        *("systemd-nspawn", "--quiet", f"--directory={root}", "--volatile=overlay", "--private-network"),
        *(
            "--register=no",
            "--console=pipe",
            "--as-pid2",
            *(f"--bind-ro={path}:{name}" for name, path in binds.items()),
        ),
    ]
    with _own_cgroup(group) as (enter, option):
        try:
            return subprocess.run(
                [*enter, *command, *option, "/bin/sh", "-euc", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=BOOT_SECONDS,
                check=False,
            )
        finally:
            _remove_groups(group)


def _run(command: list[str]) -> None:
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = process.communicate(timeout=BOOT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()  # its PID 1 dies with it
        said, _ = process.communicate()
        raise AssertionError(f"the container did not power off within {BOOT_SECONDS} s: {said}") from None
    assert process.returncode == 0, f"systemd-nspawn ended with {process.returncode}: {said}"


@contextlib.contextmanager
def _own_cgroup(name: str) -> Iterator[tuple[list[str], list[str]]]:
    """A cgroup for nspawn to make `payload` and `supervisor` in, where this machine's PID 1 is not systemd.

    Without one they would be made at the root, and two containers at the same time would share them. Gives the words in
    front of the command that enter it, and the option behind it.
    """
    if Path("/run/systemd/system").is_dir():
        yield [], []  # nspawn asks systemd for a scope
        return
    groups = [path / name for path in (CGROUPS / "systemd", CGROUPS / "unified") if (path / "cgroup.procs").exists()]
    for group in groups:
        group.mkdir()
    enter = "".join(f"echo $$ > {group}/cgroup.procs; " for group in groups)
    yield ["/bin/sh", "-euc", f'{enter}exec "$@"', "sh"], ["--keep-unit"]


def _remove_groups(name: str) -> None:
    """Kill what is left in cgroups of this name and remove them; a killed task leaves its group a moment later."""
    end = time.monotonic() + 30.0
    while left := [Path(path) for path, _, _ in os.walk(CGROUPS, topdown=False) if name in Path(path).parts]:
        assert time.monotonic() < end, f"cgroups that cannot be removed: {left}"
        for path in left:
            with contextlib.suppress(OSError):
                for pid in (path / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)
            with contextlib.suppress(OSError):
                path.rmdir()
        time.sleep(0.02)
