"""`pinfold queues serve`: the accountant as a process of its own."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from uuid import uuid4

import click

from agent.commands.long_lived import LongLived
from agent.commands.options import config_options, parse_flags
from agent.config import load
from agent.config_schema import Config
from agent.kube.cluster_objects import ClusterObjects
from agent.kube.lease import LeaseCandidate, LeaseName
from agent.log import say, set_up
from agent.node.service_manager import from_environment
from agent.queue_server import QueueServer
from agent.queues.election import ElectionOptions
from agent.serve.loop import ServingLoop
from agent.source_config import apiserver_access, own_namespace

_log = logging.getLogger("pinfold")

# A scrape or a page computes for some milliseconds in a thread of its own; Python's default of 5 ms would let it hold up a review
# by that much every time.
SWITCH_SECONDS = 0.0005


@click.command()
@config_options
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def command(config: Path | None, flags: tuple[str, ...], verbose: bool) -> int:
    """Serve resize admission, the query API, metrics and the queue page, from objects in files and from node reports.

    Everything is set in the section `queues` of the configuration. SIGTERM ends it.

    \b
    Examples:
      pinfold queues serve --set queues.objects='[/etc/pinfold/queues]'
      pinfold queues serve --config queues.yaml
    """
    set_up(verbose=verbose)
    serve(load(config, parse_flags(flags)).config)
    return 0


def serve(config: Config) -> None:
    """Serve until SIGTERM or SIGINT."""
    section = config.queues
    cluster = None
    if section.apiserver:
        cluster = ClusterObjects(apiserver_access(config), pods=section.apiserverPods)
    sys.setswitchinterval(SWITCH_SECONDS)
    stopped, service = threading.Event(), from_environment()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    signal.signal(signal.SIGINT, lambda *_: stopped.set())
    ticked = LongLived().look
    with (
        ServingLoop() as loop,
        QueueServer(section, loop, cluster=cluster, lease=lease(config), ticked=ticked) as server,
    ):
        say(
            _log,
            logging.INFO,
            "queue accounting started",
            webhook=None if server.webhook is None else f"{server.webhook.address}:{server.webhook.port}",
            api=None if server.api is None else f"{server.api.address}:{server.api.port}",
            socket=section.socket,
            grpc=None if server.grpc is None else f"{server.grpc.address}:{server.grpc.port}",
            ledger=section.ledger,
        )
        service.ready("queue accounting")
        stopped.wait()
        service.stopping()
    say(_log, logging.INFO, "queue accounting stopped")


def lease(config: Config) -> LeaseCandidate | None:
    """The Lease of `queues.lease`, for which this process stands under a name of its own. Raises ConfigError."""
    section = config.queues.lease
    if section is None:
        return None
    name = LeaseName(section.namespace or own_namespace(), section.name)
    identity = f"{os.uname().nodename}_{uuid4()}"  # a restarted container is another process: it waits like everybody
    options = ElectionOptions(identity, section.durationSeconds, section.renewDeadlineSeconds, section.retrySeconds)
    return LeaseCandidate(apiserver_access(config), name, options)
