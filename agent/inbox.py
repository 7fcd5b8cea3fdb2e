"""What other threads and signals ask of the daemon's loop; it takes one message after another."""

from __future__ import annotations

import enum
import queue
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from agent.errors import AgentError


class Message(enum.Enum):
    """LOOK: a source has news. MACHINE: CPUs, memory or NUMA nodes have come or gone."""

    STOP = enum.auto()
    RELOAD = enum.auto()
    LOOK = enum.auto()
    MACHINE = enum.auto()


@dataclass(frozen=True, slots=True)
class Request:
    """A call from the control socket, to be answered by the loop."""

    method: str
    params: Mapping[str, Any]
    answer: Future[Mapping[str, Any]] = field(default_factory=Future)


class Inbox:
    """Filled from any thread and from signal handlers, emptied by the loop."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Request | Message] = queue.SimpleQueue()

    def put(self, message: Message) -> None:
        """Have the loop do something, whenever it comes to it."""
        self._queue.put(message)

    def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the loop answer a control request, and wait for it. Raises what the loop raised."""
        request = Request(method, params)
        self._queue.put(request)
        return request.answer.result()

    def next(self, wait_seconds: float) -> Request | Message | None:
        """The oldest message; None where none comes in time."""
        try:
            return self._queue.get(timeout=wait_seconds)
        except queue.Empty:
            return None

    def refuse_waiting(self, error: AgentError) -> None:
        """Whoever still waits for an answer gets this one."""
        while not self._queue.empty():
            message = self._queue.get()
            if isinstance(message, Request):
                message.answer.set_exception(error)
