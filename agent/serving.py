"""Everybody whom the agent serves on this host: PodResources, the node service, HTTP, the control socket.

What is off by configuration is not imported either: that is time of every start and memory of every agent.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config_schema import Config
from agent.daemon import Daemon
from agent.device_watch import devices_awaited
from agent.keeper import Keeper
from agent.model.machine import Machine
from agent.model.topology import Topology
from agent.node.topology import read_topology
from agent.report_config import origin
from agent.serve.board import NodeBoard
from agent.serve.control import ControlServer
from agent.serve.health import Check, HealthBoard, SourceHealth
from agent.serve.loop import ServingLoop
from agent.serve.podresources import PodResourcesServer
from agent.serve.series import Tally
from agent.server_config import endpoints, http_tls, node_access
from agent.source_config import node_name

if TYPE_CHECKING:
    from agent.serve.gauges import GaugedNode
    from agent.serve.node_service import NodeService
    from agent.serve.podresources_upstream import Upstream


class Serving:
    """One agent's servers. news: called when the devices of the kubelet's PodResources have changed.

    resources, devices, shown: what the agent publishes to; devices is None where none are passed through.
    """

    def __init__(
        self,
        config: Config,
        loop: ServingLoop,
        keeper: Keeper,
        tally: Tally,
        board: HealthBoard,
        news: Callable[[], None],
    ) -> None:
        self._config = config
        self._loop = loop
        self._keeper = keeper
        self._tally = tally
        self._board = board
        self.resources = PodResourcesServer(loop, endpoints(config))
        self.devices = _upstream(config, loop, keeper, news)
        self.shown = NodeBoard()

    def start(self, daemon: Daemon, listening: socket.socket | None, stack: ExitStack) -> None:
        """Serve what `daemon` holds, until the stack is closed. listening: bound for HTTP; None where that is off."""
        self.resources.start(daemon.prepare())
        stack.callback(self.resources.stop)
        if self.devices is not None:
            self.devices.start()
            stack.callback(self.devices.stop)
        service = self._node_service(stack)
        if listening is not None:
            self._http(daemon, service, listening, stack)
        stack.enter_context(ControlServer(Path(self._config.control.socket), daemon.call))

    def _node_service(self, stack: ExitStack) -> NodeService | None:
        config = self._config
        if not config.nodeService.socket:
            return None
        from agent.serve.node_service import NodeService

        service = NodeService(self._loop, node_access(config), self.shown, node_name(config), origin(config))
        service.start()
        stack.callback(service.stop)
        return service

    def _http(self, daemon: Daemon, service: NodeService | None, listening: socket.socket, stack: ExitStack) -> None:
        """Probes, metrics and the page."""
        from prometheus_client import CollectorRegistry, ProcessCollector

        from agent.serve.exposition import metrics_route
        from agent.serve.health_routes import health_routes
        from agent.serve.http import HTTPServer
        from agent.serve.metrics import NodeCollector
        from agent.serve.page import StatusPage

        config, board = self._config, self._board
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        registry.register(
            NodeCollector(
                lambda: self._observed(daemon, service),
                self._tally,
                self.resources.calls,
                kubelet_names=config.http.kubeletMetrics,
            )
        )
        page = StatusPage(self.shown, node_name(config), _machine_facts(config, self._keeper))
        routes = {**health_routes(board), "/metrics": metrics_route(registry), **page.routes()}
        tls = http_tls(config)
        if tls is not None:
            board.watch("http-certificate", lambda: Check(True, tls.problem))
        http = HTTPServer(
            self._loop,
            config.http.address,
            config.http.port,
            routes,
            tls=tls,
            open_paths=frozenset({"/metrics"}),
            held=listening,
        )
        http.start()
        stack.callback(http.stop)

    def _observed(self, daemon: Daemon, service: NodeService | None) -> GaugedNode:
        """What the gauges are computed from, now."""
        from agent.serve.gauges import GaugedNode

        keeper = self._keeper
        return GaugedNode(
            keeper.state,
            keeper.managers.machine,
            self._board.is_ready(),
            self._source_health(daemon),
            refused=len(keeper.refused),
            mispinned=daemon.mispinned,
            watchers=service.watchers if service is not None else 0,
            misaligned=len(keeper.misaligned),
        )

    def _source_health(self, daemon: Daemon) -> Mapping[str, SourceHealth]:
        """Whoever the agent listens to."""
        devices = {"podresources-upstream": self.devices.health()} if self.devices is not None else {}
        return {**daemon.observing.health(), **devices}


def bound_http(config: Config, stack: ExitStack) -> socket.socket | None:
    """The address of the HTTP server, taken; None where it is off. Raises AgentError."""
    if not config.http.port:
        return None
    from agent.serve.http import bound

    return stack.enter_context(bound(config.http.address, config.http.port))


def _upstream(config: Config, loop: ServingLoop, keeper: Keeper, changed: Callable[[], None]) -> Upstream | None:
    """The PodResources server whose devices are passed through, if configured."""
    section = config.podResources.upstream
    if section is None:
        return None
    from agent.serve.podresources_upstream import Upstream, UpstreamAccess

    access = UpstreamAccess(Path(section.socket), section.periodSeconds, section.timeoutSeconds)
    return Upstream(loop, access, lambda: frozenset(keeper.state.pods), changed, lambda: devices_awaited(keeper.state))


def _machine_facts(config: Config, keeper: Keeper) -> Callable[[], Topology]:
    """The plain facts of the machine in force, for its picture: read when somebody looks, and again when it has changed."""
    known: list[tuple[Machine, Topology]] = []

    def facts() -> Topology:
        machine = keeper.managers.machine
        if not known or known[0][0] is not machine:
            known[:] = [(machine, read_topology(Path(config.node.root)))]
        return known[0][1]

    return facts
