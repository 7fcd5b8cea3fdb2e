"""The status page over HTTP: `/`, `/live` for its script, `/explain` for one pod's reasoning. Renders once per change."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping

from agent.formats.cpu_owners import cpu_owners, pod_colours
from agent.formats.explanation import explain
from agent.formats.page import HEADERS, render_explanation, render_page
from agent.formats.page_body import render_body
from agent.formats.page_parts import PageContent
from agent.model.topology import Topology
from agent.serve.board import NodeBoard, NodeView, find_pod
from agent.serve.http_connection import Route
from agent.serve.http_messages import Request, Response

HTML = "text/html; charset=utf-8"
_PATIENCE_SECONDS = 5.0


class StatusPage:
    """One node's page. name: of the node, for people. machine: the plain facts of it, asked for when the page is made."""

    def __init__(self, board: NodeBoard, name: str, machine: Callable[[], Topology]) -> None:
        self._board = board
        self._name = name
        self._machine = machine
        # a page that outlives this process must not take our third view for the old one's
        self._run = secrets.token_hex(6)
        self._lock = threading.Lock()
        self._rendered = (0, "")
        self._explaining = threading.Lock()  # costs as much as a decision or many: one at a time

    def routes(self) -> Mapping[str, Route]:
        """Path -> what answers it."""
        return {"/": self._page, "/live": self._live, "/explain": self._explain}

    def _page(self, request: Request) -> Response:
        number, body = self._body()
        return Response(render_page(self._name, body, self._tag(number)), HTML, headers=HEADERS)

    def _live(self, request: Request) -> Response:
        if request.query.get("seen") == self._tag(self._board.read()[0]):
            return Response("", HTML, status=204)
        number, body = self._body()
        return Response(body, HTML, headers={**HEADERS, "X-Pinfold-Tag": self._tag(number)})

    def _explain(self, request: Request) -> Response:
        name = request.query.get("pod", "")
        _, view = self._board.read()
        pod = find_pod(view, name)
        if pod is None:
            text, status = "No pod of this name is here, and none was refused.", 404
        elif not self._explaining.acquire(timeout=_PATIENCE_SECONDS):
            text, status = "Too many explanations are asked for at once; try again.", 503
        else:
            try:
                text, status = explain(view.managers, view.capacity, view.state, pod, view.devices).text, 200
            finally:
                self._explaining.release()
        return Response(render_explanation(self._name, name, text), HTML, status, HEADERS)

    def _tag(self, number: int) -> str:
        return f"{self._run}-{number}"

    def _body(self) -> tuple[int, str]:
        with self._lock:
            number, view = self._board.read()
            if self._rendered[0] != number:
                self._rendered = (number, _render(view, self._machine()))
            return self._rendered


def _render(view: NodeView, machine: Topology) -> str:
    owners = cpu_owners(view.state, view.managers)
    return render_body(PageContent(view.status(), machine, owners, pod_colours(view.state)))
