"""The answers to probes about the agent's health (Kubernetes' own text form)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.formats.page_text import visible
from agent.serve.health import Check, HealthBoard
from agent.serve.http_connection import Route
from agent.serve.http_messages import Request, Response


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
