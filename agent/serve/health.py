"""Whether the agent lives and is ready, as named checks, and the answers to probes about it (Kubernetes' own text form)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agent.formats.page_text import visible
from agent.serve.http import Request, Response, Route


@dataclass(frozen=True, slots=True)
class Check:
    """ok: whether all is well. reason: what is wrong and what to do, or what is noteworthy."""

    ok: bool
    reason: str = ""


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

    def is_ready(self) -> bool:
        """Whether every check is fine."""
        return all(check.ok for check in self.ready().values())


def health_routes(board: HealthBoard) -> Mapping[str, Route]:
    """/livez, /healthz (the same, the older name) and /readyz; `?verbose` lists the checks, and so does every failure."""

    def live(request: Request) -> Response:
        return _answer(request, board.live())

    def ready(request: Request) -> Response:
        return _answer(request, board.ready())

    return {"/livez": live, "/healthz": live, "/readyz": ready}


def _answer(request: Request, checks: Mapping[str, Check]) -> Response:
    ok = all(check.ok for check in checks.values())
    if ok and "verbose" not in request.query:
        return Response("ok")
    verdict = f"{request.path.lstrip('/')} check {'passed' if ok else 'failed'}"
    return Response("\n".join([*_lines(checks.items()), verdict, ""]), status=200 if ok else 503)


def _lines(checks: Iterable[tuple[str, Check]]) -> Iterable[str]:
    for name, check in checks:
        reason = f": {visible(check.reason)}" if check.reason else ""  # manifests are quoted in some
        yield f"[{'+' if check.ok else '-'}]{name} {'ok' if check.ok else 'failed'}{reason}"
