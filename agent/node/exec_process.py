"""Runs a command inside cgroups: a child joins them and becomes the command; the parent stays outside, forwards signals, waits.

The child is there before its cgroups are, because a scope of systemd's begins around a process: it waits until the parent says
where to go, and ends if the parent does.

The parent form serves every container, because somebody has to see an init container's exit code; it costs one idle process. If
the parent is killed the command goes on, and nobody learns how it ended.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agent.errors import AgentError
from agent.model.cpuset import MAX_CPUS
from agent.node.cgroup_errors import Action, explain

# What people and service managers send to end, reload or poke a command. Stop signals keep their effect on both processes.
_FORWARDED = frozenset({signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2})
_WAITED = _FORWARDED | {signal.SIGCHLD}
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores these two, and ignoring survives exec


class CommandNotStartedError(AgentError):
    """The command cannot be executed; exit status as a shell's: 127 not found, 126 not executable."""

    def __init__(self, command: str, number: int) -> None:
        super().__init__(f"{command}: {os.strerror(number)}", hint="give a command that exists and is executable")
        self.exit_status = 127 if number in (errno.ENOENT, errno.ENOTDIR) else 126


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended: exit_code, or the signal that killed it; the other is None."""

    exit_code: int | None
    signal: int | None = None


def run_in_cgroups(prepare: Callable[[int], Sequence[Path]], command: Sequence[str]) -> Ended:
    """Run `command` in cgroups and wait for its end.

    prepare: given the process that will become the command, has the cgroups ready and gives their directories (one on v2, one
    for each controller on v1); what it raises, ends this. The command's affinity starts as the cgroup's CPUs, whatever the
    caller's own was. Raises CgroupError where a cgroup cannot be joined, CommandNotStartedError where the command cannot be
    executed; then nothing has run.
    """
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # the caller has closed it
            stream.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored by some callers, and then there is nothing to wait for
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
    try:
        where, going = os.pipe2(os.O_CLOEXEC)
        reading, writing = os.pipe2(os.O_CLOEXEC)
        pid = os.fork()
        if pid == 0:
            os.close(going)  # or it would not notice the end of its parent
            _become(where, command, before, writing)
        os.close(where)
        os.close(writing)
        with os.fdopen(reading, "rb") as failure:
            directories = _told(prepare, pid, going, before)
            told = failure.read()  # ends when exec closes the pipe
        if told:
            os.waitpid(pid, 0)
            raise _failure(told.decode(), directories, command)
        return _wait(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _told(
    prepare: Callable[[int], Sequence[Path]], pid: int, going: int, mask: set[int | signal.Signals]
) -> Sequence[Path]:
    """Tell the waiting child where to go. A signal while the cgroups are being made ends both."""
    try:
        with os.fdopen(going, "wb") as go:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            try:
                directories = prepare(pid)
            finally:
                signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED)
            go.write(b"\0".join(os.fsencode(path) for path in directories))
    except BaseException:
        os.waitpid(pid, 0)
        raise
    return directories


def _become(where: int, command: Sequence[str], mask: set[int | signal.Signals], failure: int) -> NoReturn:
    """In the child: join, then exec. A failure goes to the parent as "<index of the directory, or -1> <errno>"."""
    joining = 0
    try:
        with os.fdopen(where, "rb") as told:
            directories = told.read()
        if not directories:
            os._exit(127)  # refused, or the parent is gone
        for joining, directory in enumerate(directories.split(b"\0")):  # noqa: B007 - read below, where one fails
            fd = os.open(directory + b"/cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            os.write(fd, b"0")  # 0 is the writer itself
            os.close(fd)
        joining = -1
        # An affinity set by taskset or the like is inherited and would keep the command off CPUs of its grant.
        os.sched_setaffinity(0, range(MAX_CPUS))
        for number in _RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.execvp(command[0], list(command))
    except OSError as error:
        os.write(failure, f"{joining} {error.errno}".encode())
    finally:
        os._exit(127)


def _failure(told: str, directories: Sequence[Path], command: Sequence[str]) -> AgentError:
    joining, number = (int(part) for part in told.split())
    if joining < 0:
        return CommandNotStartedError(command[0], number)
    directory = directories[joining]
    version = 2 if (directory / "cgroup.controllers").exists() else 1
    return explain(version, Action.ATTACH, directory, OSError(number, os.strerror(number)))


def _wait(pid: int) -> Ended:
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return Ended(code) if code >= 0 else Ended(None, -code)
        info = signal.sigwaitinfo(_WAITED)
        # From the keyboard (si_code > 0: the kernel) the command has had it too, being in the same process group.
        if info.si_signo != signal.SIGCHLD and info.si_code <= 0:
            os.kill(pid, info.si_signo)
