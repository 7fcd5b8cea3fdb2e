"""What a pod source that is asked over a network tells the loop: a view, whole and at once, with its age.

Such a source runs in a thread of its own and never blocks the loop. While it cannot be read its view stays as it was: nothing is
released by silence (design section 5).
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from agent.errors import AgentError
from agent.kube.worker import Worker
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.observation import Wanted

_log = logging.getLogger("pinfold")
FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 60.0


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


class Feed:
    """A source as the loop knows it: its thread, and the view that this publishes.

    name: as in the configuration's `sources`, and in the pods' records. work: one attempt to follow the source, called again and
    again. wake: makes a request that waits for the server return.

    work returns the seconds until its next turn, and raises AgentError where the source cannot be read: then the waits become
    longer, with jitter, so that the nodes of a cluster do not come back all at once. Other errors are
    defects, and shown.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], float],
        wake: Callable[[], None],
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._standing = False
        self._work = work
        self._rng = rng or random.Random()
        self._view = View()
        self._changed: Callable[[], None] = lambda: None
        self._worker = Worker(f"source-{name}", self._run, wake)

    def view(self) -> View:
        """What it says now; returns at once."""
        return replace(self._view, heard=time.monotonic()) if self._standing else self._view

    def publish(self, view: View) -> None:
        """Another view; the loop is told unless only its age differs."""
        before, self._view = self._view, view
        if replace(before, heard=view.heard) != view:
            self._changed()

    def heard(self) -> None:
        """A sign of life without news."""
        self.publish(replace(self._view, fault="", heard=time.monotonic()))

    @contextmanager
    def standing(self) -> Iterator[None]:
        """For as long as a connection stands that would break if the server were gone: every look is a sign of life."""
        self._standing = True
        try:
            yield
        finally:
            self._standing = False
            self.publish(replace(self._view, heard=time.monotonic()))

    def start(self, changed: Callable[[], None]) -> None:
        """Begin; `changed` is called, in any thread, when there is another view."""
        self._changed = changed
        self._worker.start()

    def stop(self) -> None:
        """End the thread."""
        self._worker.stop()

    def _run(self) -> None:
        failures = 0
        stopping = self._worker.stopping
        while not stopping.is_set():
            started = time.monotonic()
            try:
                wait, failures = self._work(), 0
            except Exception as error:  # noqa: BLE001 - a defect must not leave the node deaf and looking well
                if stopping.is_set():
                    return
                self.publish(replace(self._view, fault=_in_words(error)))
                if time.monotonic() - started > LONGEST_WAIT_SECONDS:
                    failures = 0  # it had been followed well until then
                wait = backoff(failures, self._rng, getattr(error, "retry_after", None))
                failures += 1
            stopping.wait(wait)


def _in_words(error: Exception) -> str:
    if isinstance(error, AgentError):
        return f"{error} ({error.hint})" if error.hint else str(error)
    _log.error("a pod source failed", exc_info=error)
    return f"internal error: {type(error).__name__}: {error} (please report this with the agent's log)"


def backoff(failures: int, rng: random.Random, retry_after: float | None = None) -> float:
    """Seconds to wait after so many failures in a row, with jitter; at least what the server asks for."""
    longest = min(FIRST_WAIT_SECONDS * (1 << min(failures, 10)), LONGEST_WAIT_SECONDS)
    return max(longest * rng.uniform(0.5, 1.0), retry_after or 0.0)
