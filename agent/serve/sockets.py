"""Unix socket files: where they may be made, who may connect, and whose they are.

A server binds beside the final name and the file is then moved there, ready: no client ever meets a socket with wrong
permissions, and one that a dead process left behind is replaced in one step.
"""

from __future__ import annotations

import contextlib
import errno
import grp
import os
import socket
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.errors import AgentError

DIRECTORY_MODE = 0o750  # as the kubelet's pod-resources directory
SOCKET_MODE = 0o660
_MAX_PATH_BYTES = 107  # sun_path of sockaddr_un is 108 bytes with its NUL (unix(7))
_CONNECT_SECONDS = 1.0
_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid


class SocketInUseError(AgentError):
    """Another process answers on the socket."""

    hint = "stop that process, or configure another socket path"

    def __init__(self, path: Path, owner: str) -> None:
        super().__init__(f"{path}: in use by {owner}")


class SocketPathError(AgentError):
    """A socket cannot be made at this path."""

    def __init__(self, path: Path, why: str, hint: str) -> None:
        super().__init__(f"{path}: {why}", hint=hint)


@dataclass(frozen=True, slots=True)
class SocketAccess:
    """path: of the socket file. mode: its permission bits; a client needs write permission to connect.

    group: name or number of the group that owns the file, and its directory where that is made; None leaves the process' own.
    """

    path: Path
    mode: int = SOCKET_MODE
    group: str | int | None = None


def refuse_taken(paths: Iterable[Path]) -> None:
    """Before anything is decided: raise SocketInUseError where a live process listens at one of these paths."""
    for path in paths:
        try:
            _refuse_live(path)
        except OSError as error:
            raise _path_error(path, error) from error


class SocketFile:
    """One socket file: `claim` its path, bind a server there, `expose` it, and in the end `release` it."""

    def __init__(self, access: SocketAccess) -> None:
        self.access = access
        self._bound = access.path.with_name(f".{access.path.name}.new")
        self._identity: tuple[int, int] | None = None

    def check(self) -> None:
        """Raise SocketPathError where no socket can be made, as far as that shows without making one."""
        path = self.access.path
        if len(os.fsencode(self._bound)) > _MAX_PATH_BYTES:
            limit = _MAX_PATH_BYTES - len(".new") - 1
            raise SocketPathError(path, f"longer than {limit} bytes", "configure a shorter socket path")
        self._gid()
        there = next(each for each in path.parents if os.path.lexists(each))
        if not there.is_dir():
            raise SocketPathError(path, f"{there} is not a directory", "remove it, or configure another socket path")
        if os.path.lexists(path) and not path.is_socket():
            raise _no_socket(path)

    def claim(self) -> Path:
        """Make the directory and return the path to bind.

        Raises SocketInUseError where a live process listens at the final path, SocketPathError where no socket can be made.
        """
        self.check()
        path, gid = self.access.path, self._gid()
        try:
            _make_directory(path.parent, gid)
            _refuse_live(path)
            self._bound.unlink(missing_ok=True)  # of a process that died between bind and expose
        except OSError as error:
            raise _path_error(path, error) from error
        return self._bound

    def expose(self) -> None:
        """Give the bound socket its owner and mode, then its final name. Raises SocketPathError."""
        try:
            gid = self._gid()
            if gid is not None:
                os.chown(self._bound, -1, gid)
            self._bound.chmod(self.access.mode)
            self._identity = _identity(self._bound)
            self._bound.rename(self.access.path)
        except OSError as error:
            raise _path_error(self.access.path, error) from error

    def release(self) -> None:
        """Remove the file, unless another process has put its own there since."""
        self._bound.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it already
            if self._identity is not None and _identity(self.access.path) == self._identity:
                self.access.path.unlink()
        self._identity = None

    def _gid(self) -> int | None:
        group = self.access.group
        if group is None or isinstance(group, int):
            return group
        try:
            return grp.getgrnam(group).gr_gid
        except KeyError as error:
            hint = f"create it (groupadd --system {group}) or configure another one"
            raise SocketPathError(self.access.path, f"no such group: {group!r}", hint) from error


def _identity(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


def _make_directory(directory: Path, gid: int | None) -> None:
    """Make the directory with our permissions; one that is there already keeps its own."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    try:
        directory.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        return
    directory.chmod(DIRECTORY_MODE)  # whatever the umask took away
    if gid is not None:
        os.chown(directory, -1, gid)


def _refuse_live(path: Path) -> None:
    """Return if nothing is there, or only a socket on which nobody listens."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise _no_socket(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_SECONDS)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return
        except (TimeoutError, BlockingIOError) as error:  # its queue is full: it lives, however badly
            raise SocketInUseError(path, "a process that does not answer") from error
        pid = _PEER.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[0]
    raise SocketInUseError(path, _describe(pid))


def _no_socket(path: Path) -> SocketPathError:
    return SocketPathError(path, "exists and is not a socket", "remove it, or configure another socket path")


def _describe(pid: int) -> str:
    try:
        name = Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:  # gone meanwhile, or in another pid namespace
        return f"process {pid}"
    return f"process {pid} ({name})"


def _path_error(path: Path, error: OSError) -> SocketPathError:
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        hint = "run the agent as a user that may write there, or configure another socket path or group"
    else:
        hint = "make the directory usable, or configure another socket path"
    return SocketPathError(path, error.strerror or str(error), hint)
