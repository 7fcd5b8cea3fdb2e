"""The accountant's query API over HTTP: JSON, text for terminals, the page. And the intake of node reports, where allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus

from agent.errors import AgentError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.queues.accounting import Taken
from agent.queues.node_report_format import MAX_BYTES as MAX_REPORT_BYTES
from agent.queues.node_report_format import ReportError, decode_report
from agent.queues.page import HEADERS, render_page
from agent.queues.what_if import MAX_BYTES as MAX_QUESTION_BYTES
from agent.queues.what_if import QuestionError, parse_question
from agent.serve.accountant import AccountantService
from agent.serve.http_connection import Posting, Route
from agent.serve.http_messages import Request, Response
from agent.serve.queue_questions import (
    Answer,
    BusyError,
    NotInSyncError,
    QueueQuestions,
    StandbyError,
    UnknownNameError,
)
from agent.serve.queue_series import REFUSED, REPORTS
from agent.serve.series import Tally

JSON = "application/json"
HTML = "text/html; charset=utf-8"
NODE_PREFIX = "system:node:"  # of the common name in a kubelet's certificate
_MAX_RELEASE_BYTES = 4096
_UNAVAILABLE = (StandbyError, NotInSyncError, BusyError)


class QueueAPI:
    """Answers and reports of one accountant."""

    def __init__(self, questions: QueueQuestions, service: AccountantService, tally: Tally) -> None:
        self._questions = questions
        self._service = service
        self._tally = tally

    def routes(self) -> Mapping[str, Route]:
        """What only reads."""
        asked = self._questions
        return {
            "/": _asking(self._page),
            "/v1/queues": _reading(lambda _: asked.queues()),
            "/v1/queue": _reading(lambda request: asked.queue(request.query.get("name", ""))),
            "/v1/fair-shares": _reading(lambda _: asked.fair_shares()),
            "/v1/reservations": _reading(lambda _: asked.reservations()),
            "/v1/nodes": _reading(lambda _: asked.nodes()),
        }

    def questions(self) -> Mapping[str, Posting]:
        """What reads, but asks with a body."""

        def posting(ask: Callable[[object], Answer]) -> Posting:
            return Posting(_reading(lambda request: ask(parse_question(request.body))), MAX_QUESTION_BYTES)

        asked = self._questions
        return {
            "/v1/check-resize": posting(asked.check_resize),
            "/v1/reclaim": posting(asked.reclaim),
            "/v1/simulate": posting(asked.simulate),
        }

    def intake(self) -> Mapping[str, Posting]:
        """What changes something: node reports, and the release of a node. Only for clients that are known."""
        return {
            "/v1/reports": Posting(_asking(self._report), MAX_REPORT_BYTES),
            "/v1/release": Posting(_asking(self._release), _MAX_RELEASE_BYTES),
        }

    def _page(self, _: Request) -> Response:
        self._questions.answers()
        return Response(render_page(self._service.view()), HTML, headers=HEADERS)

    def _report(self, request: Request) -> Response:
        """Answers {"taken": "applied" | "old" | "gap"}; after a gap the node sends a full report.

        A replica that does not answer takes none either: the node's next connection may reach the one that does.
        """
        self._questions.answers()
        try:
            report = decode_report(request.body)
        except ReportError:
            self._tally.add(REPORTS, taken=REFUSED)
            raise
        if not _may_report(request.peer, report.node):
            self._tally.add(REPORTS, taken=REFUSED)
            text = f"a client of the name {request.peer!r} does not report for node {report.node}"
            return _error(text, HTTPStatus.FORBIDDEN)
        taken = self._service.take_report(report)
        self._tally.add(REPORTS, taken=taken.value)
        document: dict[str, object] = {"taken": taken.value}
        if taken is not Taken.GAP:
            document |= {"epoch": str(report.stamp[0]), "generation": report.stamp[1]}
        return _json(document)

    def _release(self, request: Request) -> Response:
        self._questions.answers()
        try:
            field = KubeField(json.loads(request.body)).get("node")
            name = field.text(253)
        except (ValueError, RecursionError, KubeFieldError) as error:
            raise QuestionError(f'{{"node": NAME}} is expected: {error}') from error
        if request.peer.startswith(NODE_PREFIX):
            return _error("a node does not release nodes", HTTPStatus.FORBIDDEN)
        if not self._service.release(name):
            raise UnknownNameError(f"no such node: {name}")
        return _json({"released": name})


def _may_report(peer: str, node: str) -> bool:
    """A kubelet's certificate is good for its own node; others that the clients' CA vouches for, and local ones, for any."""
    return not peer.startswith(NODE_PREFIX) or peer == f"{NODE_PREFIX}{node}"


def _asking(route: Route) -> Route:
    """A route whose questions may be wrong ones, or have no answer."""

    def answer(request: Request) -> Response:
        try:
            return route(request)
        except AgentError as error:
            return _error(str(error), _status(error), error.hint)

    return answer


def _status(error: AgentError) -> HTTPStatus:
    if isinstance(error, _UNAVAILABLE):
        return HTTPStatus.SERVICE_UNAVAILABLE
    return HTTPStatus.NOT_FOUND if isinstance(error, UnknownNameError) else HTTPStatus.BAD_REQUEST


def _reading(ask: Callable[[Request], Answer]) -> Route:
    """JSON; text with ?output=text; {"answer": JSON, "text": text} of the same moment with ?output=both."""

    def route(request: Request) -> Response:
        answer = ask(request)
        output = request.query.get("output")
        if answer.lines is None or output not in ("text", "both"):
            return _json(answer.encoded())
        text = "".join(f"{line}\n" for line in answer.lines())
        return Response(text) if output == "text" else _json({"answer": answer.encoded(), "text": text})

    return _asking(route)


def _json(document: object, status: int = 200) -> Response:
    return Response(json.dumps(document, separators=(",", ":")) + "\n", JSON, status)


def _error(text: str, status: int, hint: str = "") -> Response:
    return _json({"error": text, **({"hint": hint} if hint else {})}, status)
