"""The `apiserver` source: one list, then a watch of this node's pods that goes on from where it was; no other reads.

The rules are the reflector's (client-go tools/cache/reflector.go): a watch that ends is resumed at the last resourceVersion,
which bookmarks keep fresh; 410 Gone and errors inside the stream mean a new list. Events come in the order of their
resourceVersion, so one that is not newer than what is known is a repetition.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass

from agent.kube.http_access import Access, AccessError, Server, StatusError
from agent.kube.node_pods import NodePods, decode_json, items_of, uid_of
from agent.kube.source import Feed

NAME = "apiserver"
PATH = "/api/v1/pods"
PAGE = 250  # pods; more than nearly every node has
MAX_PAGE_BYTES = 64 << 20
MAX_PAGES = 20
MAX_EVENT_BYTES = 8 << 20  # the API server's own bound of an object is 3 MiB
WATCH_SECONDS = 300  # asked of the server, and as much again at random
LATE_SECONDS = 30  # by how much a server may end a watch late before it counts as dead


class _RelistError(AccessError):
    """The watch cannot go on from where it was."""


@dataclass(frozen=True, slots=True)
class Pace:
    """watch_seconds: how long one watch lasts at least. late_seconds: silence beyond its end that means a dead server."""

    watch_seconds: float = WATCH_SECONDS
    late_seconds: float = LATE_SECONDS


class APIServerSource:
    """The pods that are bound to one node."""

    def __init__(self, access: Access, node_name: str, pace: Pace | None = None) -> None:
        self._server = Server(access)
        self._where = f"{access.url.rstrip('/')}{PATH}"
        self._select = {"fieldSelector": f"spec.nodeName={node_name}"}
        self._pace = pace or Pace()
        self._rng = random.Random()
        self._pods = NodePods(NAME, node_name)
        self._version = ""  # of the last thing heard; "" = a list is needed
        self.feed = Feed(NAME, self._follow, self._server.abort)

    def _follow(self) -> float:
        """A list where one is needed, then one watch. A watch that brought nothing is not begun again at once."""
        if not self._version:
            self._list()
        started = time.monotonic()
        try:
            heard = self._watch()
        except _RelistError:
            self._version = ""
            raise
        except StatusError as error:
            if error.status in (410, 504):  # gone, or a version that this server does not know (yet)
                self._version = ""
            raise
        return 0.0 if heard or time.monotonic() - started >= 1.0 else self._rng.uniform(0.5, 1.0)

    # --- list ---

    def _list(self) -> None:
        """All pages, of one moment. Without resourceVersion: the newest state, not what a cache may be behind with."""
        items: list[object] = []
        more = ""
        for _ in range(MAX_PAGES):
            query = {**self._select, "limit": str(PAGE), **({"continue": more} if more else {})}
            page = decode_json(self._server.get(PATH, query, limit=MAX_PAGE_BYTES), self._where)
            items += items_of(page, self._where)
            more, version = _text(page, "metadata", "continue"), _text(page, "metadata", "resourceVersion")
            if not more:
                break
        else:
            raise AccessError(f"{self._where}: a list of more than {MAX_PAGES} pages")
        if not version:
            raise AccessError(f"{self._where}: a list without resourceVersion")
        self._pods.replace(items)
        self._version = version
        self._publish()

    # --- watch ---

    def _watch(self) -> bool:
        """Follow one watch to its end; whether anything came. Raises AccessError."""
        seconds = self._pace.watch_seconds * self._rng.uniform(1.0, 2.0)
        query = {
            **self._select,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(round(seconds), 1)),
        }
        heard = False
        for line in self._server.lines(
            PATH,
            query,
            limit=MAX_EVENT_BYTES,
            quiet_seconds=seconds + self._pace.late_seconds,
            agreed=self.feed.heard,
        ):
            self._take(decode_json(line, self._where))
            heard = True
        return heard

    def _take(self, event: Mapping[str, object]) -> None:
        kind, obj = event.get("type"), event.get("object")
        if not isinstance(obj, dict):
            raise _RelistError(f"{self._where}: an event without object")
        if kind == "ERROR":
            message = str(obj.get("message", ""))[:300]
            raise _RelistError(
                f"{self._where}: the watch ended: {obj.get('code')}: {message}", hint="it is listed again"
            )
        version = _text(obj, "metadata", "resourceVersion")
        if not version:
            raise _RelistError(f"{self._where}: an event without resourceVersion")
        if not _newer(version, self._version):
            return
        match kind:
            case "BOOKMARK":
                self._version = version
                self.feed.heard()
                return
            case "ADDED" | "MODIFIED":
                self._pods.put(obj)
            case "DELETED":
                self._pods.drop(uid_of(obj))
            case _:
                raise _RelistError(f"{self._where}: an event of type {str(kind)[:40]!r}")
        self._version = version
        self._publish()

    def _publish(self) -> None:
        self.feed.publish(self._pods.view(time.monotonic()))


def _newer(version: str, than: str) -> bool:
    """Versions are numbers of one ascending count (KEP-5504); others are taken as they come."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than


def _text(value: Mapping[str, object], *path: str) -> str:
    found: object = value
    for key in path:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) and len(found) <= 8192 else ""
