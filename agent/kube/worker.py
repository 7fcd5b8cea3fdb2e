"""A thread that talks to a server, and its end: it may wait for an answer when it is told to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

STOP_SECONDS = 2.0


class Worker:
    """work: runs until `stopping` is set. wake: makes it return from what it waits for, and may be called several times."""

    def __init__(self, name: str, work: Callable[[], None], wake: Callable[[], None]) -> None:
        self.stopping = threading.Event()
        self._wake = wake
        self._thread = threading.Thread(target=work, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread. One that cannot be woken, as it is still connecting, is left to end with the process."""
        self.stopping.set()
        end = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < end:
            self._wake()
            self._thread.join(0.05)
