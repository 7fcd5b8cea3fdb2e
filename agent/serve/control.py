"""The control socket: what changes anything, for root on this machine only.

One JSON object a line, answered by one line: {"method": "status", "params": {}} -> {"result": {...}}, or
{"error": {"kind", "message", "hint", "exit_status"}}. What the methods do is the caller's handler; the client's side is
`agent.serve.control_client`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from agent.errors import AgentError, BadInputError
from agent.formats.documents import MAX_BYTES as MAX_MANIFEST_BYTES
from agent.serve.sockets import SocketAccess, SocketFile

# explain carries a manifest, in the worst case with every byte of it as an escape of six (\u0000); the rest is a few words
MAX_REQUEST_BYTES = 6 * MAX_MANIFEST_BYTES + 64 * 1024
MAX_CONNECTIONS = 16
IDLE_SECONDS = 30.0  # after that a silent client loses its connection
_BACKLOG = 128  # a full queue makes connect(2) fail at once where the client has a time limit

_PEER = struct.Struct("3i")  # struct ucred: pid, uid, gid
_log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


class ControlRequestError(BadInputError):
    """A request that is no request."""

    hint = 'send one JSON object a line: {"method": "status", "params": {}}'


class ControlDeniedError(AgentError):
    """The peer may not use the control socket."""

    hint = "run the command as root"


class ControlBusyError(AgentError):
    """Too many clients at once."""

    hint = "try again in a moment"


class ControlServer:
    """Answers on `path` (mode 0600) in threads of its own; use as a context manager, or `start` and `stop`.

    handler: called with the method and its parameters, by one thread at a time. An AgentError that it raises is answered
    as it is; anything else is a bug, logged here and answered without details.
    """

    def __init__(self, path: Path, handler: Handler) -> None:
        self._handler = handler
        self._file = SocketFile(SocketAccess(path, mode=0o600))
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._one_at_a_time = threading.Lock()
        self._clients: set[socket.socket] = set()
        self._clients_lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, name="control", daemon=True)

    def start(self) -> None:
        """Listen. Raises SocketInUseError while another process answers there, SocketPathError where no socket can be made."""
        self._socket.bind(os.fspath(self._file.claim()))
        self._socket.listen(_BACKLOG)
        self._file.expose()
        self._thread.start()

    def stop(self) -> None:
        """Answer nobody any more and remove the socket file. A request under way still gets its answer."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread; close alone would not
        self._thread.join()
        self._socket.close()
        with self._clients_lock:
            for client in self._clients:
                with contextlib.suppress(OSError):  # it went away by itself
                    client.shutdown(socket.SHUT_RD)
        self._file.release()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return  # stopped
            client.settimeout(IDLE_SECONDS)
            with self._clients_lock:
                full = len(self._clients) >= MAX_CONNECTIONS
                if not full:
                    self._clients.add(client)
            if full:
                _refuse(client, ControlBusyError(f"{MAX_CONNECTIONS} control connections are open already"))
            else:
                threading.Thread(target=self._serve, args=(client,), name="control-client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            uid = _PEER.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))[1]
            if uid not in (0, os.geteuid()):
                client.sendall(_line(_error(ControlDeniedError(f"uid {uid} may not control the agent"))))
                return
            with client.makefile("rb") as requests:
                while request := requests.readline(MAX_REQUEST_BYTES + 1):
                    client.sendall(_line(self._answer(request)))
                    if not request.endswith(b"\n"):
                        return  # too long, or cut off: where the next request begins is unknown
        except OSError:
            return  # the client went away or fell silent
        finally:
            with self._clients_lock:
                self._clients.discard(client)
            client.close()

    def _answer(self, request: bytes) -> Mapping[str, Any]:
        try:
            method, params = _decode(request)
            with self._one_at_a_time:
                return {"result": self._handler(method, params)}
        except AgentError as error:
            return _error(error)
        except Exception:  # noqa: BLE001 - one bad request must not end the server; the log has the traceback
            _log.exception("control request failed")
            return _error(
                AgentError("internal error in the agent", hint="see the agent's log, and report this as a bug")
            )


def _refuse(client: socket.socket, error: AgentError) -> None:
    with client, contextlib.suppress(OSError):  # whoever does not wait for the answer does not miss it
        client.sendall(_line(_error(error)))


def _decode(request: bytes) -> tuple[str, Mapping[str, Any]]:
    if not request.endswith(b"\n"):
        raise ControlRequestError(f"control request without an end within {MAX_REQUEST_BYTES} bytes")
    try:
        decoded = json.loads(request)
    except (ValueError, RecursionError) as error:
        raise ControlRequestError("control request is not JSON") from error
    if not isinstance(decoded, dict) or not isinstance(decoded.get("method"), str):
        raise ControlRequestError("control request without a method")
    params = decoded.get("params", {})
    if not isinstance(params, dict):
        raise ControlRequestError(f"control request {decoded['method'][:40]!r}: params is not an object")
    return decoded["method"], params


def _error(error: AgentError) -> Mapping[str, Any]:
    return {
        "error": {
            "kind": type(error).__name__,
            "message": str(error),
            "hint": error.hint,
            "exit_status": error.exit_status,
        }
    }


def _line(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer, separators=(",", ":")).encode() + b"\n"
