"""Probes: what they are told when all is well, and when it is not."""

from __future__ import annotations

from agent.serve.health import Check, HealthBoard
from agent.serve.health_routes import health_routes
from agent.serve.http_messages import Request, Response


def board(**ready: bool) -> HealthBoard:
    """A live agent with these readiness checks."""
    made = HealthBoard()
    made.set("loop", Check(True), live=True)
    for name, ok in ready.items():
        made.set(name, Check(ok, "" if ok else "the disk is full"))
    return made


def ask(made: HealthBoard, path: str, **query: str) -> Response:
    return health_routes(made)[path](Request(path, query))


def test_all_well_is_ok_in_a_word() -> None:
    for path in ("/livez", "/healthz", "/readyz"):
        assert ask(board(state=True), path) == Response("ok")


def test_verbose_lists_the_checks() -> None:
    assert ask(board(state=True), "/readyz", verbose="") == Response("[+]loop ok\n[+]state ok\nreadyz check passed\n")


def test_a_failed_check_is_told_with_its_reason_even_without_being_asked() -> None:
    answer = ask(board(state=False), "/readyz")
    assert answer.status == 503
    assert answer.body == "[+]loop ok\n[-]state failed: the disk is full\nreadyz check failed\n"


def test_what_a_restart_would_not_mend_does_not_count_for_liveness() -> None:
    assert ask(board(state=False), "/livez") == Response("ok")


def test_a_check_changes_and_keeps_its_place() -> None:
    made = board(state=False, sources=True)
    assert not made.is_ready()
    made.set("state", Check(True))
    assert made.is_ready()
    assert list(made.ready()) == ["loop", "state", "sources"]


def test_a_watched_check_is_asked_when_somebody_wants_to_know() -> None:
    made = HealthBoard()
    answers = iter([Check(True), Check(False, "stuck for 40 s")])
    made.watch("loop", lambda: next(answers), live=True)
    assert ask(made, "/livez").status == 200
    assert "stuck for 40 s" in str(ask(made, "/livez").body)


def test_an_agent_without_checks_is_well() -> None:
    assert ask(HealthBoard(), "/readyz") == Response("ok")
