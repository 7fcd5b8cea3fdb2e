"""The changes of the node as the watchers of the node service get them: made once each, kept for a while, read at any pace.

A watcher holds nothing but the number of the last change it was sent. Nobody queues for it, so it can hold up nobody: whoever
falls behind the changes that are kept gets the whole state anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from agent import __version__
from agent.formats.node_messages import node_message, pod_message, position_message
from agent.model.state import Grants, PodRecord
from agent.proto import node_v1_pb2 as v1
from agent.serve.board import NodeView

KEPT_CHANGES = 256
# of all kept ones: with many pods one has 10 KiB, and the whole state is not much more than a few
KEPT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class KeptChange:
    """One event for those who have seen the one before. number: counts from 1 in this process. event: serialised."""

    number: int
    position: tuple[str, int]
    event: bytes


@dataclass(frozen=True, slots=True)
class _Made:
    """A pod's message and what it was made from."""

    sources: tuple[object, ...]
    message: v1.Pod


class NodeFeed:
    """Lives on one event loop; `show` first, the rest after. name: of the node.

    A view is worked on when somebody reads: views that nobody has read are one change with the next.
    """

    def __init__(self, name: str, kept: int = KEPT_CHANGES) -> None:
        self._name = name
        self._changes: deque[KeptChange] = deque(maxlen=kept)
        self._bytes = 0  # of their events
        self._pods: dict[str, _Made] = {}
        self._node = v1.NodeState()
        self._position = v1.Position()
        self._whole: tuple[int, v1.State] | None = None
        self._news = asyncio.Event()
        self._unread: NodeView | None = None
        self._number = 0

    def show(self, view: NodeView) -> None:
        """There is a new view."""
        self._unread = view
        news, self._news = self._news, asyncio.Event()
        news.set()

    def _take_over(self) -> None:
        """Make the change that leads to the newest view."""
        view, self._unread = self._unread, None
        if view is None:
            return
        before = self._pods
        self._pods = _pods(view, before)
        status = view.status(pods=False)
        self._node = node_message(status, self._name, view.state.boot_id, __version__)
        self._position = position_message(view.state)
        changed = [made.message for uid, made in self._pods.items() if not _same(before.get(uid), made)]
        moved = list(before) != list(self._pods)
        event = v1.WatchEvent(
            kind=v1.WatchEvent.CHANGE,
            state=v1.State(position=self._position, node=self._node, pods=changed),
            removed_uids=before.keys() - self._pods.keys(),
            order=list(self._pods) if moved else (),
        )
        self._number += 1
        self._keep(KeptChange(self._number, self.position, event.SerializeToString()))

    def _keep(self, change: KeptChange) -> None:
        """As the newest; the oldest go where there are too many, or too large ones."""
        changes = self._changes
        self._bytes += len(change.event)
        while changes and (self._bytes > KEPT_BYTES or len(changes) == changes.maxlen):
            self._bytes -= len(changes.popleft().event)
        changes.append(change)

    @property
    def number(self) -> int:
        """The position of the newest change."""
        self._take_over()
        return self._number

    @property
    def position(self) -> tuple[str, int]:
        """Epoch and generation of the newest view."""
        self._take_over()
        return self._position.epoch, self._position.generation

    def whole(self) -> v1.State:
        """Everything that the newest view holds."""
        self._take_over()
        if self._whole is None or self._whole[0] != self.number:
            pods = [made.message for made in self._pods.values()]
            self._whole = (self.number, v1.State(position=self._position, node=self._node, pods=pods))
        return self._whole[1]

    def node_only(self) -> v1.State:
        """The newest view without pods."""
        self._take_over()
        return v1.State(position=self._position, node=self._node)

    def find(self, position: tuple[str, int]) -> int | None:
        """The number of the first kept change that led to this position; None where changes after it may be unknown."""
        self._take_over()
        return next((change.number for change in self._changes if change.position == position), None)

    def after(self, number: int) -> KeptChange | None:
        """The change that follows, None where it is not kept any more. There must be one."""
        self._take_over()
        first = self._changes[0].number
        return self._changes[number + 1 - first] if number + 1 >= first else None

    async def wait(self, number: int, seconds: float) -> bool:
        """Whether there are changes after this one, or come within so many seconds."""
        if self.number > number:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return False
        return True


def _same(before: _Made | None, now: _Made) -> bool:
    return before is not None and before.message is now.message


def _pods(view: NodeView, known: Mapping[str, _Made]) -> dict[str, _Made]:
    """Every pod's message, those of unchanged pods as they were."""
    pods: dict[str, _Made] = {}
    state, gates = view.state, view.managers.gates
    for uid, record in state.pods.items():
        far = view.misaligned.get(uid)
        sources = (*_sources(uid, record, state.grants), gates, far)
        made = known.get(uid)
        if made is None or made.sources != sources:
            message = pod_message(record, state.grants, gates, far)
            made = _Made(sources, message) if made is None or made.message != message else _Made(sources, made.message)
        pods[uid] = made
    return pods


def _sources(uid: str, record: PodRecord, grants: Grants) -> tuple[object, ...]:
    cpu, memory = grants.cpu, grants.memory
    entries = (cpu.entries.get(uid), cpu.pod_entries.get(uid), memory.entries.get(uid), memory.pod_entries.get(uid))
    return (record, *entries)
