"""The `kubelet` source: GET /pods of this node's kubelet, over https with a token or on its read-only port, every few seconds.

Source of the form: pkg/kubelet/server (getPods) of 1.36: a PodList of what the kubelet works on, static pods included.
"""

from __future__ import annotations

import hashlib
import time

from agent.kube.http_access import Access, Server
from agent.kube.json_objects import decode_json
from agent.kube.listed_pods import ListedPods, items_of
from agent.kube.source import Feed

NAME = "kubelet"
MAX_BYTES = 64 << 20  # 500 pods have about 5 MiB


class KubeletSource:
    """One kubelet. period_seconds: between the end of one request and the beginning of the next."""

    def __init__(self, access: Access, period_seconds: float = 5.0) -> None:
        self._server = Server(access)
        self._where = f"{access.url.rstrip('/')}/pods"
        self._period = period_seconds
        self._pods = ListedPods(NAME)
        self._seen = b""
        self.feed = Feed(NAME, self._poll, self._server.abort)

    def _poll(self) -> float:
        body = self._server.get("/pods", limit=MAX_BYTES)
        digest = hashlib.sha256(body).digest()
        if digest == self._seen:  # nothing has changed, as nearly always: not even parsed
            self.feed.heard()
            return self._period
        self._pods.replace(items_of(decode_json(body, self._where), self._where))
        self._seen = digest
        self.feed.publish(self._pods.view(time.monotonic()))
        return self._period
