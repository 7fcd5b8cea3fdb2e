"""The accountant's query API over HTTP: JSON, text for terminals, the page. And the intake of node reports, where allowed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus

from agent.errors import AgentError
from agent.formats.kube_object import KubeField, KubeFieldError
from agent.model.pod import Pod
from agent.queues.accounting import Taken
from agent.queues.encode import encode_outcome, encode_proposal, encode_resize
from agent.queues.encode_accountant import (
    encode_fair_shares,
    encode_nodes,
    encode_queue,
    encode_reservations,
    encode_view,
)
from agent.queues.node_report_format import MAX_BYTES as MAX_REPORT_BYTES
from agent.queues.node_report_format import ReportError, decode_report
from agent.queues.page import HEADERS, render_page
from agent.queues.quantities import minus
from agent.queues.reclaim_search import propose
from agent.queues.simulation import simulate
from agent.queues.text import reclaim_lines, resize_lines, simulation_lines, status_lines
from agent.queues.what_if import MAX_BYTES as MAX_QUESTION_BYTES
from agent.queues.what_if import (
    QuestionError,
    decode_reclaim_question,
    decode_resize_question,
    decode_simulation_question,
)
from agent.serve.accountant import AccountantService
from agent.serve.http import Posting, Request, Response, Route
from agent.serve.queue_series import REFUSED, REPORTS
from agent.serve.series import Tally

JSON = "application/json"
HTML = "text/html; charset=utf-8"
NODE_PREFIX = "system:node:"  # of the common name in a kubelet's certificate
_PATIENCE_SECONDS = 5.0
_MAX_RELEASE_BYTES = 4096


class QueueAPI:
    """Answers from one accountant. Every answer is of one moment."""

    def __init__(self, service: AccountantService, tally: Tally) -> None:
        self._service = service
        self._tally = tally
        self._reclaiming = threading.Lock()  # a search can take long: one at a time

    def routes(self) -> Mapping[str, Route]:
        """What only reads."""
        return {
            "/": self._page,
            "/v1/queues": self._queues,
            "/v1/queue": self._queue,
            "/v1/fair-shares": lambda _: _json(encode_fair_shares(self._service.view())),
            "/v1/reservations": lambda _: _json(encode_reservations(self._service.view())),
            "/v1/nodes": lambda _: _json(encode_nodes(self._service.view())),
        }

    def questions(self) -> Mapping[str, Posting]:
        """What reads, but asks with a body."""
        return {
            "/v1/check-resize": Posting(_asking(self._check_resize), MAX_QUESTION_BYTES),
            "/v1/reclaim": Posting(_asking(self._reclaim), MAX_QUESTION_BYTES),
            "/v1/simulate": Posting(_asking(self._simulate), MAX_QUESTION_BYTES),
        }

    def intake(self) -> Mapping[str, Posting]:
        """What changes something: node reports, and the release of a node. Only for clients that are known."""
        return {
            "/v1/reports": Posting(self._report, MAX_REPORT_BYTES),
            "/v1/release": Posting(_asking(self._release), _MAX_RELEASE_BYTES),
        }

    # --- reading ---

    def _page(self, _: Request) -> Response:
        return Response(render_page(self._service.view()), HTML, headers=HEADERS)

    def _queues(self, request: Request) -> Response:
        view = self._service.view()
        return _answer(request, lambda: encode_view(view), lambda: status_lines(view.snapshot, view.violations))

    def _queue(self, request: Request) -> Response:
        name, view = request.query.get("name", ""), self._service.view()
        if name not in view.tree.queues:
            return _error("no such queue; ask /v1/queue?name=NAME", HTTPStatus.NOT_FOUND)
        steps = view.fair.derivation(view.tree, name)
        return _answer(request, lambda: encode_queue(view, name, self._service.jobs()), lambda: map(str, steps))

    def _check_resize(self, request: Request) -> Response:
        old, new = decode_resize_question(request.body, self._find)
        verdict = self._service.resize(old, new, reserve=False)
        warning = None if verdict.unready is None else verdict.unready.value

        def lines() -> Iterable[str]:
            yield from resize_lines(verdict.answer)
            if warning is not None:
                yield f"warning: {warning}"

        return _answer(request, lambda: {**encode_resize(verdict.answer), "unready": warning}, lines)

    def _find(self, name: str) -> Pod | None:
        namespace, _, pod = name.rpartition("/")
        return self._service.pod(namespace or "default", pod)

    def _reclaim(self, request: Request) -> Response:
        question = decode_reclaim_question(request.body, self._service.options.queues)
        if not self._reclaiming.acquire(timeout=_PATIENCE_SECONDS):
            return _error("too many such questions at once; try again", HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            view, jobs = self._service.view(), self._service.jobs()
            job = question.made or next((each for each in jobs if each.name == question.job), None)
            if job is None:
                return _error(f"no pod of {question.job} waits or runs", HTTPStatus.NOT_FOUND)
            if job.queue not in view.tree.queues:
                return _error(f"queue {job.queue or '(none)'} does not exist", HTTPStatus.NOT_FOUND)
            free = view.total
            for share in view.shares.values():
                if not share.queue.parent:
                    free = minus(free, share.allocated)
            found = propose(job, jobs, view.shares, view.total, free, question.options)
        finally:
            self._reclaiming.release()
        return _answer(request, lambda: encode_proposal(job.name, found), lambda: reclaim_lines(job.name, found))

    def _simulate(self, request: Request) -> Response:
        rounds, options = decode_simulation_question(request.body, self._service.options.queues)
        if not self._reclaiming.acquire(timeout=_PATIENCE_SECONDS):
            return _error("too many such questions at once; try again", HTTPStatus.SERVICE_UNAVAILABLE)
        try:
            view = self._service.view()
            outcome = simulate(view.tree, self._service.jobs(), view.total, options, rounds)
        finally:
            self._reclaiming.release()
        counts = Counter(back.kind.value for event in outcome.events for back in event.take_backs)
        return _answer(
            request, lambda: encode_outcome(outcome, counts), lambda: simulation_lines(view.tree, outcome, counts)
        )

    # --- taking ---

    def _report(self, request: Request) -> Response:
        """Answers {"taken": "applied" | "old" | "gap"}; after a gap the node sends a full report."""
        try:
            report = decode_report(request.body)
        except ReportError as error:
            self._tally.add(REPORTS, taken=REFUSED)
            return _error(str(error), HTTPStatus.BAD_REQUEST)
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
        try:
            field = KubeField(json.loads(request.body)).get("node")
            name = field.text(253)
        except (ValueError, RecursionError, KubeFieldError) as error:
            raise QuestionError(f'{{"node": NAME}} is expected: {error}') from error
        if request.peer.startswith(NODE_PREFIX):
            return _error("a node does not release nodes", HTTPStatus.FORBIDDEN)
        if not self._service.release(name):
            return _error(f"no such node: {name}", HTTPStatus.NOT_FOUND)
        return _json({"released": name})


def _may_report(peer: str, node: str) -> bool:
    """A kubelet's certificate is good for its own node; others that the clients' CA vouches for, and local ones, for any."""
    return not peer.startswith(NODE_PREFIX) or peer == f"{NODE_PREFIX}{node}"


def _asking(route: Route) -> Route:
    """A route whose questions may be wrong ones."""

    def answer(request: Request) -> Response:
        try:
            return route(request)
        except AgentError as error:
            return _error(str(error), HTTPStatus.BAD_REQUEST, error.hint)

    return answer


def _answer(request: Request, encoded: Callable[[], object], lines: Callable[[], Iterable[str]]) -> Response:
    """JSON; text with ?output=text; {"answer": JSON, "text": text} of the same moment with ?output=both."""
    match request.query.get("output"):
        case "text":
            return Response("".join(f"{line}\n" for line in lines()))
        case "both":
            return _json({"answer": encoded(), "text": "".join(f"{line}\n" for line in lines())})
        case _:
            return _json(encoded())


def _json(document: object, status: int = 200) -> Response:
    return Response(json.dumps(document, separators=(",", ":")) + "\n", JSON, status)


def _error(text: str, status: int, hint: str = "") -> Response:
    return _json({"error": text, **({"hint": hint} if hint else {})}, status)
