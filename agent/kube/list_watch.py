"""One list of an API server's objects, then watches that go on from where they were; no other reads.

The rules are the reflector's (client-go tools/cache/reflector.go): a watch that ends is resumed at the last resourceVersion,
which bookmarks keep fresh; 410 Gone and errors inside the stream mean a new list. Events come in the order of their
resourceVersion, so one that is not newer than what is known is a repetition.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from agent.kube.http_access import AccessError, Server, StatusError
from agent.kube.json_objects import decode_json, metadata_text

MAX_EVENT_BYTES = 8 << 20  # the API server's own bound of an object is 3 MiB
WATCH_SECONDS = 300  # asked of the server, and as much again at random
LATE_SECONDS = 30  # by how much a server may end a watch late before it counts as dead
BOOKMARK = "BOOKMARK"
_KINDS = ("ADDED", "MODIFIED", "DELETED", BOOKMARK)

Object = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Pace:
    """watch_seconds: how long one watch lasts at least. late_seconds: silence beyond its end that means a dead server."""

    watch_seconds: float = WATCH_SECONDS
    late_seconds: float = LATE_SECONDS


@dataclass(frozen=True, slots=True)
class Bounds:
    """page: objects that are asked for at a time. page_bytes, pages: more than that is refused."""

    page: int
    page_bytes: int
    pages: int


class ListWatch:
    """The objects at one path. items: those of a page of its list. selection: of the query, such as a field selector.

    listed: whether a watch can go on; else a list is needed.
    """

    def __init__(
        self,
        server: Server,
        where: str,
        path: str,
        items: Callable[[Object], list[object]],
        bounds: Bounds,
        selection: Mapping[str, str] | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._server = server
        self._where = where
        self._path = path
        self._items = items
        self._bounds = bounds
        self._selection = selection or {}
        self._pace = pace or Pace()
        self._version = ""  # of the last thing heard

    @property
    def listed(self) -> bool:
        return bool(self._version)

    def list(self, take: Callable[[list[object]], None]) -> None:
        """All pages, of one moment: the newest state, not what a cache may be behind with. Raises AccessError.

        take: is given the objects. Where it raises, a list is still needed.
        """
        items: list[object] = []
        more = version = ""
        for _ in range(self._bounds.pages):
            query = {
                **self._selection,
                "limit": str(self._bounds.page),
                **({"continue": more} if more else {}),
            }
            page = decode_json(self._server.get(self._path, query, limit=self._bounds.page_bytes), self._where)
            items += self._items(page)
            more, version = metadata_text(page, "continue"), metadata_text(page, "resourceVersion")
            if not more:
                break
        else:
            raise AccessError(f"{self._where}: a list of more than {self._bounds.pages} pages")
        if not version:
            raise AccessError(f"{self._where}: a list without resourceVersion")
        take(items)
        self._version = version

    def watch(self, agreed: Callable[[], None]) -> Iterator[tuple[str, Object]]:
        """Events of one watch to its end: ADDED, MODIFIED, DELETED or BOOKMARK, and the object. Raises AccessError.

        An event counts as heard once the next one is asked for. agreed: called when the server has begun to answer.
        """
        seconds = self._pace.watch_seconds * random.uniform(1.0, 2.0)
        query = {
            **self._selection,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(round(seconds), 1)),
        }
        quiet = seconds + self._pace.late_seconds
        try:
            for line in self._server.lines(
                self._path, query, limit=MAX_EVENT_BYTES, quiet_seconds=quiet, agreed=agreed
            ):
                kind, obj, version = self._event(decode_json(line, self._where))
                if _newer(version, self._version):
                    yield kind, obj
                    self._version = version
        except StatusError as error:
            if error.status in (410, 504):  # gone, or a version that this server does not know (yet)
                self._version = ""
            raise

    def _event(self, event: Object) -> tuple[str, Object, str]:
        """Kind, object and version. Raises AccessError, and then a list is needed."""
        kind, obj = event.get("type"), event.get("object")
        if not isinstance(obj, dict):
            raise self._broken("an event without object")
        if kind == "ERROR":
            raise self._broken(f"the watch ended: {obj.get('code')}: {str(obj.get('message', ''))[:300]}")
        version = metadata_text(obj, "resourceVersion")
        if not version:
            raise self._broken("an event without resourceVersion")
        if kind not in _KINDS:
            raise self._broken(f"an event of type {str(kind)[:40]!r}")
        return str(kind), obj, version

    def _broken(self, what: str) -> AccessError:
        self._version = ""
        return AccessError(f"{self._where}: {what}", hint="it is listed again")


def _newer(version: str, than: str) -> bool:
    """Versions are numbers of one ascending count (KEP-5504); others are taken as they come."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
