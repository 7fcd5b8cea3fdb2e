"""The socket of the kubelet's Pods service: whether it is one to believe, and what its errors mean.

Whoever serves it says which pods run here, so it must be root's, or the agent's own.
Source: KEP-4188; pkg/kubelet/apis/pods of 1.36.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from urllib.parse import quote

import grpc

from agent.kube.http_access import AccessError
from agent.proto import pods_v1alpha1_pb2 as v1alpha1
from agent.proto.pods_v1alpha1_pb2_grpc import PodsStub

MAX_POD_BYTES = 16 << 20  # an API server's own bound of an object is 3 MiB
MAX_LIST_BYTES = 64 << 20
# grpc-go takes a client that pings more often than every five minutes for an attacker (keepalive.EnforcementPolicy.MinTime)
KEEPALIVE_SECONDS = 330
PING_TIMEOUT_SECONDS = 20
_GATE = "kubelets serve it in 1.36 with featureGates: {PodsAPI: true}, from 1.37 on by default (KEP-4188)"
_HINTS = {
    grpc.StatusCode.UNIMPLEMENTED: f"this server has no v1alpha1.Pods: {_GATE}",
    grpc.StatusCode.FAILED_PRECONDITION: "the kubelet has just started and does not know its pods yet; it is asked again",
    grpc.StatusCode.UNAVAILABLE: "the kubelet is restarting or has ended; its pods are kept, and it is asked again",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "the kubelet's rate limit, 100 calls a second for all clients together, or its cut of a "
    "watcher that is 100 events behind; it is asked again",
}


class PodsError(AccessError):
    """The kubelet's Pods service cannot be asked, or its answer cannot be used."""


def check_socket(path: Path) -> None:
    """Raises PodsError where there is no socket, or one that is not to be believed."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        hint = f"{_GATE}; see that it runs, and that sources.pods.socket is its path"
        raise PodsError(f"{path}: no such socket", hint=hint) from error
    except OSError as error:
        raise PodsError(f"{path}: {error.strerror or error}", hint="the kubelet's directory is root's alone") from error
    if not stat.S_ISSOCK(found.st_mode):
        raise PodsError(f"{path}: is not a socket", hint="see that sources.pods.socket is the kubelet's path")
    if found.st_uid not in (0, os.geteuid()):
        hint = "who serves it says which pods run here: it must be root's, as the kubelet's own is"
        raise PodsError(f"{path}: is owned by user {found.st_uid}, not by root", hint=hint)
    if not os.access(path, os.W_OK, effective_ids=True):
        raise PodsError(f"{path}: not permitted, mode {stat.S_IMODE(found.st_mode):04o}", hint="run pinfold as root")


def channel_options(max_bytes: int = MAX_POD_BYTES) -> list[tuple[str, int]]:
    """A stub on a channel of its own to whoever listens on the socket now. max_bytes: of one message."""
    return [
        ("grpc.max_receive_message_length", max_bytes),
        ("grpc.keepalive_time_ms", KEEPALIVE_SECONDS * 1000),
        ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_SECONDS * 1000),  # else a minute, whatever the keepalive's time-out
        ("grpc.http2.max_pings_without_data", 0),  # no bound: a quiet stream is what they are for
        ("grpc.use_local_subchannel_pool", 1),  # else it shares the waits of an earlier one that failed
    ]


def call_error(path: Path, error: grpc.RpcError) -> PodsError:
    """What an error of a call means."""
    code = error.code()
    return PodsError(f"{path}: {code.name}: {(error.details() or '')[:300]}", hint=_HINTS.get(code))


def probe(path: Path, timeout_seconds: float) -> int:
    """Ask once, for `pinfold doctor`: how many pods there are. Raises PodsError."""
    check_socket(path)
    with grpc.insecure_channel(f"unix:{quote(str(path))}", options=channel_options(MAX_LIST_BYTES)) as channel:
        try:
            return len(PodsStub(channel).ListPods(v1alpha1.ListPodsRequest(), timeout=timeout_seconds).pods)
        except grpc.RpcError as error:
            raise call_error(path, error) from error
