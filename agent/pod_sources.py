"""All pod sources beside the manifests as one: what they want here, which of them are silent, and how they are, for people."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.kube.source import Feed, View
from agent.log import say
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.observation import Wanted
from agent.serve.health import Check, HealthBoard, SourceHealth

_log = logging.getLogger("pinfold")


@dataclass(frozen=True, slots=True)
class Listed:
    """What the sources say together. A pod that two of them list is one, as the first of them says.

    names: of all sources there are. silent: those that could not be read. running: pods of which a container runs by its status.
    """

    wanted: tuple[Wanted, ...] = ()
    names: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    instances: Mapping[str, ContainerCgroup] = field(default_factory=dict)
    running: frozenset[str] = frozenset()


class PodSources:
    """sources: the one that knows best first. board: where their health is shown."""

    def __init__(self, sources: Sequence[Feed], board: HealthBoard) -> None:
        self._sources = tuple(sources)
        self._board = board
        self._said: dict[str, str] = {}

    def start(self, changed: Callable[[], None]) -> None:
        """Begin to follow them; `changed` is called in any thread."""
        for source in self._sources:
            source.start(changed)

    def stop(self) -> None:
        """Follow them no longer."""
        for source in self._sources:
            source.stop()

    def look(self) -> Listed:
        """What they say now; a fault is logged once."""
        views = {source.name: source.view() for source in self._sources}
        wanted: dict[str, Wanted] = {}
        instances: dict[str, ContainerCgroup] = {}
        for name, view in views.items():
            self._tell(name, view)
            for each in view.wanted:
                wanted.setdefault(each.pod.uid, each)
            instances.update(view.instances)
        return Listed(
            tuple(wanted.values()),
            frozenset(views),
            frozenset(name for name, view in views.items() if view.silent),
            instances,
            frozenset().union(*(view.running for view in views.values())),
        )

    def problems(self) -> tuple[str, ...]:
        """Objects that cannot be used, one sentence each."""
        return tuple(problem for source in self._sources for problem in source.view().problems)

    def health(self) -> Mapping[str, SourceHealth]:
        """For the metrics: by source."""
        now = time.monotonic()
        views = {source.name: source.view() for source in self._sources}
        return {
            name: SourceHealth(not view.silent, now - view.heard if view.heard else None)
            for name, view in views.items()
        }

    def _tell(self, name: str, view: View) -> None:
        fault = view.fault or ("" if view.synced else "has not answered yet")
        self._board.set(f"source-{name}", Check(not fault, fault))
        text = "; ".join((view.fault, *view.problems)).strip("; ")
        if text == self._said.get(name, ""):
            return
        self._said[name] = text
        if text:
            say(_log, logging.ERROR if view.fault else logging.WARNING, "pod source", source=name, problem=text)
        else:
            say(_log, logging.INFO, "pod source is well again", source=name)
