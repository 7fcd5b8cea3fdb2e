"""The offline bundle: everything that a node without a network needs to install pinfold, in one archive with checksums.

`python -m release.bundle [--python 3.11] [--output dist]`, in a checkout, on a machine with a network. What is in it:
wheels/ (pinfold, what it depends on, pip), install.sh, BUNDLE.txt (what this is and for which machines), SHA256SUMS. The units,
the man page and the completions are in pinfold's wheel.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.version import commit

CHECKOUT = Path(__file__).resolve().parents[1]
INSTALLER = Path(__file__).with_name("install.sh")
# manylinux wheels that run on glibc 2.34 and later, Debian 12's and RHEL 9's; pip takes no ranges
PLATFORMS = ("manylinux2014", "manylinux_2_17", "manylinux_2_28", "manylinux_2_34")


class BuildError(Exception):
    """A tool that the bundle is made with failed; the text is what it said."""


def project() -> dict[str, object]:
    """The table `project` of pyproject.toml."""
    table: dict[str, object] = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def requirements() -> tuple[str, ...]:
    """What pinfold depends on at run time, as pyproject.toml says."""
    found = project()["dependencies"]
    assert isinstance(found, list)
    return tuple(map(str, found))


def download(wanted: Sequence[str], directory: Path, python: str, machine: str) -> None:
    """Wheels of `wanted` and of all they depend on, for CPython `python` ("3.11") on `machine` ("x86_64")."""
    abi = f"cp{python.replace('.', '')}"
    target = [f"--python-version={python}", "--implementation=cp", f"--abi={abi}", "--abi=abi3", "--abi=none"]
    platforms = [f"--platform={name}_{machine}" for name in PLATFORMS]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", f"--dest={directory}"]
    run([*pip, *target, *platforms, *wanted])


def build_wheel(directory: Path) -> Path:
    """pinfold's own wheel, of the checkout as it is."""
    run([sys.executable, "-m", "build", "--wheel", f"--outdir={directory}", str(CHECKOUT)])
    (wheel,) = directory.glob("pinfold-*.whl")
    return wheel


def make(output: Path, python: str, machine: str) -> Path:
    """The archive, below `output`, with its checksum beside it. Raises BuildError."""
    name = f"pinfold-{project()['version']}-offline-cp{python.replace('.', '')}-linux_{machine}"
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary) / name
        wheels = root / "wheels"
        wheels.mkdir(parents=True)
        own = build_wheel(wheels)
        download([*requirements(), "pip"], wheels, python, machine)
        shutil.copy(INSTALLER, root / "install.sh")
        (root / "BUNDLE.txt").write_text(_about(own, python, machine), encoding="utf-8")
        (root / "SHA256SUMS").write_text(_sums(root), encoding="ascii")
        output.mkdir(parents=True, exist_ok=True)
        archive = output / f"{name}.tar.gz"
        pack(root, archive)
    archive.with_name(f"{archive.name}.sha256").write_text(f"{_sha256(archive)}  {archive.name}\n", encoding="ascii")
    return archive


def _about(own: Path, python: str, machine: str) -> str:
    return (
        f"{own.stem}, commit {commit()}\nneeds Python {python} and {machine}, glibc 2.34 or later, systemd 252 or later\n"
        "as root: ./install.sh    (./install.sh --help says what it does)\n"
    )


def _sums(root: Path) -> str:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    return "".join(f"{_sha256(path)}  {path.relative_to(root)}\n" for path in files)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def pack(root: Path, archive: Path) -> None:
    """`root` as a .tar.gz; the same files give the same bytes, whoever packs them and when."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = "root"
        member.mtime = 0
        member.mode = 0o755 if member.isdir() or member.name.endswith(".sh") else 0o644
        return member

    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in [root, *sorted(root.rglob("*"))]:
            tar.add(path, str(path.relative_to(root.parent)), recursive=False, filter=plain)


def run(command: Sequence[str], directory: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What a command that must succeed wrote, both streams. environment: all of it, None for ours. Raises BuildError."""
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BuildError(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m release.bundle", description=__doc__)
    parser.add_argument("--python", default=f"{sys.version_info.major}.{sys.version_info.minor}", help="of the nodes")
    parser.add_argument("--machine", default=platform.machine(), help="of the nodes, as uname -m says")
    parser.add_argument("--output", type=Path, default=CHECKOUT / "dist")
    arguments = parser.parse_args()
    try:
        print(make(arguments.output, arguments.python, arguments.machine))
    except BuildError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
