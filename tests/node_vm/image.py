"""The virtual node's disk: a Debian with systemd, udev and a kernel, as a qcow2 image that is kept outside the tree.

A unit in it mounts the disk labelled `job`, runs its `run.sh` and powers off: no network, no ssh. Made without mounts and loop
devices, so that it can be made anywhere (mmdebstrap(1), mke2fs -d).
"""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from tests.systemd.cache import OPTIONS, SUITE, kept, run

PACKAGES = (
    *("systemd", "systemd-sysv", "udev", "dbus", "kmod", "linux-image-cloud-amd64", "initramfs-tools"),
    *("python3", "procps", "util-linux"),
)
MODULES = ("virtio_pci", "virtio_blk", "ext4")
DISK = "6G"
_UNIT = """\
[Unit]
Description=The job on the second disk
ConditionPathExists=/dev/disk/by-label/job
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'mkdir -p /job && mount /dev/disk/by-label/job /job && /bin/sh /job/run.sh > /job/out/log 2>&1'
ExecStopPost=/bin/sh -c 'sync; umount /job; poweroff -f'
TimeoutStartSec=infinity
[Install]
WantedBy=default.target
"""
_SETUP = (
    "--customize-hook=printf '%s\\n' " + " ".join(MODULES) + ' >> "$1/etc/initramfs-tools/modules"',
    '--customize-hook=sed -i s/^MODULES=.*/MODULES=list/ "$1/etc/initramfs-tools/initramfs.conf"',
    '--customize-hook=chroot "$1" update-initramfs -u',
    "--customize-hook=printf '%s' '" + _UNIT.replace("'", "'\\''") + '\' > "$1/etc/systemd/system/job.service"',
    '--customize-hook=chroot "$1" systemctl enable job.service',
    '--customize-hook=echo 127.0.0.1 localhost node > "$1/etc/hosts"; echo node > "$1/etc/hostname"',
)


def base_image() -> Path:
    """A directory with disk.qcow2, vmlinuz and initrd; nobody may change it."""
    recipe = (*OPTIONS, f"--include={','.join(PACKAGES)}", *_SETUP, SUITE, DISK)

    def build(directory: Path) -> None:
        directory.mkdir()
        tar, root, disk = directory / "root.tar", directory / "root", directory / "disk.raw"
        run(["mmdebstrap", *OPTIONS, f"--include={','.join(PACKAGES)}", *_SETUP, SUITE, str(tar)])
        with tarfile.open(tar) as archive:
            for member in archive:
                name = Path(member.name).name
                if (
                    member.isfile()
                    and Path(member.name).parent.name == "boot"
                    and name.startswith(("vmlinuz-", "initrd.img-"))
                ):
                    content = archive.extractfile(member)
                    assert content is not None
                    (directory / name.split("-")[0].removesuffix(".img")).write_bytes(content.read())
        root.mkdir()
        run(["tar", "-C", str(root), "-xf", str(tar), "--exclude=./dev/*", "--exclude=dev/*"])
        run(["mke2fs", "-q", "-t", "ext4", "-L", "root", "-d", str(root), str(disk), DISK])
        run(["qemu-img", "convert", "-O", "qcow2", str(disk), str(directory / "disk.qcow2")])
        for left in (tar, disk):
            left.unlink()
        shutil.rmtree(root)

    return kept("vm", recipe, build)
