"""Talking to systemd: readiness, reload, status, watchdog (sd_notify(3), protocol of the NOTIFY_SOCKET datagram socket)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServiceManager:
    """address: NOTIFY_SOCKET, "" where nobody listens. watchdog_seconds: the period within which systemd wants a sign of life,
    None where it wants none.
    """

    address: str = ""
    watchdog_seconds: float | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str], pid: int) -> ServiceManager:
        """What the environment says. A watchdog meant for another process is not ours."""
        watchdog = None
        if environment.get("WATCHDOG_USEC", "").isdecimal() and environment.get("WATCHDOG_PID", str(pid)) == str(pid):
            watchdog = int(environment["WATCHDOG_USEC"]) / 1_000_000
        return cls(environment.get("NOTIFY_SOCKET", ""), watchdog)

    def ready(self, status: str) -> None:
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def reloading(self) -> None:
        """Type=notify-reload wants the time, to tell this reload from an earlier one."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        self._send("STOPPING=1")

    def status(self, status: str) -> None:
        self._send(f"STATUS={_line(status)}")

    def alive(self) -> None:
        """Feed the watchdog."""
        if self.watchdog_seconds is not None:
            self._send("WATCHDOG=1")

    def _send(self, message: str) -> None:
        if not self.address:
            return
        address = "\0" + self.address[1:] if self.address.startswith("@") else self.address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            try:
                out.connect(address)
                out.sendall(message.encode())
            except OSError:
                return  # the service manager is away; it asks again when it is back, and the agent must go on


def from_environment() -> ServiceManager:
    """The service manager that started this process."""
    return ServiceManager.of(os.environ, os.getpid())


def _line(text: str) -> str:
    return text.replace("\n", " ")
