"""The commands' side of the control socket (`agent.serve.control`)."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.errors import AgentError

CONTROL_SOCKET = Path("/run/pinfold/control.sock")
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # the status of a full node is far below


class AgentNotRunningError(AgentError):
    """Nobody answers on the control socket."""

    hint = "start the agent (systemctl start pinfold, or pinfold run), or name its socket with --socket"


class ControlSocketError(AgentError):
    """The control socket cannot be used, or its answer not be understood."""


class RemoteError(AgentError):
    """The agent's own error, as it would have been shown there. kind: its type's name."""

    def __init__(self, kind: str, message: str, hint: str, exit_status: int) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.exit_status = exit_status


class ControlClient:
    """Calls the agent at `path`. timeout_seconds: for each call as a whole step of the connection."""

    def __init__(self, path: Path = CONTROL_SOCKET, *, timeout_seconds: float = 30.0) -> None:
        self._path = path
        self._timeout_seconds = timeout_seconds

    def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """The method's result. Raises RemoteError where the agent refuses, AgentNotRunningError, ControlSocketError."""
        request = json.dumps({"method": method, "params": params}, separators=(",", ":")).encode() + b"\n"
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self._timeout_seconds)
                connection.connect(os.fspath(self._path))
                with contextlib.suppress(BrokenPipeError):  # refused before it was read: the answer says why
                    connection.sendall(request)
                with connection.makefile("rb") as answers:
                    answer = answers.readline(MAX_ANSWER_BYTES)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            raise AgentNotRunningError(f"{self._path}: no agent answers") from error
        except PermissionError as error:
            raise ControlSocketError(f"{self._path}: not permitted", hint="run the command as root") from error
        except OSError as error:
            raise ControlSocketError(
                f"{self._path}: {error}", hint="see whether the agent hangs or has just ended"
            ) from error
        return self._result(answer)

    def _result(self, answer: bytes) -> Mapping[str, Any]:
        try:
            decoded = json.loads(answer)
            if "error" not in decoded:
                result: Mapping[str, Any] = decoded["result"]
                return result
            told = decoded["error"]
            remote = RemoteError(str(told["kind"]), str(told["message"]), str(told["hint"]), int(told["exit_status"]))
        except (ValueError, KeyError, TypeError) as error:
            hint = "the agent ended meanwhile, or something else listens there"
            raise ControlSocketError(f"{self._path}: the answer is cut off or not ours", hint=hint) from error
        raise remote
