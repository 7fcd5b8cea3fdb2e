"""What the agent tells `pinfold exec` to do, and what it hears back: the values of two methods of the control socket.

exec-prepare  {"pod": "[NAMESPACE/]NAME", "container", "pid", "started"} -> ExecGrant: the cgroups are there, with the grant in
              force. pid, started: ExecRequest; left out by clients that cannot be moved by systemd
exec-finished {"uid", "container", "exit_code", "signal"} -> {}: the command ended; exit_code or signal is null
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agent.errors import AgentError

PREPARE = "exec-prepare"
FINISHED = "exec-finished"


class ExecGrantError(AgentError):
    """The agent's answer does not say where to run."""

    hint = "agent and command are of different versions: restart the agent"


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """pod: [NAMESPACE/]NAME. pid: the process that waits to become the command, 0 for none. started: when it began, in ticks
    after the boot (proc(5), /proc/PID/stat), so that no other process is taken for it."""

    pod: str
    container: str
    pid: int = 0
    started: int = 0

    def encode(self) -> dict[str, Any]:
        """The parameters of exec-prepare."""
        return {"pod": self.pod, "container": self.container, "pid": self.pid, "started": self.started}

    @classmethod
    def decode(cls, params: Mapping[str, Any]) -> Self:
        """Read the parameters of exec-prepare. Raises ExecGrantError."""
        pid, started = params.get("pid", 0), params.get("started", 0)
        if type(pid) is not int or type(started) is not int or pid < 0:
            raise ExecGrantError("exec-prepare wants pid and started as numbers")
        return cls(str(params.get("pod", "")), str(params.get("container", "")), pid, started)


@dataclass(frozen=True, slots=True)
class ExecGrant:
    """cgroups: directories to join, each by its cgroup.procs. cpus, mems: lists as in the kernel, for people.

    exclusive: the CPUs are this container's alone. must_report: the pod waits for this command's end (an init container).
    """

    uid: str
    container: str
    cgroups: tuple[Path, ...]
    cpus: str = ""
    mems: str = ""
    exclusive: bool = False
    must_report: bool = False

    def encode(self) -> dict[str, Any]:
        """The result of exec-prepare."""
        return {
            "uid": self.uid,
            "container": self.container,
            "cgroups": [str(path) for path in self.cgroups],
            "cpus": self.cpus,
            "mems": self.mems,
            "exclusive": self.exclusive,
            "must_report": self.must_report,
        }

    @classmethod
    def decode(cls, result: Mapping[str, Any]) -> Self:
        """Read a result of exec-prepare; unknown fields are left out. Raises ExecGrantError."""
        try:
            grant = cls(
                uid=str(result["uid"]),
                container=str(result["container"]),
                cgroups=tuple(Path(path) for path in result["cgroups"]),
                cpus=str(result["cpus"]),
                mems=str(result["mems"]),
                exclusive=bool(result["exclusive"]),
                must_report=bool(result["must_report"]),
            )
        except (KeyError, TypeError) as error:
            raise ExecGrantError("the agent's answer to exec-prepare lacks a field") from error
        if not all(path.is_absolute() for path in grant.cgroups):
            raise ExecGrantError("the agent's answer to exec-prepare names a relative cgroup directory")
        return grant


@dataclass(frozen=True, slots=True)
class ExecFinished:
    """How a command ended: with an exit code, or by a signal; the other is None."""

    uid: str
    container: str
    exit_code: int | None
    signal: int | None = None

    def encode(self) -> dict[str, Any]:
        """The parameters of exec-finished."""
        return {"uid": self.uid, "container": self.container, "exit_code": self.exit_code, "signal": self.signal}

    @classmethod
    def decode(cls, params: Mapping[str, Any]) -> Self:
        """Read the parameters of exec-finished. Raises ExecGrantError."""
        uid, container = params.get("uid"), params.get("container")
        code, number = params.get("exit_code"), params.get("signal")
        if not isinstance(uid, str) or not isinstance(container, str):
            raise ExecGrantError("exec-finished without uid and container")
        if (code is None) == (number is None) or type(code if number is None else number) is not int:  # no bool
            raise ExecGrantError("exec-finished needs exactly one of exit_code and signal, as a number")
        return cls(uid, container, code, number)
