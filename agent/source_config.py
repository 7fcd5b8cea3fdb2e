"""What the section `sources` means: the pod sources that it asks for, and the node's name that they need.

A source is imported where it is asked for: each is a client of a server, and most nodes have none or one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agent.config import ConfigError
from agent.config_schema import APIServerSourceSection, Config, ServerSource
from agent.errors import AgentError

if TYPE_CHECKING:
    from agent.kube.http_access import Access
    from agent.kube.pods_stream import EventLoop
    from agent.kube.source import Feed

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")  # where a pod finds its account's files


def node_name(config: Config, environment: Mapping[str, str] = os.environ) -> str:
    """The name of this node's Node object: configured, else $NODE_NAME, else the host's name as the kubelet takes it."""
    return config.node.name or environment.get("NODE_NAME", "") or os.uname().nodename.strip().lower()


def sources(config: Config, loop: EventLoop, environment: Mapping[str, str] = os.environ) -> list[Feed]:
    """The sources beside the manifests, the one that knows best first. Raises ConfigError, AccessConfigError.

    loop: runs when the first of them is started.
    """
    found: list[Feed] = []
    pods, kubelet, apiserver = config.sources.pods, config.sources.kubelet, config.sources.apiserver
    if pods is not None:
        from agent.kube.pods_source import PodsAccess, PodsSource

        found.append(PodsSource(PodsAccess(Path(pods.socket), pods.timeoutSeconds), loop).feed)
    if kubelet is not None:
        from agent.kube.kubelet_source import KubeletSource

        found.append(KubeletSource(access(kubelet), kubelet.periodSeconds).feed)
    if apiserver is not None:
        from agent.kube.apiserver_source import APIServerSource

        found.append(APIServerSource(_apiserver_access(apiserver, environment), node_name(config, environment)).feed)
    return found


def apiserver_access(config: Config, environment: Mapping[str, str] = os.environ) -> Access:
    """The API server: that of `sources.apiserver`, else the one that a pod's environment names. Raises ConfigError."""
    return _apiserver_access(config.sources.apiserver or APIServerSourceSection(), environment)


def access(section: ServerSource, url: str = "", account: Path | None = None) -> Access:
    """How to reach the server of a section. url, account: what holds where the section says nothing."""
    from agent.kube.http_access import Access

    def file(name: str, default: str = "") -> Path | None:
        if name:
            return Path(name)
        return account / default if account is not None and default else None

    return Access(
        section.url or url,
        ca_file=file(section.caFile, "ca.crt"),
        token_file=file(section.tokenFile, "" if section.clientCertificateFile else "token"),
        client_certificate=file(section.clientCertificateFile),
        client_key=file(section.clientKeyFile),
        verify=not section.insecureSkipTLSVerify,
        timeout_seconds=section.timeoutSeconds,
    )


def _apiserver_access(section: APIServerSourceSection, environment: Mapping[str, str]) -> Access:
    if section.kubeconfig:
        from agent.kube.kubeconfig import read_kubeconfig

        return replace(read_kubeconfig(Path(section.kubeconfig)), timeout_seconds=section.timeoutSeconds)
    if section.url:
        return access(section)
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            "sources.apiserver: no url, and the environment names no API server (KUBERNETES_SERVICE_HOST)",
            hint="set sources.apiserver.kubeconfig or url, or run pinfold as a pod",
        )
    return access(section, f"https://{f'[{host}]' if ':' in host else host}:{port}", SERVICE_ACCOUNT)


def own_namespace(account: Path = SERVICE_ACCOUNT) -> str:
    """The namespace of the pod that this process is in. Raises ConfigError outside of one."""
    try:
        return (account / "namespace").read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"{account}/namespace: {error.strerror}: which namespace the Lease is in is not known",
            hint="set queues.lease.namespace, or run pinfold as a pod",
        ) from error


def probe_sources(
    config: Config, environment: Mapping[str, str] = os.environ
) -> Iterator[tuple[str, AgentError | None]]:
    """Ask every source beside the manifests once: its name, and why it cannot be read."""
    pods, kubelet, apiserver = config.sources.pods, config.sources.kubelet, config.sources.apiserver
    if pods is not None:
        from agent.kube.pods_socket import probe

        yield "pods", _fault(lambda: probe(Path(pods.socket), pods.timeoutSeconds))
    if kubelet is not None:
        from agent.kube.http_access import Server
        from agent.kube.kubelet_source import MAX_BYTES

        yield "kubelet", _fault(lambda: Server(access(kubelet)).get("/pods", limit=MAX_BYTES))
    if apiserver is not None:
        from agent.kube.apiserver_source import MAX_PAGE_BYTES, PATH
        from agent.kube.http_access import Server

        query = {"fieldSelector": f"spec.nodeName={node_name(config, environment)}", "limit": "1"}
        yield (
            "apiserver",
            _fault(lambda: Server(_apiserver_access(apiserver, environment)).get(PATH, query, limit=MAX_PAGE_BYTES)),
        )


def _fault(ask: Callable[[], object]) -> AgentError | None:
    try:
        ask()
    except AgentError as error:
        return error
    return None
