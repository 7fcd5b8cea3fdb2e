"""The queue accountant as a running thing: configuration in, servers and one watching thread out. Wiring only.

`pinfold queues serve` runs it alone; the agent runs it beside its own loop and gives it its reports.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from agent.config import ConfigError
from agent.config_schema_queues import QueuesAPISection, QueuesGRPCSection, QueuesSection, QueuesWebhookSection
from agent.kube.cluster_objects import ClusterObjects
from agent.kube.lease import LeaseCandidate
from agent.queue_config import accountant_options, total_of
from agent.queue_intake import QueueIntake
from agent.queue_replica import Replica
from agent.queues.node_report import NodeReport
from agent.serve.accountant import AccountantService, Clock
from agent.serve.accountant_store import AccountantStore
from agent.serve.grpc_tls import GRPCCertificates
from agent.serve.health import Check, HealthBoard
from agent.serve.health_routes import health_routes
from agent.serve.http import HTTPServer
from agent.serve.http_connection import Limits, Route
from agent.serve.loop import ServingLoop
from agent.serve.queue_api import QueueAPI
from agent.serve.queue_metrics import QueueMetrics
from agent.serve.queue_questions import QueueQuestions
from agent.serve.queue_series import QUEUE_SERIES
from agent.serve.queue_service import QueueService
from agent.serve.series import Tally
from agent.serve.sockets import SocketAccess
from agent.serve.steady_clock import steady_clock
from agent.serve.tls import ServerTLS
from agent.serve.webhook import PATH as WEBHOOK_PATH
from agent.serve.webhook import WEBHOOK_LIMITS, ResizeWebhook

_log = logging.getLogger("pinfold")

TICK_SECONDS = 5.0
_API_LIMITS = Limits(connections=256, idle_seconds=300.0)  # agents keep their connection between reports
_OPEN = ("/metrics", "/livez", "/readyz", "/healthz")  # for scrapers and probes, which show no certificate


class QueueServer:
    """Use as a context manager: serves in between. Raises AgentError where something cannot be had.

    clock: Unix seconds. cluster: objects of an API server, besides those of files. lease: where several replicas share the work
    of one. ticked: told every few seconds how many pods are kept.
    """

    def __init__(
        self,
        section: QueuesSection,
        loop: ServingLoop,
        clock: Clock | None = None,
        *,
        cluster: ClusterObjects | None = None,
        lease: LeaseCandidate | None = None,
        ticked: Callable[[int], None] | None = None,
    ) -> None:
        self.board = HealthBoard()
        self.tally = Tally(QUEUE_SERIES)
        self.webhook: HTTPServer | None = None
        self.api: HTTPServer | None = None
        self.grpc: QueueService | None = None
        self._section = section
        self._loop = loop
        self._clock = clock or steady_clock()
        self._cluster = cluster
        self._lease = lease
        self._ticked = ticked
        self._stack = ExitStack()
        self._stopping = threading.Event()
        self._local = ""  # the node of the agent that this is part of

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start(self) -> None:
        section = self._section
        store = None
        if section.stateDirectory:
            store = self._stack.enter_context(AccountantStore(Path(section.stateDirectory)))
        self.service = AccountantService(accountant_options(section), self._clock, store, total_of(section))
        self._stack.callback(self.service.close)
        intake = QueueIntake([Path(each) for each in section.objects], self._cluster, self.service, self.board)
        if self._cluster is not None:
            self._cluster.start()
            self._stack.callback(self._cluster.stop)
        intake.look()
        self.board.watch("nodes", self._nodes)
        self.board.watch("store", lambda: Check(not self.service.store_problem, self.service.store_problem))
        replica = Replica(self.service, self._lease)
        replica.start()
        self._stack.callback(replica.stop)  # once nothing listens any more
        if self._lease is not None:
            self.board.watch("lease", replica.check)
        questions = QueueQuestions(self.service, replica.standby)
        api = QueueAPI(questions, self.service, self.tally)
        health = health_routes(self.board)
        self._serve_webhook(section.webhook, health, replica)
        metrics = QueueMetrics(self.service, self.tally, replica.standby).answer
        routes = {**api.routes(), **health, "/metrics": metrics}
        self._serve_api(section.api, routes, api)
        if section.socket:
            access = SocketAccess(Path(section.socket), int(section.socketMode, 8), section.socketGroup or None)
            posts = {**api.questions(), **api.intake()}
            self._listen(HTTPServer(self._loop, "", 0, routes, _API_LIMITS, posts=posts, socket=access))
        self._serve_grpc(section.grpc, questions)
        thread = threading.Thread(target=self._watch, args=(intake,), name="queues", daemon=True)
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(self._stopping.set)

    def _serve_webhook(self, section: QueuesWebhookSection, health: Mapping[str, Route], replica: Replica) -> None:
        if not section.port:
            return
        hook = ResizeWebhook(self.service, self.tally, fail_open=self._section.failOpen, standby=replica.standby)
        tls = ServerTLS(Path(section.certificate), Path(section.key), _path(section.clientCA))
        self.board.watch("webhook-certificate", lambda: Check(True, tls.problem))
        posts = {WEBHOOK_PATH: hook.posting()}
        self.webhook = HTTPServer(
            self._loop, section.address, section.port, health, WEBHOOK_LIMITS, posts=posts, tls=tls, open_paths=_OPEN
        )
        self._listen(self.webhook)

    def _serve_api(self, section: QueuesAPISection, routes: Mapping[str, Route], api: QueueAPI) -> None:
        if not section.port:
            return
        tls: ServerTLS | None = None
        posts = dict(api.questions())
        if section.certificate:
            tls = files = ServerTLS(Path(section.certificate), Path(section.key), _path(section.clientCA))
            self.board.watch("api-certificate", lambda: Check(True, files.problem))
            if section.clientCA:
                posts |= api.intake()
            elif section.address not in ("127.0.0.1", "::1"):
                raise ConfigError("queues.api: beyond loopback clients must show certificates: give clientCA")
        self.api = HTTPServer(
            self._loop, section.address, section.port, routes, _API_LIMITS, posts=posts, tls=tls, open_paths=_OPEN
        )
        self._listen(self.api)

    def _serve_grpc(self, section: QueuesGRPCSection, questions: QueueQuestions) -> None:
        if not section.socket and not section.port:
            return
        access = tls = None
        if section.socket:
            access = SocketAccess(Path(section.socket), int(section.socketMode, 8), section.socketGroup or None)
        if section.certificate:
            tls = files = GRPCCertificates(Path(section.certificate), Path(section.key), _path(section.clientCA))
            self.board.watch("grpc-certificate", lambda: Check(True, files.problem))
        self.grpc = QueueService(self._loop, questions, access, section.address, section.port, tls)
        self._listen(self.grpc)
        self._show_health()

    def _listen(self, server: HTTPServer | QueueService) -> None:
        server.start()
        self._stack.callback(server.stop)

    def take_local(self, report: NodeReport) -> None:
        """A full report of the node that this runs on, whose agent is never silent while it runs."""
        self._local = report.node
        self.service.take_report(report)

    # --- watching ---

    def _watch(self, intake: QueueIntake) -> None:
        due = time.monotonic() + TICK_SECONDS
        while not self._stopping.wait(min(self._section.objectsPeriodSeconds, TICK_SECONDS)):
            self._guarded(intake.look)
            self._guarded(self._show_health)
            if time.monotonic() >= due:
                self._guarded(self._tick)
                due = time.monotonic() + TICK_SECONDS

    def _show_health(self) -> None:
        """gRPC's health is told, not asked for."""
        if self.grpc is not None:
            self.grpc.show(ready=self.board.is_ready())

    def _tick(self) -> None:
        if self._local:
            self.service.hear(self._local)
        pods = self.service.tick()
        if self._ticked is not None:
            self._ticked(pods)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:  # noqa: BLE001 - a bug in one look must not end all later ones; it is logged whole
            _log.exception("queue accounting: a step failed; it is tried again")

    def _nodes(self) -> Check:
        """Missing nodes are noteworthy, no reason to be out of service: the webhook has its own rule for them."""
        taken = self.service.view().capture
        stale, missing = len(taken.stale_since), len(taken.missing)
        return Check(True, f"{len(taken.nodes)} counted, {stale} of them silent, {missing} missing")


def _path(text: str) -> Path | None:
    return Path(text) if text else None
