"""One report between two threads: a newer one replaces one that was not taken yet, so that nobody waits and nothing piles up."""

from __future__ import annotations

import threading

from agent.model.occupancy import Occupancy


class NewestReport:
    """`show` and `stop` from any thread, the rest from the one that delivers."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._newest: Occupancy | None = None
        self._stopping = False

    def show(self, report: Occupancy) -> None:
        """A newer report. Never waits."""
        with self._news:
            self._newest = report
            self._news.notify()

    def stop(self) -> None:
        """Wake the other thread for the last time."""
        with self._news:
            self._stopping = True
            self._news.notify()

    def next(self, done: Occupancy | None, *, wait: float = 0.0, quiet: float | None = None) -> Occupancy | None:
        """The newest report: after `wait` seconds, or once there is another one than `done`, or after `quiet` seconds.

        None at the end.
        """
        with self._news:
            if wait:
                self._news.wait_for(lambda: self._stopping, wait)
            else:
                self._news.wait_for(lambda: self._stopping or self._newest is not done, quiet)
            return None if self._stopping else self._newest

    def pause(self, seconds: float) -> None:
        """Wait, unless the end comes first."""
        with self._news:
            self._news.wait_for(lambda: self._stopping, max(seconds, 0.0))
