"""What `run` would refuse on this host, found without changing anything: the same checks for `config check` and the start.

What only a start can tell is not here: whether a socket, a port or the state directory is in use. `config check` runs beside
the agent that uses them.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.backends import Backend, assemble
from agent.config import ConfigError, Loaded
from agent.config_schema import Config
from agent.errors import AgentError
from agent.node.state_store import check_directory
from agent.policy.feature_gates import known_gates
from agent.serve.loop import ServingLoop
from agent.serve.sockets import SocketFile
from agent.server_config import http_tls, sockets
from agent.source_config import access, apiserver_access
from agent.source_config import sources as pod_sources

if TYPE_CHECKING:
    from agent.kube.pods_stream import EventLoop
    from agent.kube.source import Feed


@dataclass(frozen=True, slots=True)
class Parts:
    """What the checks have made on their way, for the start to go on with. sources: the one that knows best first."""

    sources: Sequence[Feed]
    backend: Backend


def prepare(config: Config, loop: EventLoop, stack: ExitStack) -> Parts:
    """Make the parts, each once, and do every other check. loop: for the sources. stack: closes what they hold open.

    Raises the first of `faults`, as it is.
    """
    parts = Parts(pod_sources(config, loop), assemble(config, stack))
    for check in _checks(config):
        check()
    return parts


def faults(config: Config) -> Iterator[AgentError]:
    """Everything that the agent would not start with, one for each subject."""
    with ServingLoop() as loop, ExitStack() as stack:
        for check in (lambda: pod_sources(config, loop), lambda: assemble(config, stack), *_checks(config)):
            try:
                check()
            except AgentError as error:
                yield error


def _checks(config: Config) -> Iterator[Callable[[], object]]:
    """Those that make nothing."""
    for check in (_state, _reports, _eviction, _certificate, _queues, _sockets_apart):
        yield partial(check, config)
    for socket in sockets(config):
        yield SocketFile(socket).check


def oddities(loaded: Loaded) -> Iterator[str]:
    """What the agent starts with and somebody has meant otherwise, one sentence each.

    Gates that decide nothing here: a kubelet refuses a name that it does not know ("unrecognized feature gate"), and which names
    it knows differs from release to release. Those of the kubelet's own file are its business.
    """
    ours = known_gates()
    for name in sorted(loaded.config.featureGates.keys() - ours):
        origin = loaded.origin(f"featureGates.{name}")
        if loaded.config.kubeletConfig is not None and origin.startswith(f"{loaded.config.kubeletConfig}:"):
            continue
        yield f"{origin}: featureGates.{name} decides nothing here{_meant(name, ours)}"


def _meant(name: str, known: Iterable[str]) -> str:
    lower = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), lower, n=1, cutoff=0.85)
    return f", did you mean {lower[near[0]]}?" if near else ""


def _state(config: Config) -> None:
    check_directory(Path(config.state.directory))


def _reports(config: Config) -> None:
    if config.reports.kubernetes is not None:
        apiserver_access(config)
    if config.reports.accountant is not None:
        access(config.reports.accountant)


def _eviction(config: Config) -> None:
    if config.enforcement.eviction is not None:
        apiserver_access(config)


def _certificate(config: Config) -> None:
    if config.http.port and (tls := http_tls(config)) is not None:
        tls.context()


def _queues(config: Config) -> None:
    if config.queues.enabled:
        from agent.queue_config import total_of  # the accountant's rules are much of a start, and most agents have none

        total_of(config.queues)


def _sockets_apart(config: Config) -> None:
    """Two at one path: the second would find it in use, by ourselves."""
    paths = [access.path for access in sockets(config)]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigError(
                f"{path}: two of the configured sockets are there",
                hint="give podResources, its clients, nodeService, control and queues a path each",
            )
