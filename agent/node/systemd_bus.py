"""A client of the service manager: unit properties, transient slices and scopes (org.freedesktop.systemd1(5)).

Every call has a connection of its own: systemd sends its signals to whoever stays connected to its private socket, asked or
not, and cuts off who does not read them. A manager that does not answer is left alone for a while, because the agent's loop
waits for it.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, MessageType, Parser, new_method_call
from jeepney.auth import BEGIN, AuthenticationError, Authenticator

from agent.node.cgroup_errors import CgroupError
from agent.policy.systemd_units import Property

PRIVATE_SOCKET = "run/systemd/private"  # root's, there from the first moment on and without a D-Bus daemon
SYSTEM_BUS = "run/dbus/system_bus_socket"
TIMEOUT_SECONDS = 5.0
QUIET_SECONDS = 30.0  # no call for so long after one that was not answered
MAX_ANSWER = 1 << 20  # bytes read for one call, signals in between included

_NAME, _PATH = "org.freedesktop.systemd1", "/org/freedesktop/systemd1"
_MANAGER, _PROPERTIES = f"{_NAME}.Manager", "org.freedesktop.DBus.Properties"


class SystemdError(CgroupError):
    """The service manager did not do what it was asked."""

    hint = "see `systemctl status` of the unit and the journal; enforcement.systemd: none does without"


class SystemdSilentError(SystemdError):
    """No answer within the time there is, or nobody listens."""

    hint = "see that systemd answers: `systemctl is-system-running`; enforcement.systemd: none does without"


class NoSuchUnitError(SystemdError):
    """systemd knows no unit of this name: the cgroup was made by somebody else, or has ended."""

    hint = "nothing to do where its container has ended; else see who made the cgroup"


class UnitExistsError(SystemdError):
    """A unit of this name is there already."""

    hint = "end it with `systemctl stop` if nothing of value runs in it"


class SystemdRefusedError(SystemdError):
    """Not permitted to this process."""

    hint = "run the agent as root"


_KINDS: dict[str, type[SystemdError]] = {
    f"{_NAME}.NoSuchUnit": NoSuchUnitError,
    f"{_NAME}.UnitExists": UnitExistsError,
    "org.freedesktop.DBus.Error.AccessDenied": SystemdRefusedError,
    "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired": SystemdRefusedError,
    "org.freedesktop.DBus.Error.NoReply": SystemdSilentError,
    "org.freedesktop.DBus.Error.ServiceUnknown": SystemdSilentError,
}


class SystemdBus:
    """root: of the file system that has the manager's sockets. clock: seconds, monotonic."""

    def __init__(
        self,
        root: Path = Path("/"),
        timeout_seconds: float = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sockets = tuple(root / name for name in (PRIVATE_SOCKET, SYSTEM_BUS))
        self._timeout = timeout_seconds
        self._clock = clock
        self._quiet: tuple[float, str] | None = None

    def listens(self) -> bool:
        """Whether there is a socket to ask at."""
        return any(path.is_socket() for path in self._sockets)

    def version(self) -> int:
        """252 for "252 (252.30-1~deb12u2)"; 0 where it says no number. Raises SystemdError."""
        found = re.match(r"\d+", self._property("Version"))
        return int(found[0]) if found else 0

    def control_group(self) -> str:
        """Where in the cgroup hierarchy its units begin: "" for the top. Raises SystemdError."""
        return self._property("ControlGroup").rstrip("/")

    def set_properties(self, unit: str, properties: Sequence[Property]) -> None:
        """In force at once, and until the next boot or the unit's end. Raises SystemdError."""
        body = (unit, True, list(properties))
        self._call(unit, _MANAGER, "SetUnitProperties", "sba(sv)", body)

    def start_slice(self, unit: str, description: str, properties: Iterable[Property]) -> None:
        """Ask for a transient slice with these properties; its cgroup is there a moment later. Raises SystemdError."""
        self._start(unit, [("Description", ("s", description)), *properties])

    def start_scope(self, unit: str, inside: str, pid: int, description: str, properties: Iterable[Property]) -> None:
        """Ask for a transient scope around a process, delegated: the process is in it a moment later, the properties in force.

        Raises SystemdError.
        """
        what = [
            ("Description", ("s", description)),
            ("Slice", ("s", inside)),
            ("Delegate", ("b", True)),
            ("CollectMode", ("s", "inactive-or-failed")),  # its name is free again as soon as it has ended, however
            ("PIDs", ("au", [pid])),
        ]
        self._start(unit, [*what, *properties])

    def stop(self, unit: str) -> None:
        """Ask for the end of a unit and of everything in it. Raises SystemdError."""
        self._call(unit, _MANAGER, "StopUnit", "ss", (unit, "replace"))

    def _start(self, unit: str, properties: Sequence[Any]) -> None:
        self._call(unit, _MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", (unit, "fail", properties, []))

    def _property(self, name: str) -> str:
        """One of the manager's own."""
        (_, value), *_ = self._call("the manager", _PROPERTIES, "Get", "ss", (_MANAGER, name))
        return str(value)

    def _call(self, subject: str, interface: str, member: str, signature: str, body: tuple[Any, ...]) -> Any:
        now = self._clock()
        if self._quiet is not None and now < self._quiet[0]:
            raise SystemdSilentError(subject, f"systemd is not asked to {member} yet: {self._quiet[1]}")
        address = DBusAddress(_PATH, bus_name=_NAME, interface=interface)
        try:
            reply = self._exchange(new_method_call(address, member, signature, body), now + self._timeout)
        except (OSError, AuthenticationError) as error:
            why = f"no answer within {self._timeout:g} s" if isinstance(error, TimeoutError) else str(error)
            self._quiet = self._clock() + QUIET_SECONDS, why
            raise SystemdSilentError(subject, f"systemd did not {member}: {why}") from error
        self._quiet = None
        if reply.header.message_type is MessageType.error:
            name = str(reply.header.fields.get(HeaderFields.error_name, ""))
            text = str(reply.body[0])[:500] if reply.body else name
            raise _KINDS.get(name, SystemdError)(subject, f"systemd refused to {member}: {text}")
        return reply.body

    def _exchange(self, message: Message, deadline: float) -> Message:
        """Send one call, and give the answer to it. Raises OSError, AuthenticationError."""
        private, bus = self._sockets
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as peer:
            at_the_manager = private.is_socket() and os.access(private, os.W_OK)
            self._bounded(peer, deadline).connect(os.fspath(private if at_the_manager else bus))
            self._authenticate(peer, deadline)
            parser = Parser()
            if not at_the_manager:  # a D-Bus daemon wants to be greeted first
                greeting = DBusAddress("/org/freedesktop/DBus", "org.freedesktop.DBus", "org.freedesktop.DBus")
                self._answer(peer, parser, new_method_call(greeting, "Hello"), 1, deadline)
            return self._answer(peer, parser, message, 2, deadline)

    def _authenticate(self, peer: socket.socket, deadline: float) -> None:
        """BEGIN goes with the first line, as in sd-bus: systemd's side forgets a message that it reads together with BEGIN."""
        dialogue = Authenticator()
        self._bounded(peer, deadline).sendall(b"".join((dialogue.data_to_send() or b"", BEGIN)))
        while not dialogue.authenticated:
            dialogue.feed(self._received(peer, deadline))

    def _answer(self, peer: socket.socket, parser: Parser, message: Message, serial: int, deadline: float) -> Message:
        self._bounded(peer, deadline).sendall(message.serialise(serial=serial))
        read = 0
        while read < MAX_ANSWER:
            while (found := _next(parser)) is not None:
                if found.header.fields.get(HeaderFields.reply_serial) == serial:
                    return found
            data = self._received(peer, deadline)
            read += len(data)
            parser.add_data(data)
        raise ConnectionError(f"no answer among {MAX_ANSWER} bytes")

    def _received(self, peer: socket.socket, deadline: float) -> bytes:
        data = self._bounded(peer, deadline).recv(1 << 16)
        if not data:
            raise ConnectionResetError("the connection was closed")
        return data

    def _bounded(self, peer: socket.socket, deadline: float) -> socket.socket:
        left = deadline - self._clock()
        if left <= 0:
            raise TimeoutError
        peer.settimeout(left)
        return peer


def _next(parser: Parser) -> Message | None:
    """The next whole message, if there is one. Raises ConnectionError for bytes that are none."""
    try:
        return parser.get_next_message()
    except (LookupError, ValueError, TypeError, struct.error) as error:  # what the library makes of them
        raise ConnectionError(f"the answer is no D-Bus: {error!r}") from error
