"""An agent from its configuration: everything made, started in order, and taken down again.

What is off by configuration is not imported either, here and in `agent.serving`, `agent.report_config`, `agent.source_config`
and `agent.backends`: whoever makes such a thing imports it.
"""

from __future__ import annotations

import logging
import signal
import threading
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.backends import Backend, observing
from agent.config import Loaded
from agent.config_schema import Config
from agent.daemon import Daemon
from agent.device_watch import DeviceWatch
from agent.enforcement import Enforcement
from agent.hugepages_now import free_hugepages_now
from agent.keeper import Keeper, Rules
from agent.log import say
from agent.node.decision_log import DecisionLog
from agent.node.hotplug import Hotplug, HotplugError, KernelEvents
from agent.node.kubelet_files import KubeletFiles
from agent.node.service_manager import from_environment
from agent.node.state_store import StateStore
from agent.node_rules import read_machine, rules_of
from agent.pod_sources import PodSources
from agent.policy.podresources_view import Shape
from agent.preflight import oddities, prepare
from agent.publisher import Publisher
from agent.reload import manifests, periods, reconfigure, rediscover
from agent.report_config import announcer, couriers_of, reporter
from agent.serve.health import Check, HealthBoard
from agent.serve.loop import ServingLoop
from agent.serve.series import Tally
from agent.serve.sockets import refuse_taken
from agent.server_config import sockets
from agent.serving import Serving, bound_http
from agent.startup import first_state

if TYPE_CHECKING:
    from agent.queue_server import QueueServer

_log = logging.getLogger("pinfold")


@dataclass(frozen=True, slots=True)
class _Node:
    """What the agent decides about and writes to. newer: the state is of a newer program. decides: false where it only looks."""

    keeper: Keeper
    enforcement: Enforcement
    newer: bool
    decides: bool


def run(loaded: Loaded, path: Path | None, flags: dict[str, Any]) -> None:
    """Wire everything up, serve until SIGTERM or SIGINT, and take it down again. path, flags: for a reload."""
    config = loaded.config
    hung_up = threading.Event()
    # by default it would end the start, and systemd would not try again
    signal.signal(signal.SIGHUP, lambda *_: hung_up.set())
    rules = rules_of(read_machine(config), config)
    tally, board = Tally(), HealthBoard()
    with ExitStack() as stack:
        loop = stack.enter_context(ServingLoop())
        parts = prepare(config, loop, stack)
        for oddity in oddities(loaded):
            say(_log, logging.WARNING, "configuration", oddity=oddity)
        sources = PodSources(parts.sources, board)
        store = stack.enter_context(StateStore(Path(config.state.directory)))
        # first of all: an agent that cannot serve must not touch the pods of another
        refuse_taken(access.path for access in sockets(config))
        listening = bound_http(config, stack)
        node = _node(store, rules, tally, board, parts.backend)
        serving = Serving(config, loop, node.keeper, tally, board, lambda: daemon.look())  # noqa: PLW0108 - made below
        queues = _queue_server(config, loop, stack)
        announce = announcer(config, stack)
        evictions = None  # nobody is sent away for want of room by an agent that gives none
        if node.decides and config.enforcement.eviction is not None:
            from agent.evictions import evictions_of

            evictions = evictions_of(config, tally, announce, lambda: daemon.look(), stack)  # noqa: PLW0108 - made below
        couriers = couriers_of(config, tally)
        publisher = Publisher(
            node.keeper,
            board,
            serving.shown,
            serving.resources.publish,
            shape=_shape(config),
            upstream=serving.devices,
            reporter=reporter(config, node.keeper, tally, couriers, queues),
        )
        daemon = Daemon(
            node.keeper,
            manifests(config, pod_level=rules.managers.gates.pod_level_resources),
            node.enforcement,
            publisher,
            board,
            tally,
            from_environment(),
            periods=periods(config),
            reconfigure=lambda daemon: reconfigure(daemon, config, path, flags),
            hugepages=lambda: free_hugepages_now(config),
            rediscover=lambda daemon: rediscover(daemon, config),
            kubelet_files=_kubelet_files(config) if not node.newer else None,
            decision_log=_decision_log(config),
            sources=sources,
            announce=announce,
            devices=_device_watch(config, node.keeper, serving),
            evictions=evictions,
        )
        _listen(daemon, sources, stack)
        if hung_up.is_set():
            daemon.reload()
        for target in couriers:
            target.courier.worker.start()
            stack.callback(target.courier.worker.stop)
        serving.start(daemon, listening, stack)
        _say_started(config, rules)
        daemon.run()
    say(_log, logging.INFO, "stopped; all pins stay")


def _node(store: StateStore, rules: Rules, tally: Tally, board: HealthBoard, backend: Backend) -> _Node:
    """The state in force and the cgroups; nothing is written where somebody else pins here too, or knows the state better."""
    beginning = first_state(store)
    keeper = Keeper(
        store,
        rules,
        beginning.state,
        lambda seconds: tally.observe("pinfold_state_write_duration_seconds", seconds),
        stored=beginning.stored,
        frozen=beginning.newer,
    )
    newer = beginning.newer is not None
    decides = not newer and not backend.conflicts
    enforcement = backend.open() if decides else observing()
    if backend.conflicts:
        pinned = "; ".join(map(str, backend.conflicts))
        board.set("kubelet", Check(True, f"only observing: {pinned}"))
        say(_log, logging.WARNING, "only observing", why=pinned)
    return _Node(keeper, enforcement, newer, decides)


def _queue_server(config: Config, loop: ServingLoop, stack: ExitStack) -> QueueServer | None:
    """The accountant in this process, started; None where none is wanted."""
    if not config.queues.enabled:
        return None
    from agent.queue_server import QueueServer

    return stack.enter_context(QueueServer(config.queues, loop))


def _listen(daemon: Daemon, sources: PodSources, stack: ExitStack) -> None:
    """Have the kernel, the pod sources and signals wake the daemon."""
    try:
        hotplug = Hotplug(KernelEvents(), daemon.machine_changed)
    except HotplugError as error:
        say(_log, logging.WARNING, "hotplug is not watched", error=error, hint=error.hint)
    else:
        hotplug.start()
        stack.callback(hotplug.stop)
    sources.start(daemon.look)
    stack.callback(sources.stop)
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    signal.signal(signal.SIGINT, lambda *_: daemon.stop())
    signal.signal(signal.SIGHUP, lambda *_: daemon.reload())


def _device_watch(config: Config, keeper: Keeper, serving: Serving) -> DeviceWatch:
    section = config.podResources.upstream
    return DeviceWatch(keeper, serving.devices, section.waitSeconds if section is not None else 0.0)


def _kubelet_files(config: Config) -> KubeletFiles | None:
    """The kubelet's files beside the state, where they are wanted."""
    return KubeletFiles(Path(config.state.directory)) if config.state.kubeletFiles else None


def _shape(config: Config) -> Shape:
    """The release whose PodResources answers are given: the pod-level managers are shown the 1.37 way unless told otherwise."""
    return Shape(config.podResources.shape or config.kubeletVersion)


def _decision_log(config: Config) -> DecisionLog | None:
    """Where decisions are kept for later, if anywhere."""
    section = config.state
    return DecisionLog(Path(section.directory), section.decisionBytes) if section.decisionBytes else None


def _say_started(config: Config, rules: Rules) -> None:
    say(
        _log,
        logging.INFO,
        "started",
        cpu_policy=config.cpuManagerPolicy,
        memory_policy=config.memoryManagerPolicy,
        topology_policy=config.topologyManagerPolicy,
        pod_level_managers=rules.managers.gates.pod_level_resource_managers,
        podresources=config.podResources.socket,
        control=config.control.socket,
    )
