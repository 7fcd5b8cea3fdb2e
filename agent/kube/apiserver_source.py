"""The `apiserver` source: this node's pods by list and watch."""

from __future__ import annotations

import random
import time
from functools import partial

from agent.kube.http_access import Access, Server
from agent.kube.json_objects import uid_of
from agent.kube.list_watch import BOOKMARK, Bounds, ListWatch, Pace
from agent.kube.listed_pods import ListedPods, items_of
from agent.kube.source import Feed

NAME = "apiserver"
PATH = "/api/v1/pods"
MAX_PAGE_BYTES = 64 << 20
_BOUNDS = Bounds(page=250, page_bytes=MAX_PAGE_BYTES, pages=20)  # a page is more than nearly every node has


class APIServerSource:
    """The pods that are bound to one node."""

    def __init__(self, access: Access, node_name: str, pace: Pace | None = None) -> None:
        server = Server(access)
        where = f"{access.url.rstrip('/')}{PATH}"
        selection = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._objects = ListWatch(server, where, PATH, partial(items_of, where=where), _BOUNDS, selection, pace)
        self._pods = ListedPods(NAME, node_name)
        self.feed = Feed(NAME, self._follow, server.abort)

    def _follow(self) -> float:
        """A list where one is needed, then one watch. A watch that brought nothing is not begun again at once."""
        if not self._objects.listed:
            self._objects.list(self._pods.replace)
            self._publish()
        started = time.monotonic()
        heard = self._watch()
        return 0.0 if heard or time.monotonic() - started >= 1.0 else random.uniform(0.5, 1.0)

    def _watch(self) -> bool:
        """Follow one watch to its end; whether anything came. Raises AccessError."""
        heard = False
        for kind, obj in self._objects.watch(self.feed.heard):
            heard = True
            if kind == BOOKMARK:
                self.feed.heard()
                continue
            if kind == "DELETED":
                self._pods.drop(uid_of(obj))
            else:
                self._pods.put(obj)
            self._publish()
        return heard

    def _publish(self) -> None:
        self.feed.publish(self._pods.view(time.monotonic()))
