"""Boots the virtual node under qemu, software emulation: 2 sockets x 2 cores x 2 threads, 2 NUMA nodes, cgroup v2, systemd."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

BOOT_SECONDS = 1500.0  # one boot with everything that is done in it, on a busy machine
JOB_DISK = "700M"
# Without this CPU model threads do not show as siblings.
CPU = "max,vendor=GenuineIntel,family=6,model=85,stepping=7"
NUMA = [
    *("-object", "memory-backend-ram,id=m0,size=1G", "-object", "memory-backend-ram,id=m1,size=1G"),
    *("-numa", "node,nodeid=0,cpus=0-3,memdev=m0", "-numa", "node,nodeid=1,cpus=4-7,memdev=m1"),
    *("-numa", "dist,src=0,dst=1,val=21"),
]


class Machine:
    """One node. image: what `base_image` made. directory: for its disks and what it says."""

    def __init__(self, image: Path, job: Path, directory: Path) -> None:
        self._image = image
        self._directory = directory
        self._root, self._job = directory / "root.qcow2", directory / "job.img"
        backing = ["-b", str(image / "disk.qcow2"), "-F", "qcow2"]
        _run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(self._root)])
        _run(["mke2fs", "-q", "-t", "ext4", "-L", "job", "-d", str(job), str(self._job), JOB_DISK])

    def boot(self) -> None:
        """Let it run until it powers off. One of ten boots dies in qemu's MSI-X code, hence no vectors."""
        console = self._directory / "console.log"
        drives = [
            option
            for name, disk, kind in (("root", self._root, "qcow2"), ("job", self._job, "raw"))
            for option in (
                *("-drive", f"file={disk},if=none,id={name},format={kind},cache=unsafe"),
                *("-device", f"virtio-blk-pci,drive={name},vectors=0"),
            )
        ]
        command = [
            *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", CPU, "-m", "2048"),
            *("-smp", "8,sockets=2,cores=2,threads=2", *NUMA, *drives, "-nodefaults", "-no-user-config"),
            *("-display", "none", "-no-reboot", "-serial", f"file:{console}"),
            *("-kernel", str(self._image / "vmlinuz"), "-initrd", str(self._image / "initrd")),
            *("-append", "root=/dev/vda rw console=ttyS0 mitigations=off nokaslr quiet"),
        ]
        try:
            _run(command, BOOT_SECONDS)
        except AssertionError as error:
            tail = console.read_text(errors="replace")[-3000:] if console.exists() else ""
            raise AssertionError(f"{error}\n{tail}") from error

    def out(self) -> Path:
        """What it left in /job/out."""
        found = self._directory / "out"
        shutil.rmtree(found, ignore_errors=True)
        _run(["debugfs", "-R", f"rdump /out {self._directory}", str(self._job)])
        return found


def _run(command: list[str], seconds: float = 120.0) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise AssertionError(f"{command[0]} did not end within {seconds} s") from error
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
