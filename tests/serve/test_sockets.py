"""Socket files in real directories, with real processes behind them."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.serve.sockets import SocketAccess, SocketFile, SocketInUseError, SocketPathError

LISTEN = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print(flush=True); input()"
)


def serve(file: SocketFile) -> socket.socket:
    """A server as the agent's are: claim, listen, expose."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(os.fspath(file.claim()))
    listener.listen()
    file.expose()
    return listener


def connects(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        return client.connect_ex(os.fspath(path)) == 0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pod-resources" / "kubelet.sock"


@pytest.fixture
def other_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that listens on `path`."""
    path.parent.mkdir()
    command = [sys.executable, "-c", LISTEN, os.fspath(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        process.stdout.readline()
        yield process
        process.kill()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_is_made_for_owner_and_group_and_the_socket_has_its_mode(path: Path) -> None:
    file = SocketFile(SocketAccess(path, mode=0o620))
    with serve(file):
        assert (mode_of(path.parent), mode_of(path)) == (0o750, 0o620)
        assert connects(path)


def test_a_directory_that_is_there_keeps_its_mode(path: Path) -> None:
    path.parent.mkdir()
    path.parent.chmod(0o700)
    with serve(SocketFile(SocketAccess(path))):
        assert mode_of(path.parent) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
def test_the_group_owns_the_socket_and_the_directory_that_was_made_for_it(path: Path) -> None:
    with serve(SocketFile(SocketAccess(path, group=12345))):
        assert (path.stat().st_gid, path.parent.stat().st_gid) == (12345, 12345)


def test_a_group_may_be_named(path: Path) -> None:
    import grp

    name = grp.getgrgid(os.getegid()).gr_name
    with serve(SocketFile(SocketAccess(path, group=name))):
        assert path.stat().st_gid == os.getegid()


def test_an_unknown_group_is_refused_by_name(path: Path) -> None:
    with pytest.raises(SocketPathError, match="no such group: 'no-such-group'") as refusal:
        SocketFile(SocketAccess(path, group="no-such-group")).claim()
    assert "groupadd" in refusal.value.hint
    assert not path.parent.exists()


def test_the_socket_of_a_dead_process_is_taken_over(path: Path, other_process: subprocess.Popen[str]) -> None:
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    assert path.is_socket()
    with serve(SocketFile(SocketAccess(path))):
        assert connects(path)


def test_the_socket_of_a_live_process_is_refused_by_its_name(path: Path, other_process: subprocess.Popen[str]) -> None:
    with pytest.raises(SocketInUseError, match=rf"kubelet\.sock: in use by process {other_process.pid} \(python"):
        SocketFile(SocketAccess(path)).claim()
    assert connects(path)


def test_a_process_that_lives_but_takes_no_connection_is_refused_too(path: Path) -> None:
    path.parent.mkdir()
    with (
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as first,
        socket.socket(socket.AF_UNIX) as second,
    ):
        listener.bind(os.fspath(path))
        listener.listen(0)
        for client in (first, second):
            client.setblocking(False)
            client.connect_ex(os.fspath(path))
        with pytest.raises(SocketInUseError):
            SocketFile(SocketAccess(path)).claim()


@pytest.mark.parametrize("kind", ["file", "symlink"])
def test_what_is_no_socket_is_left_alone(path: Path, kind: str) -> None:
    path.parent.mkdir()
    if kind == "file":
        path.write_text("precious")
    else:
        path.symlink_to("elsewhere")
    with pytest.raises(SocketPathError, match="exists and is not a socket"):
        SocketFile(SocketAccess(path)).claim()
    assert path.is_symlink() or path.read_text() == "precious"


def test_a_path_longer_than_the_kernel_allows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / "kubelet.sock"
    with pytest.raises(SocketPathError, match="longer than 102 bytes"):
        SocketFile(SocketAccess(path)).claim()
    assert not path.parent.exists()


def test_a_directory_that_cannot_be_made_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "occupied").write_text("")
    path = tmp_path / "occupied" / "kubelet.sock"
    with pytest.raises(SocketPathError, match=r"occupied/kubelet\.sock: .*occupied is not a directory"):
        SocketFile(SocketAccess(path)).claim()


def test_release_removes_our_socket(path: Path) -> None:
    file = SocketFile(SocketAccess(path))
    with serve(file):
        file.release()
    assert list(path.parent.iterdir()) == []


def test_release_leaves_the_socket_that_a_successor_has_put_there(path: Path) -> None:
    ours, successors = SocketFile(SocketAccess(path)), SocketFile(SocketAccess(path))
    serve(ours).close()
    with serve(successors):
        ours.release()
        assert connects(path)


def test_what_a_crash_left_before_its_socket_was_exposed_is_no_hindrance(path: Path) -> None:
    first = SocketFile(SocketAccess(path))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(first.claim()))
    listener.close()
    with serve(SocketFile(SocketAccess(path))):
        assert [one.name for one in path.parent.iterdir()] == ["kubelet.sock"]
