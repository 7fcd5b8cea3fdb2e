"""What a pod source that is asked over a network tells the loop: a view, whole and at once, with its age.

Such a source runs in a thread of its own and never blocks the loop. While it cannot be read its view stays as it was: nothing is
released by silence (design section 5).
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from agent.errors import AgentError
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.observation import Wanted

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0
STOP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class View:
    """What a source says is wanted here.

    synced: it has said so once at least; before that it is silent. fault: why it cannot be read now, "" while it can.
    problems: objects that cannot be used, one sentence each. instances: container id -> container. running: pods of which a
    container runs by what their status says. heard: time.monotonic() of the last sign of life, 0 where there was none.
    """

    wanted: tuple[Wanted, ...] = ()
    synced: bool = False
    fault: str = ""
    problems: tuple[str, ...] = ()
    instances: Mapping[str, ContainerCgroup] = field(default_factory=dict)
    running: frozenset[str] = frozenset()
    heard: float = 0.0

    @property
    def silent(self) -> bool:
        """Whether what it does not list says nothing."""
        return not self.synced or bool(self.fault)


class Source(Protocol):
    """A pod source with a thread of its own."""

    @property
    def name(self) -> str:
        """As in the configuration's `sources`, and in the pods' records."""

    def view(self) -> View:
        """What it says now; returns at once."""

    def start(self, changed: Callable[[], None]) -> None:
        """Begin; `changed` is called, in any thread, when there is another view."""

    def stop(self) -> None:
        """End the thread."""


class Feed:
    """The thread of a source and the view it publishes. work: one attempt to follow the source; called again and again.

    work returns the seconds until its next turn, and raises AgentError where the source cannot be read: then the waits become
    longer, with jitter, so that the nodes of a cluster do not come back all at once.
    """

    def __init__(self, name: str, work: Callable[[], float], rng: random.Random | None = None) -> None:
        self.name = name
        self._work = work
        self._rng = rng or random.Random()
        self._view = View()
        self._changed: Callable[[], None] = lambda: None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"source-{name}", daemon=True)

    def stopping(self) -> bool:
        """Whether the thread is to end."""
        return self._stopping.is_set()

    def view(self) -> View:
        return self._view

    def publish(self, view: View) -> None:
        """Another view; the loop is told unless only its age differs."""
        before, self._view = self._view, view
        if replace(before, heard=view.heard) != view:
            self._changed()

    def heard(self) -> None:
        """A sign of life without news."""
        self.publish(replace(self._view, fault="", heard=time.monotonic()))

    def start(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._thread.start()

    def stop(self, wake: Callable[[], None]) -> None:
        """End the thread. wake: makes a request that waits for the server return.

        One that is still connecting cannot be woken: it is left to end with the process.
        """
        self._stopping.set()
        if self._thread.ident is None:
            return
        end = time.monotonic() + STOP_SECONDS
        while self._thread.is_alive() and time.monotonic() < end:
            wake()
            self._thread.join(0.05)

    def _run(self) -> None:
        failures = 0
        while not self.stopping():
            try:
                wait, failures = self._work(), 0
            except AgentError as error:
                if self.stopping():
                    return
                shown = f"{error} ({error.hint})" if error.hint else str(error)
                self.publish(replace(self._view, fault=shown))
                wait = backoff(failures, self._rng, getattr(error, "retry_after", None))
                failures += 1
            self._stopping.wait(wait)


def backoff(failures: int, rng: random.Random, retry_after: float | None = None) -> float:
    """Seconds to wait after so many failures in a row, with jitter; at least what the server asks for."""
    longest = min(FIRST_WAIT_SECONDS * (1 << min(failures, 10)), LONGEST_WAIT_SECONDS)
    return max(longest * rng.uniform(0.5, 1.0), retry_after or 0.0)
