"""Hotplug events: bursts are told once, lost ones are no silence; the kernel's own arrive."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.node.hotplug import Hotplug, HotplugError, KernelEvents
from tests.threads import woken


class Injected:
    """Events that the test makes up; an exception is raised, None is the end."""

    def __init__(self) -> None:
        self.queue: queue.SimpleQueue[str | OSError | None] = queue.SimpleQueue()

    def next(self, timeout_seconds: float | None) -> str | None:
        try:
            event = self.queue.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        if isinstance(event, OSError):
            raise event
        return event

    def wake(self) -> None:
        self.queue.put(None)

    def close(self) -> None:
        assert self.queue.empty()


@contextmanager
def watched(events: Injected | KernelEvents) -> Iterator[queue.SimpleQueue[str]]:
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    hotplug = Hotplug(events, told.put)
    hotplug.start()
    try:
        yield told
    finally:
        hotplug.stop()


def test_a_burst_is_told_once() -> None:
    events = Injected()
    for number in range(30):
        events.queue.put(f"online memory{number}")
    events.queue.put("online cpu1")
    with watched(events) as told:
        text = told.get(timeout=10)
        assert text.startswith("online memory0, online memory1, ")
        assert text.endswith("and 23 more")
        assert told.empty()
        events.queue.put("offline cpu1")
        assert told.get(timeout=10) == "offline cpu1"


def test_lost_events_are_a_reason_to_look() -> None:
    events = Injected()
    events.queue.put(OSError(105, "No buffer space available"))
    with watched(events) as told:
        assert told.get(timeout=10) == "events were lost"


@pytest.mark.real
def test_between_events_the_thread_sleeps_and_can_be_ended() -> None:
    try:
        events = KernelEvents()
    except HotplugError as error:
        pytest.skip(str(error))
    with watched(events):
        assert woken("hotplug", 1.5) == 0
    assert "hotplug" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.real
def test_the_kernels_events_arrive() -> None:
    """A `change` event of a CPU, which the kernel sends when asked to and which changes nothing."""
    trigger = next(iter(sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/uevent"))), None)
    try:
        events = KernelEvents()
        assert trigger is not None
        with watched(events) as told:
            trigger.write_text("change")
            assert trigger.parent.name in told.get(timeout=10)
    except (OSError, HotplugError) as error:
        pytest.skip(f"no kernel events can be made here: {error}")


@pytest.mark.real
def test_events_that_the_socket_could_not_hold_are_told_once_and_the_thread_sleeps_again() -> None:
    trigger = next(iter(sorted(Path("/sys/devices/system/cpu").glob("cpu[0-9]*/uevent"))), None)
    try:
        events = KernelEvents()
        assert trigger is not None
        events._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the kernel makes it some KiB
        for _ in range(100):  # nobody reads yet
            trigger.write_text("change")
    except (OSError, HotplugError) as error:
        pytest.skip(f"no kernel events can be made here: {error}")
    with watched(events) as told:
        assert told.get(timeout=10).startswith("events were lost, ")
        assert woken("hotplug", 1.5) == 0
        trigger.write_text("change")
        assert told.get(timeout=10) == f"change {trigger.parent.name}"
