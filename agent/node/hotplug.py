"""CPUs, memory and NUMA nodes that come and go: the kernel's own events (netlink), many of them told as one.

Source: the kernel's uevents of the subsystems cpu, memory and node; they come without udevd too. What has changed is read from
sysfs afterwards: an event only says that it is time to look.
"""

from __future__ import annotations

import math
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

import pyudev

from agent.errors import AgentError

SUBSYSTEMS = ("cpu", "memory", "node")
SETTLED_SECONDS = 0.2  # a memory card or a core comes as a burst of events
LONGEST_SECONDS = 2.0


class HotplugError(AgentError):
    """The kernel's events cannot be heard."""

    hint = "the agent still reads the machine at start and on reload (pinfold config reload)"


class Events(Protocol):
    """Where events come from."""

    def next(self, timeout_seconds: float | None) -> str | None:
        """The next event in words ("offline cpu1"), None where there was none in that time, or `wake` was called.

        timeout_seconds: None for no end. Raises OSError for lost events.
        """

    def wake(self) -> None:
        """Have `next` return from now on. From any thread."""

    def close(self) -> None:
        """The last call."""


class KernelEvents:
    """The events of this machine. Raises HotplugError."""

    def __init__(self) -> None:
        try:
            self._monitor = pyudev.Monitor.from_netlink(pyudev.Context(), "kernel")
            for subsystem in SUBSYSTEMS:
                self._monitor.filter_by(subsystem)
            self._monitor.start()
        except (OSError, ImportError) as error:
            raise HotplugError(f"no kernel events here: {error}") from error
        self._woken = os.eventfd(0)
        self._socket = socket.socket(fileno=os.dup(self._monitor.fileno()))
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def next(self, timeout_seconds: float | None) -> str | None:
        ready = self._poll.poll(None if timeout_seconds is None else math.ceil(timeout_seconds * 1000))
        if not ready or any(found == self._woken for found, _ in ready):
            return None
        # an overflow is an error of the socket until it is taken; pyudev refuses to read before that
        if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        device = self._monitor.poll(0)
        return None if device is None else f"{device.action} {device.sys_name}"

    def wake(self) -> None:
        os.eventfd_write(self._woken, 1)  # never read: every later poll returns at once

    def close(self) -> None:
        self._socket.close()
        os.close(self._woken)


class Hotplug:
    """A thread that calls `changed` with what happened, once for a burst of events."""

    def __init__(self, events: Events, changed: Callable[[str], None]) -> None:
        self._events = events
        self._changed = changed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hotplug", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._events.wake()
        self._thread.join()
        self._events.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            first = self._next(None)
            if first is None:
                continue
            seen = [first]
            end = time.monotonic() + LONGEST_SECONDS
            while time.monotonic() < end and (event := self._next(SETTLED_SECONDS)) is not None:
                seen.append(event)
            self._changed(_in_words(seen))

    def _next(self, timeout_seconds: float | None) -> str | None:
        try:
            return self._events.next(timeout_seconds)
        except OSError:  # ENOBUFS: more came than the socket holds
            return "events were lost"


def _in_words(events: list[str]) -> str:
    shown = list(dict.fromkeys(events))
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
