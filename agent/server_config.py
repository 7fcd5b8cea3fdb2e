"""What the configuration says of whoever the agent serves on this host: its sockets and its certificate."""

from __future__ import annotations

from pathlib import Path

from agent.config_schema import Config
from agent.config_schema_serving import ClientGroup, PodResourcesSection
from agent.serve.podresources import Endpoint
from agent.serve.sockets import SocketAccess
from agent.serve.tls import ServerTLS
from agent.serve.token_bucket import RateLimit


def sockets(config: Config) -> list[SocketAccess]:
    """All sockets that the agent makes."""
    found = [each.access for each in endpoints(config)]
    if config.nodeService.socket:
        found.append(node_access(config))
    if config.queues.enabled and config.queues.socket:
        queues = config.queues
        found.append(SocketAccess(Path(queues.socket), int(queues.socketMode, 8), queues.socketGroup or None))
    if config.queues.enabled and config.queues.grpc.socket:
        grpc = config.queues.grpc
        found.append(SocketAccess(Path(grpc.socket), int(grpc.socketMode, 8), grpc.socketGroup or None))
    return [*found, SocketAccess(Path(config.control.socket), 0o600)]


def endpoints(config: Config) -> list[Endpoint]:
    """The PodResources sockets: the one that everybody knows, and one per group of clients."""
    section = config.podResources
    return [_endpoint("default", section), *(_endpoint(name, group) for name, group in section.clients.items())]


def node_access(config: Config) -> SocketAccess:
    """The node service's socket."""
    section = config.nodeService
    return SocketAccess(Path(section.socket), int(section.mode, 8), section.group or None)


def http_tls(config: Config) -> ServerTLS | None:
    """The certificate of the HTTP server, if any."""
    section = config.http
    if not section.certificate:
        return None
    return ServerTLS(Path(section.certificate), Path(section.key), Path(section.clientCA) if section.clientCA else None)


def _endpoint(name: str, section: PodResourcesSection | ClientGroup) -> Endpoint:
    access = SocketAccess(Path(section.socket), int(section.mode, 8), section.group or None)
    limit = RateLimit(section.qps, section.burst) if section.qps else None
    return Endpoint(access, name, limit)
