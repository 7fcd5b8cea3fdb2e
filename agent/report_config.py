"""What the section `reports` means: who is told of this node's occupancy, and who tells Kubernetes of pods.

What brings reports to others is imported where it is wanted: clients of servers are much of a start otherwise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config_schema import Config, KubernetesReportsSection
from agent.errors import AgentError
from agent.keeper import Keeper
from agent.log import say
from agent.policy.occupancy import Origin
from agent.policy.pod_events import PodEvent
from agent.reporting import RemoteTarget, Reporter, SpoolTarget, Target, Told
from agent.serve.series import Tally
from agent.source_config import access, apiserver_access, node_name

if TYPE_CHECKING:
    from agent.kube.report_writer import ReportWriter
    from agent.queue_server import QueueServer

_log = logging.getLogger("pinfold")


def reporter(
    config: Config,
    keeper: Keeper,
    tally: Tally,
    couriers: Sequence[RemoteTarget],
    queues: QueueServer | None,
) -> Reporter:
    """What makes the occupancy reports, and whom it tells. queues: the accountant in this process, if there is one."""
    targets: list[Target] = []
    if queues is not None:
        from agent.local_queues import LocalQueues

        targets.append(LocalQueues(queues))
    if (spool := config.reports.spool) is not None:
        from agent.node.report_spool import ReportSpool

        dropped = partial(tally.add, "pinfold_reports_dropped_total", target=SpoolTarget.name)
        targets.append(SpoolTarget(ReportSpool(Path(spool.directory), spool.keep, dropped=dropped)))
    targets += couriers
    return Reporter(keeper, origin(config), tuple(targets), tally)


def couriers_of(config: Config, tally: Tally) -> Sequence[RemoteTarget]:
    """What brings reports to other machines. Raises ConfigError where no API server is known."""
    found: list[RemoteTarget] = []
    if (kubernetes := config.reports.kubernetes) is not None:
        told = Told("kubernetes", tally)
        found.append(RemoteTarget(told, _report_writer(config, kubernetes, told)))
    if (accountant := config.reports.accountant) is not None:
        from agent.kube.accountant_client import AccountantClient
        from agent.kube.http_access import Server

        told = Told("accountant", tally)
        client = AccountantClient(Server(access(accountant)), told.failed, told.delivered, accountant.beatSeconds)
        found.append(RemoteTarget(told, client))
    return found


def announcer(config: Config, stack: ExitStack) -> Callable[[PodEvent], None]:
    """Whoever tells Kubernetes of pods, started; nobody where that is not wanted."""
    section = config.reports.kubernetes
    if section is None or not section.events:
        return lambda event: None
    from agent.kube.event_writer import EventWriter
    from agent.kube.http_access import Server

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


def _report_writer(config: Config, section: KubernetesReportsSection, told: Told) -> ReportWriter:
    """What puts reports into Kubernetes. Raises ConfigError where no API server is known."""
    from agent.kube.http_access import Server
    from agent.kube.report_writer import ReportWriter, WriterOptions

    options = WriterOptions(
        topology=section.nodeResourceTopology,
        placement=section.placementAnnotations,
        pods_fingerprint=section.podsFingerprint,
        force=section.force,
        resync_seconds=section.resyncSeconds,
    )
    return ReportWriter(Server(apiserver_access(config)), options, told.failed, told.delivered)
