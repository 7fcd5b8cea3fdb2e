"""`pinfold run`: the daemon."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
from prometheus_client import CollectorRegistry, ProcessCollector

from agent.backends import backend, conflicts
from agent.commands.options import config_options, parse_flags
from agent.config import Loaded, load
from agent.config_schema import Config, KubernetesReportsSection
from agent.daemon import Daemon, Periods
from agent.device_watch import DeviceWatch, devices_awaited
from agent.enforcement import Enforcement
from agent.errors import AgentError
from agent.evictions import evictions_of
from agent.hugepages_now import free_hugepages_now
from agent.keeper import Keeper, Rules, policy_in_force
from agent.kube.accountant_client import AccountantClient
from agent.kube.event_writer import EventWriter
from agent.kube.http_access import Server
from agent.kube.manifest_directory import ManifestDirectory
from agent.kube.report_writer import ReportWriter, WriterOptions
from agent.local_queues import LocalQueues
from agent.log import say, set_up
from agent.model.machine import Machine
from agent.model.quantity import Quantity
from agent.model.topology import Topology
from agent.node.decision_log import DecisionLog
from agent.node.enforcer import ObserveOnly
from agent.node.hotplug import Hotplug, HotplugError, KernelEvents
from agent.node.kubelet_files import KubeletFiles
from agent.node.report_spool import ReportSpool
from agent.node.service_manager import from_environment
from agent.node.state_store import StateStore
from agent.node.topology import read_topology
from agent.node_config import manager_config, node_capacity
from agent.pod_sources import PodSources
from agent.policy.managers import start
from agent.policy.occupancy import Origin
from agent.policy.pod_events import PodEvent
from agent.policy.podresources_view import Shape
from agent.policy.policy_machine import policy_machine
from agent.policy.second import SECOND_SOURCES
from agent.preflight import oddities, refuse
from agent.publisher import Publisher
from agent.queue_server import QueueServer
from agent.reporting import RemoteTarget, Reporter, SpoolTarget, Target, Told
from agent.serve.board import NodeBoard
from agent.serve.control import ControlServer
from agent.serve.exposition import metrics_route
from agent.serve.gauges import Observed, SourceHealth
from agent.serve.health import Check, HealthBoard, health_routes
from agent.serve.http import HTTPServer, bound
from agent.serve.loop import ServingLoop
from agent.serve.metrics import NodeCollector
from agent.serve.node_service import NodeService
from agent.serve.page import StatusPage
from agent.serve.podresources import PodResourcesServer
from agent.serve.podresources_upstream import Upstream, UpstreamAccess
from agent.serve.series import Tally
from agent.serve.sockets import refuse_taken
from agent.server_config import endpoints, http_tls, node_access, sockets
from agent.source_config import access, apiserver_access, node_name
from agent.source_config import sources as pod_sources
from agent.startup import first_state

_log = logging.getLogger("pinfold")
RESTART_SECTIONS = ("node", "state", "reports", "podResources", "nodeService", "http", "control", "queues")
_LIVE = {"periodSeconds": 1.0, "podQuota": "kubelet"}  # what of `enforcement` a reload applies


@click.command()
@config_options
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(config: Path | None, flags: tuple[str, ...], verbose: bool) -> int:
    """Run the agent in the foreground.

    SIGTERM ends it, all pins stay. SIGHUP reads the configuration again.

    \b
    Examples:
      pinfold run
      pinfold run --config ./config.yaml --set state.directory=/tmp/pinfold
    """
    set_up(verbose=verbose)
    values = parse_flags(flags)
    run(load(config, values), config, values)
    return 0


def run(loaded: Loaded, path: Path | None, flags: dict[str, Any]) -> None:
    """Wire everything up, serve until SIGTERM or SIGINT, and take it down again."""
    config = loaded.config
    machine = read_machine(config)
    rules = rules_of(machine, config)
    managers = rules.managers
    tally, board = Tally(), HealthBoard()
    refuse(config)
    for oddity in oddities(loaded):
        say(_log, logging.WARNING, "configuration", oddity=oddity)
    pinned = conflicts(config)
    sources = PodSources(pod_sources(config), board)
    with ExitStack() as stack:
        store = stack.enter_context(StateStore(Path(config.state.directory)))
        # first of all: an agent that cannot serve must not touch the pods of another
        refuse_taken(access.path for access in sockets(config))
        held = stack.enter_context(bound(config.http.address, config.http.port)) if config.http.port else None
        beginning = first_state(store)
        keeper = Keeper(
            store,
            rules,
            beginning.state,
            lambda seconds: tally.observe("pinfold_state_write_duration_seconds", seconds),
            stored=beginning.stored,
            frozen=beginning.newer,
        )
        enforcement = backend(config) if beginning.newer is None and not pinned else Enforcement(ObserveOnly(), None)
        if pinned:
            board.set("kubelet", Check(True, f"only observing: {'; '.join(map(str, pinned))}"))
            say(_log, logging.WARNING, "only observing", why="; ".join(map(str, pinned)))
        loop = stack.enter_context(ServingLoop())
        resources = PodResourcesServer(loop, endpoints(config))
        queues = stack.enter_context(QueueServer(config.queues, loop)) if config.queues.enabled else None
        shown = NodeBoard()
        devices = upstream(config, loop, keeper, lambda: daemon.look())  # noqa: PLW0108 - made below
        section = config.podResources.upstream
        announce = announcer(config, stack)
        evictions = None  # nobody is sent away for want of room by an agent that gives none
        if beginning.newer is None and not pinned:
            evictions = evictions_of(config, tally, announce, lambda: daemon.look(), stack)  # noqa: PLW0108 - made below
        couriers = couriers_of(config, tally)
        publisher = Publisher(
            keeper,
            board,
            shown,
            resources.publish,
            shape=shape(config),
            upstream=devices,
            reporter=reporter(config, keeper, tally, couriers, queues),
        )
        daemon = Daemon(
            keeper,
            manifests(config, pod_level=managers.gates.pod_level_resources),
            enforcement,
            publisher,
            board,
            tally,
            from_environment(),
            periods=periods(config),
            reconfigure=lambda daemon: reconfigure(daemon, config, path, flags),
            hugepages=lambda: free_hugepages_now(config),
            rediscover=lambda daemon: rediscover(daemon, config),
            kubelet_files=kubelet_files(config) if beginning.newer is None else None,
            decision_log=decision_log(config),
            sources=sources,
            announce=announce,
            devices=DeviceWatch(keeper, devices, section.waitSeconds if section is not None else 0.0),
            evictions=evictions,
        )
        watch_hotplug(daemon, stack)
        sources.start(daemon.look)
        stack.callback(sources.stop)
        signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
        signal.signal(signal.SIGINT, lambda *_: daemon.stop())
        signal.signal(signal.SIGHUP, lambda *_: daemon.reload())
        resources.start(daemon.prepare())
        stack.callback(resources.stop)
        if devices is not None:
            devices.start()
            stack.callback(devices.stop)
        service = None
        for target in couriers:
            target.courier.worker.start()
            stack.callback(target.courier.worker.stop)
        if config.nodeService.socket:
            service = NodeService(loop, node_access(config), shown, node_name(config), origin(config))
            service.start()
            stack.callback(service.stop)
        if held is not None:
            registry = CollectorRegistry()
            ProcessCollector(registry=registry)
            registry.register(
                NodeCollector(
                    lambda: observed(daemon, board, devices, service),
                    tally,
                    resources.calls,
                    kubelet_names=config.http.kubeletMetrics,
                )
            )
            page = StatusPage(shown, node_name(config), machine_facts(config, keeper))
            routes = {**health_routes(board), "/metrics": metrics_route(registry), **page.routes()}
            tls = http_tls(config)
            if tls is not None:
                board.watch("http-certificate", lambda: Check(True, tls.problem))
            http = HTTPServer(
                loop,
                config.http.address,
                config.http.port,
                routes,
                tls=tls,
                open_paths=frozenset({"/metrics"}),
                held=held,
            )
            http.start()
            stack.callback(http.stop)
        stack.enter_context(ControlServer(Path(config.control.socket), daemon.call))
        say(
            _log,
            logging.INFO,
            "started",
            cpu_policy=config.cpuManagerPolicy,
            memory_policy=config.memoryManagerPolicy,
            topology_policy=config.topologyManagerPolicy,
            pod_level_managers=managers.gates.pod_level_resource_managers,
            podresources=config.podResources.socket,
            control=config.control.socket,
        )
        daemon.run()
    say(_log, logging.INFO, "stopped; all pins stay")


def read_machine(config: Config) -> Machine:
    """The machine below `node.sysRoot`, which is the directory that holds sys/ and proc/."""
    return policy_machine(read_topology(Path(config.node.root)))


def rules_of(machine: Machine, config: Config) -> Rules:
    """What a state must fit. Raises ConfigError and StartError."""
    settings = manager_config(machine, config)
    managers = start(machine, settings)
    return Rules(
        managers,
        node_capacity(machine, config),
        policy_in_force(managers, settings),
        boot_id(config),
        Quantity.parse(config.state.memoryTolerance).value(),
        config.state.confirmNewCPUs,
    )


def boot_id(config: Config) -> str:
    """The kernel's id of this boot; empty where there is none (a captured tree)."""
    try:
        path = Path(config.node.root) / "proc/sys/kernel/random/boot_id"
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def kubelet_files(config: Config) -> KubeletFiles | None:
    """The kubelet's files beside the state, where they are wanted."""
    return KubeletFiles(Path(config.state.directory)) if config.state.kubeletFiles else None


def manifests(config: Config, *, pod_level: bool) -> ManifestDirectory | None:
    """The manifests source, if configured."""
    source = config.sources.manifests
    return None if source is None else ManifestDirectory(Path(source.path), pod_level)


def periods(config: Config) -> Periods:
    """How often the loop looks."""
    source = config.sources.manifests.periodSeconds if config.sources.manifests is not None else 3600.0
    return Periods(source, config.enforcement.periodSeconds)


def reporter(
    config: Config,
    keeper: Keeper,
    tally: Tally,
    couriers: Sequence[RemoteTarget],
    queues: QueueServer | None,
) -> Reporter:
    """What makes the occupancy reports, and whom it tells."""
    targets: list[Target] = []
    if queues is not None:
        targets.append(LocalQueues(queues))
    if (spool := config.reports.spool) is not None:
        dropped = partial(tally.add, "pinfold_reports_dropped_total", target=SpoolTarget.name)
        targets.append(SpoolTarget(ReportSpool(Path(spool.directory), spool.keep, dropped=dropped)))
    targets += couriers
    return Reporter(keeper, origin(config), tuple(targets), tally)


def couriers_of(config: Config, tally: Tally) -> Sequence[RemoteTarget]:
    """What brings reports to other machines. Raises ConfigError where no API server is known."""
    found: list[RemoteTarget] = []
    if (kubernetes := config.reports.kubernetes) is not None:
        told = Told("kubernetes", tally)
        found.append(RemoteTarget(told, report_writer(config, kubernetes, told)))
    if (accountant := config.reports.accountant) is not None:
        told = Told("accountant", tally)
        server = Server(access(accountant))
        client = AccountantClient(server, told.failed, told.delivered, accountant.beatSeconds)
        found.append(RemoteTarget(told, client))
    return found


def report_writer(config: Config, section: KubernetesReportsSection, told: Told) -> ReportWriter:
    """What puts reports into Kubernetes. Raises ConfigError where no API server is known."""
    options = WriterOptions(
        topology=section.nodeResourceTopology,
        placement=section.placementAnnotations,
        pods_fingerprint=section.podsFingerprint,
        force=section.force,
        resync_seconds=section.resyncSeconds,
    )
    return ReportWriter(Server(apiserver_access(config)), options, told.failed, told.delivered)


def announcer(config: Config, stack: ExitStack) -> Callable[[PodEvent], None]:
    """Whoever tells Kubernetes of pods, started; nobody where that is not wanted."""
    section = config.reports.kubernetes
    if section is None or not section.events:
        return lambda event: None
    said: list[str] = [""]

    def failed(error: AgentError | None) -> None:
        text = str(error) if error is not None else ""
        if text and text != said[0]:
            say(_log, logging.WARNING, "event not written", error=text, hint=error.hint if error is not None else "")
        said[0] = text

    writer = EventWriter(Server(apiserver_access(config)), node_name(config), failed)
    writer.worker.start()
    stack.callback(writer.worker.stop)
    return writer.tell


def origin(config: Config) -> Origin:
    """What occupancy reports say of this node."""
    return Origin(node_name(config), config.reports.queueLabel)


def shape(config: Config) -> Shape:
    """The release whose PodResources answers are given: the pod-level managers are shown the 1.37 way unless told otherwise."""
    return Shape(config.podResources.shape or config.kubeletVersion)


def decision_log(config: Config) -> DecisionLog | None:
    """Where decisions are kept for later, if anywhere."""
    section = config.state
    return DecisionLog(Path(section.directory), section.decisionBytes) if section.decisionBytes else None


def upstream(config: Config, loop: ServingLoop, keeper: Keeper, changed: Callable[[], None]) -> Upstream | None:
    """The PodResources server whose devices are passed through, if configured."""
    section = config.podResources.upstream
    if section is None:
        return None
    access = UpstreamAccess(Path(section.socket), section.periodSeconds, section.timeoutSeconds)
    return Upstream(loop, access, lambda: frozenset(keeper.state.pods), changed, lambda: devices_awaited(keeper.state))


def observed(daemon: Daemon, board: HealthBoard, devices: Upstream | None, service: NodeService | None) -> Observed:
    """What the gauges are computed from, now."""
    keeper = daemon.keeper
    return Observed(
        keeper.state,
        keeper.managers.machine,
        board.is_ready(),
        source_health(daemon, devices),
        refused=len(keeper.refused),
        mispinned=daemon.mispinned,
        watchers=service.watchers if service is not None else 0,
        misaligned=len(keeper.misaligned),
    )


def source_health(daemon: Daemon, upstream: Upstream | None) -> Mapping[str, SourceHealth]:
    """Whoever the agent listens to, for the metrics."""
    return {**daemon.source_health(), **({"podresources-upstream": upstream.health()} if upstream is not None else {})}


def machine_facts(config: Config, keeper: Keeper) -> Callable[[], Topology]:
    """The plain facts of the machine in force, for its picture: read when somebody looks, and again when it has changed."""
    known: list[tuple[Machine, Topology]] = []

    def facts() -> Topology:
        machine = keeper.managers.machine
        if not known or known[0][0] is not machine:
            known[:] = [(machine, read_topology(Path(config.node.root)))]
        return known[0][1]

    return facts


def watch_hotplug(daemon: Daemon, stack: ExitStack) -> None:
    """Have the loop look at the machine when the kernel says that it has changed."""
    try:
        hotplug = Hotplug(KernelEvents(), daemon.machine_changed)
    except HotplugError as error:
        say(_log, logging.WARNING, "hotplug is not watched", error=error, hint=error.hint)
        return
    hotplug.start()
    stack.callback(hotplug.stop)


def rediscover(daemon: Daemon, config: Config) -> None:
    """Go on under the machine as it is now. Raises AgentError; then everything stays as it was."""
    machine = read_machine(config)
    if machine != daemon.keeper.managers.machine:
        daemon.keeper.under(rules_of(machine, config))


def reconfigure(daemon: Daemon, running: Config, path: Path | None, flags: dict[str, Any]) -> None:
    """Apply what can change live, and say what needs a restart. Raises AgentError; then everything stays as it was."""
    config = load(path, flags).config
    machine = read_machine(config)
    rules = rules_of(machine, config)
    managers = rules.managers
    daemon.keeper.under(rules)
    source = manifests(config, pod_level=managers.gates.pod_level_resources)
    if source is None or daemon.manifests is None or source.path != daemon.manifests.path:
        daemon.manifests = source
    daemon.periods = periods(config)
    daemon.hugepages = lambda: free_hugepages_now(config)
    daemon.rediscover = lambda daemon: rediscover(daemon, config)
    daemon.enforcement.strict_pod_quota = config.enforcement.podQuota == "strict"
    stale = [name for name in RESTART_SECTIONS if getattr(config, name) != getattr(running, name)]
    if config.enforcement.model_copy(update=_LIVE) != running.enforcement.model_copy(update=_LIVE):
        stale.append("enforcement")
    if any(getattr(config.sources, name) != getattr(running.sources, name) for name in SECOND_SOURCES):
        stale.append("sources")
    for section in stale:
        say(_log, logging.WARNING, "needs a restart", section=section)
