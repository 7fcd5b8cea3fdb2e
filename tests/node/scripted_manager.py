"""A script of a service manager, not systemd: speaks D-Bus on a socket and answers as told.

The real one is asked in tests/systemd and tests/node_vm.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, HeaderFields, Message, Parser, new_error, new_method_return, new_signal

Answer = tuple[str, tuple[Any, ...]]  # D-Bus signature and body


class RefusalError(Exception):
    """A D-Bus error; its arguments are the error's name and its text."""


Act = Callable[[str, tuple[Any, ...]], Answer]


def nothing(member: str, body: tuple[Any, ...]) -> Answer:
    """The manager of a machine on which all is well: says what is asked of itself, does nothing."""
    if member == "Get":
        return "v", ({"Version": ("s", "252 (252.30-1~deb12u2)"), "ControlGroup": ("s", "")}[body[1]],)
    if member == "StartTransientUnit":
        return "o", ("/org/freedesktop/systemd1/job/1",)
    return "", ()


@dataclass
class ScriptedManager:
    """act: the answer to a call, or a RefusalError. mute: calls are taken and never answered. hang_up: instead of an answer.

    noise: signals before every answer. garbage: what is sent instead of one. connections: how many there have been.
    """

    root: Path
    act: Act = nothing
    mute: bool = False
    hang_up: bool = False
    noise: int = 0
    garbage: bytes = b""
    calls: list[tuple[str, tuple[Any, ...]]] = field(default_factory=list)
    connections: int = 0

    @contextmanager
    def listening(self, name: str = "run/systemd/private") -> Iterator[None]:
        """At one of the sockets of `agent.node.systemd_bus`."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
            server.listen()
            thread = threading.Thread(target=self._accept, args=(server,), daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown(socket.SHUT_RDWR)
                thread.join(10)
                path.unlink()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            self.connections += 1
            with peer, suppress(OSError):
                self._talk(peer)

    def _talk(self, peer: socket.socket) -> None:
        data = b""
        while not data.endswith(b"BEGIN\r\n"):
            if not (more := peer.recv(4096)):
                return
            data += more
        assert data.startswith(b"\0AUTH EXTERNAL "), data
        peer.sendall(b"OK 0123456789abcdef\r\n")
        parser = Parser()
        while data := peer.recv(4096):
            for message in parser.feed(data):
                self._answer(peer, message)
                if self.hang_up:
                    return

    def _answer(self, peer: socket.socket, message: Message) -> None:
        member = message.header.fields[HeaderFields.member]
        self.calls.append((member, message.body))
        if self.hang_up:
            return
        if self.garbage:
            peer.sendall(self.garbage)
            return
        manager = DBusAddress("/org/freedesktop/systemd1", interface="org.freedesktop.systemd1.Manager")
        for _ in range(self.noise):
            peer.sendall(new_signal(manager, "UnitNew", "so", ("a.scope", "/a")).serialise(serial=9))
        if self.mute:
            return
        try:
            signature, body = ("s", (":1.7",)) if member == "Hello" else self.act(member, message.body)
            reply = new_method_return(message, signature or None, body)
        except RefusalError as refusal:
            reply = new_error(message, refusal.args[0], "s", (refusal.args[1],))
        peer.sendall(reply.serialise(serial=10))
