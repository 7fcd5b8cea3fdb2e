"""Captured machines as archives: every usual form, and nothing that a hostile one could do."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import agent.node.archive
from agent.node.archive import ArchiveError, open_sysroot
from agent.node.topology import read_topology
from tests.node.sysfs_machines import tree_files
from tests.node.sysfs_tree import regular, write_tree

ONLINE = "sys/devices/system/cpu/online"


def packed(files: dict[str, str], *extra: tarfile.TarInfo, prefix: str = "") -> bytes:
    """A plain tar of these files, and of members without content."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, text in files.items():
            member = tarfile.TarInfo(prefix + name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode("ascii")))
        for member in extra:
            tar.addfile(member)
    return target.getvalue()


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


def archive(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "machine.tar"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("compress", [bytes, gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("prefix", ["", "./", "machine/"])
def test_an_archive_reads_as_its_tree_and_is_removed(
    tmp_path: Path, compress: Callable[[bytes], bytes], prefix: str
) -> None:
    tree = write_tree(tmp_path / "tree", regular(packages=2, hugepages={2048: (1, 1)}))
    path = archive(tmp_path, compress(packed(tree_files(tree), prefix=prefix)))
    with open_sysroot(path) as root:
        assert read_topology(root) == read_topology(tree)
    assert not root.exists()


def test_a_directory_is_used_in_place(tmp_path: Path) -> None:
    with open_sysroot(tmp_path) as root:
        assert root == tmp_path
    assert tmp_path.exists()


def test_links_are_names_only_and_other_members_are_left_out(tmp_path: Path) -> None:
    members = (
        link("sys/devices/system/node/node0/cpu0", "../../../../../../../etc/passwd"),
        link("sys/devices/system/cpu/leak", "/etc/passwd"),
        link("sys/devices/system/cpu/null", "", tarfile.CHRTYPE),
    )
    with open_sysroot(archive(tmp_path, packed({ONLINE: "0\n", "etc/shadow": "x", "../x": "y"}, *members))) as root:
        assert {path for path in root.rglob("*") if path.is_symlink()} == set()
        assert (root / "sys/devices/system/node/node0/cpu0").read_bytes() == b""
        assert (root / "sys/devices/system/cpu/null").read_bytes() == b""
        assert not (root / "etc").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["machine.tar"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"", "cannot be unpacked: empty file", id="empty"),
        pytest.param(b"no archive at all", "cannot be unpacked", id="text"),
        pytest.param(gzip.compress(packed({ONLINE: "0\n" * 9000}))[:60], "cannot be unpacked", id="truncated gzip"),
        pytest.param(lzma.compress(packed({ONLINE: "0\n" * 9000}))[:-40], "cannot be unpacked", id="truncated xz"),
        pytest.param(packed({"sys/kernel/mm/hugepages/../../x": "0\n"}), "leads out of the archive", id="dots"),
        pytest.param(packed({f"a/{ONLINE}": "0\n", f"b/{ONLINE}": "0\n"}), "several machines", id="two machines"),
        pytest.param(packed({ONLINE: "0" * (1 << 21)}), "which no file of sysfs has", id="huge member"),
        pytest.param(
            packed({}, link("sys/devices/system/cpu/x", ONLINE, tarfile.LNKTYPE)), "is a hard link", id="hard link"
        ),
    ],
)
def test_unusable_archives_are_refused_with_their_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = archive(tmp_path, content)
    with pytest.raises(ArchiveError, match=message) as caught, open_sysroot(path):
        pass
    assert str(path) in str(caught.value)
    assert caught.value.exit_status == 2


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent.node.archive, "MAX_UNPACKED_BYTES", 1 << 20)
    path = archive(tmp_path, gzip.compress(packed({"elsewhere": "0" * (2 << 20)})))
    with pytest.raises(ArchiveError, match="unpacks to more than 1048576 bytes"), open_sysroot(path):
        pass


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent.node.archive, "MAX_MEMBERS", 3)
    path = archive(tmp_path, packed({f"x{n}": "" for n in range(5)}))
    with pytest.raises(ArchiveError, match="more than 3 members"), open_sysroot(path):
        pass
