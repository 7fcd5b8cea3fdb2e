"""Whether the agent lives and is ready, as named checks, and whether its pod sources can be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Check:
    """ok: whether all is well. reason: what is wrong and what to do, or what is noteworthy."""

    ok: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SourceHealth:
    """readable: whether a pod source can be read now. age_seconds: since its last sign of life, None where there was none."""

    readable: bool
    age_seconds: float | None


Probe = Callable[[], Check]


class HealthBoard:
    """The checks of one agent. Readiness is all of them; liveness only those that a restart of the agent could mend.

    Written from any thread, read by probes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._probes: dict[str, tuple[Probe, bool]] = {}

    def set(self, name: str, check: Check, *, live: bool = False) -> None:
        """What the check `name` says from now on. live: it counts for liveness too."""
        self.watch(name, lambda: check, live=live)

    def watch(self, name: str, probe: Probe, *, live: bool = False) -> None:
        """Ask `probe` whenever somebody wants to know; it must answer at once."""
        with self._lock:
            self._probes = {**self._probes, name: (probe, live)}

    def ready(self) -> Mapping[str, Check]:
        """All checks by name, in the order in which they were first set."""
        return {name: probe() for name, (probe, _) in self._probes.items()}

    def live(self) -> Mapping[str, Check]:
        """The checks of liveness."""
        return {name: probe() for name, (probe, live) in self._probes.items() if live}

    def problems(self) -> tuple[str, ...]:
        """What keeps it from being ready, each as "check: reason"."""
        return tuple(f"{name}: {check.reason}" for name, check in self.ready().items() if not check.ok)

    def is_ready(self) -> bool:
        """Whether every check is fine."""
        return all(check.ok for check in self.ready().values())
