"""One look at everything that a decision rests on: manifests, the sources beside a kubelet, what runs, devices, hugepages."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence

from agent.device_watch import DeviceWatch
from agent.enforcement import Enforcement
from agent.keeper import Keeper
from agent.kube.manifest_directory import Listing, ManifestDirectory
from agent.log import say
from agent.model.state import State
from agent.node.mode_file import Mode, ModeFile
from agent.pod_sources import Listed, PodSources
from agent.policy.free_hugepages import FreeHugepages, asks_for_hugepages
from agent.policy.observation import Observation, Wanted
from agent.policy.wanted_pods import ending
from agent.serve.health import Check, HealthBoard, SourceHealth

_log = logging.getLogger("pinfold")
_NO_MANIFESTS = Listing()  # where that source is not configured


class Observing:
    """Called by the daemon's loop; `health` by any thread, and `awaited` is set by any.

    manifests: None where that source is not configured. hugepages: how many are really free at this moment; asked only while a
    pod that wants some waits for admission. unix_clock: seconds since 1970.
    """

    def __init__(
        self,
        keeper: Keeper,
        enforcement: Enforcement,
        manifests: ManifestDirectory | None,
        sources: PodSources,
        devices: DeviceWatch,
        mode: ModeFile,
        board: HealthBoard,
        hugepages: Callable[[], FreeHugepages | None],
        unix_clock: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._enforcement = enforcement
        self.manifests = manifests
        self._sources = sources
        self._devices = devices
        self._mode = mode
        self._board = board
        self.hugepages = hugepages
        self._unix_clock = unix_clock
        self.awaited = False  # whether a source has news that no look has seen
        self._listing = Listing()
        self._manifests_read: float | None = None
        self._said = ""  # the problems of manifests that were last logged
        self._listed: set[str] = set()  # names of pods, here or wanted, that a source has listed since the start
        self._ending: frozenset[str] = frozenset()  # pods that wait for their containers to stop
        self._quiet: tuple[Listing, State] | None = None  # what the last look saw and left, where it had nothing to do

    def listing(self) -> Listing:
        """The manifests as they are now; the same listing where nothing has changed."""
        return self.manifests.list() if self.manifests is not None else _NO_MANIFESTS

    def nothing_new(self, listing: Listing) -> bool:
        """Whether a look would find what the last one found: the idle agent stops here, whatever it holds."""
        if self._quiet is None or self.awaited or self._keeper.restless:
            return False
        if self._quiet[0] is not listing or self._quiet[1] is not self._keeper.state:
            return False
        self._manifests_read = time.monotonic()
        return True

    def settle(self, *, decided: bool) -> None:
        """A turn is over. decided: whether it had anything to do."""
        self._quiet = None if decided or self._ending else (self._listing, self._keeper.state)

    def look(self, listing: Listing) -> Observation:
        """Everything as it is now. Raises CgroupError."""
        self._quiet = None  # until this look has come to its end
        self._tell_problems(listing)
        self._listing = listing
        if listing.readable:
            self._manifests_read = time.monotonic()
        self.awaited = False
        beside = self._sources.look()
        self._enforcement.tell_instances(beside.instances)
        wanted = [*beside.wanted, *(Wanted(each.pod, "manifests", each.fingerprint) for each in listing.pods)]
        wanted += self._unread(listing, wanted)
        silent = beside.silent if listing.readable else beside.silent | {"manifests"}
        self._ending = ending(self._keeper.state, wanted, silent)
        fresh = [str(uuid.uuid4()) for each in listing.pods if not each.pod.uid]
        here = {record.pod.namespaced_name for record in self._keeper.state.pods.values()}
        new = [each.pod for each in listing.pods if each.pod.namespaced_name not in here]
        return Observation(
            wanted,
            silent,
            self._alive(beside),
            fresh,
            self._unix_clock(),
            self.hugepages() if any(map(asks_for_hugepages, new)) else None,
            sources=beside.names if self.manifests is None else beside.names | {"manifests"},
            cgroups_seen=self._enforcement.hierarchy is not None,
            paused=self._mode.mode is not Mode.RUNNING,
            devices=self._devices.seen(),
        )

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the sources' objects, one sentence each."""
        return (*self._listing.problems, *self._sources.problems())

    def health(self) -> Mapping[str, SourceHealth]:
        """Every pod source by name, for the metrics."""
        health = dict(self._sources.health())
        if self.manifests is not None and self._manifests_read is not None:
            health["manifests"] = SourceHealth(self._listing.readable, time.monotonic() - self._manifests_read)
        return health

    def _alive(self, beside: Listed) -> frozenset[tuple[str, str]]:
        """What still runs of the pods that are to end: (uid, container), with "" for the pod as such."""
        alive: set[tuple[str, str]] = set()
        for uid in self._ending:
            alive.update((uid, name) for name in self._enforcement.alive(uid))
            if uid in beside.running:
                alive.add((uid, ""))
        return frozenset(alive)

    def _unread(self, listing: Listing, wanted: Sequence[Wanted]) -> Sequence[Wanted]:
        """Pods that hold a place here and whose file this process has never been able to read: a file that was broken while
        the agent was down must not end them."""
        records = self._keeper.state.pods.values()
        held = {record.pod.namespaced_name for record in records}
        self._listed = {each.pod.namespaced_name for each in wanted} | (self._listed & held)
        if not listing.problems:
            return ()
        return [
            Wanted(record.resize.desired or record.pod, record.source, record.fingerprint)
            for record in records
            if record.source == "manifests" and record.pod.namespaced_name not in self._listed
        ]

    def _tell_problems(self, listing: Listing) -> None:
        text = "; ".join(listing.problems)
        if text != self._said:
            for problem in listing.problems:
                say(_log, logging.ERROR, "manifest", problem=problem)
            self._said = text
        # a broken file is somebody's mistake, not the agent's: it is named, and the agent stays ready
        self._board.set("manifests", Check(listing.readable, text))
