"""CPUs, memory and NUMA nodes that come and go: the kernel's own events (netlink), many of them told as one.

Source: the kernel's uevents of the subsystems cpu, memory and node; they come without udevd too. What has changed is read from
sysfs afterwards: an event only says that it is time to look.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

import pyudev

from agent.errors import AgentError

SUBSYSTEMS = ("cpu", "memory", "node")
SETTLED_SECONDS = 0.2  # a memory card or a core comes as a burst of events
LONGEST_SECONDS = 2.0
_WAKE_SECONDS = 1.0  # how long `stop` may have to wait


class HotplugError(AgentError):
    """The kernel's events cannot be heard."""

    hint = "the agent still reads the machine at start and on reload (pinfold config reload)"


class Events(Protocol):
    """Where events come from."""

    def next(self, timeout_seconds: float) -> str | None:
        """The next event in words ("offline cpu1"), None where there was none in that time. Raises OSError for lost ones."""


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

    def next(self, timeout_seconds: float) -> str | None:
        device = self._monitor.poll(timeout_seconds)
        return None if device is None else f"{device.action} {device.sys_name}"


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
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            first = self._next(_WAKE_SECONDS)
            if first is None:
                continue
            seen = [first]
            end = time.monotonic() + LONGEST_SECONDS
            while time.monotonic() < end and (event := self._next(SETTLED_SECONDS)) is not None:
                seen.append(event)
            self._changed(_in_words(seen))

    def _next(self, timeout_seconds: float) -> str | None:
        try:
            return self._events.next(timeout_seconds)
        except OSError:  # ENOBUFS: more came than the socket holds
            return "events were lost"


def _in_words(events: list[str]) -> str:
    shown = list(dict.fromkeys(events))
    return ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
