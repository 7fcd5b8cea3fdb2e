"""The daemon: one loop that looks, decides, saves, enforces and tells. Wiring only; each step is somebody else's.

Everything that changes something happens in the loop's own thread. Servers answer in theirs, from values that the loop
publishes whole. Order of one turn: look at the sources, decide, save (durable or nothing happened), write cgroups, publish.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agent.control_methods import ControlMethods, everything
from agent.device_watch import DeviceWatch
from agent.enforcement import Enforcement
from agent.errors import AgentError
from agent.faults import Faults
from agent.formats.podresources import Answers
from agent.inbox import Inbox, Message, Request
from agent.keeper import Keeper
from agent.kube.manifest_directory import Listing, ManifestDirectory
from agent.kubelet_mirror import KubeletMirror
from agent.log import say
from agent.node.cgroup_errors import CgroupError
from agent.node.decision_log import DecisionLog
from agent.node.kubelet_files import KubeletFiles
from agent.node.mode_file import Mode, ModeFile
from agent.node.service_manager import ServiceManager
from agent.node.state_errors import NewerStateFileError, StateWriteError
from agent.observing import Observing
from agent.pod_sources import PodSources
from agent.policy.free_hugepages import FreeHugepages
from agent.policy.observation import Decision
from agent.policy.pod_events import PodEvent
from agent.publisher import Publisher
from agent.serve.health import HealthBoard
from agent.serve.series import Tally
from agent.startup import running_containers
from agent.telling import Telling

if TYPE_CHECKING:
    from agent.evictions import Evictions

_log = logging.getLogger("pinfold")


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds between two looks of their kind."""

    source: float = 1.0
    enforcement: float = 10.0


class Daemon:
    """One agent. publisher: tells the servers what the node holds. reconfigure: what a reload does.

    hugepages: how many are really free at this moment; asked only while a pod that wants some waits for admission.
    rediscover: reads the machine again and has the keeper go on under it.
    """

    def __init__(
        self,
        keeper: Keeper,
        manifests: ManifestDirectory | None,
        enforcement: Enforcement,
        publisher: Publisher,
        board: HealthBoard,
        tally: Tally,
        service: ServiceManager,
        *,
        periods: Periods | None = None,
        reconfigure: Callable[[Daemon], None] | None = None,
        hugepages: Callable[[], FreeHugepages | None] = lambda: None,
        rediscover: Callable[[Daemon], None] = lambda daemon: None,
        kubelet_files: KubeletFiles | None = None,
        decision_log: DecisionLog | None = None,
        sources: PodSources | None = None,
        announce: Callable[[PodEvent], None] = lambda event: None,
        devices: DeviceWatch | None = None,
        evictions: Evictions | None = None,
        unix_clock: Callable[[], float] = time.time,
    ) -> None:
        self.keeper = keeper
        self.enforcement = enforcement
        self.periods = periods or Periods()
        self.rediscover = rediscover
        self.mispinned = 0  # cgroups that are not as they should be after the last look
        self._publisher = publisher
        self._board = board
        self._service = service
        self._reconfigure = reconfigure
        self._announce = announce
        self._devices = devices or DeviceWatch(keeper)
        self._evictions = evictions
        self._inbox = Inbox()
        self._recovered = False  # whether what ran before the first look has been taken over
        self._mode = ModeFile(keeper.directory / "mode")
        if self._mode.mode is Mode.RELEASED:
            enforcement.widened = everything(keeper)
        self._faults = Faults(keeper, board, tally, service)
        self._telling = Telling(keeper, tally, self._faults, decision_log, announce)
        self._mirror = KubeletMirror(keeper, kubelet_files, board, self._faults)
        self.observing = Observing(
            keeper,
            enforcement,
            manifests,
            sources or PodSources((), board),
            self._devices,
            self._mode,
            board,
            hugepages,
            unix_clock,
        )
        self._methods = ControlMethods(
            keeper,
            enforcement,
            board,
            self._problems,
            lambda: self._turn(enforce=True),
            self._do_reload,
            self._mode,
            lambda: self.observing.hugepages(),  # noqa: PLW0108 - a reload puts another one there
        )

    # --- called from other threads and from signal handlers ---

    def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the loop answer a control request, and wait for it. Raises what the loop raised."""
        return self._inbox.call(method, params)

    def stop(self) -> None:
        """End the loop after the turn it is in."""
        self._inbox.put(Message.STOP)

    def reload(self) -> None:
        """Read the configuration again."""
        self._inbox.put(Message.RELOAD)

    def look(self) -> None:
        """A source, or whoever tells the devices, has news."""
        if not self.observing.awaited:
            self.observing.awaited = True
            self._inbox.put(Message.LOOK)

    def machine_changed(self, what: str) -> None:
        """CPUs, memory or NUMA nodes have come or gone: `what` in words."""
        say(_log, logging.INFO, "hotplug", events=what)
        self._inbox.put(Message.MACHINE)

    # --- the loop ---

    def prepare(self) -> Answers:
        """The first turn, before anybody is served; what PodResources answers after it."""
        self._turn(enforce=True)
        return self._publisher.answers

    def run(self) -> None:
        """Serve until `stop`. All pins stay when it ends."""
        self._service.ready(self._faults.summary())
        source_due = time.monotonic() + self.periods.source
        enforcement_due = time.monotonic() + self.periods.enforcement
        while True:
            message = self._next(min(source_due, enforcement_due))
            if message is Message.STOP:
                self._service.stopping()
                self._inbox.refuse_waiting(AgentError("the agent is stopping", hint="try again when it runs"))
                return
            if message is Message.RELOAD:
                with contextlib.suppress(AgentError):  # it is logged, and nobody waits for an answer to a signal
                    self._do_reload()
            elif isinstance(message, Request):
                self._serve(message)
            elif message is Message.MACHINE:
                self._see_machine()
            now = time.monotonic()
            source_due = min(source_due, now + self.periods.source)  # a reload may have made them shorter
            enforcement_due = min(enforcement_due, now + self.periods.enforcement)
            if now >= min(source_due, enforcement_due) or isinstance(message, Message):
                self._turn(enforce=now >= enforcement_due)
                if now >= enforcement_due:
                    enforcement_due = time.monotonic() + self.periods.enforcement
                source_due = time.monotonic() + self.periods.source
            self._service.alive()

    def _next(self, due: float) -> Request | Message | None:
        wait = max(due - time.monotonic(), 0.0)
        if self._service.watchdog_seconds is not None:
            wait = min(wait, self._service.watchdog_seconds / 3)
        return self._inbox.next(wait)

    def _serve(self, request: Request) -> None:
        try:
            answer = self._methods.call(request.method, request.params)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it, the loop goes on
            if isinstance(error, StateWriteError):
                self._faults.unsaved(error)
            request.answer.set_exception(error)
        else:
            self._mirror.write()
            request.answer.set_result(answer)
            self._publisher.publish(self._problems())

    def _turn(self, *, enforce: bool = False) -> None:
        """Look at the sources, decide, and make it so."""
        before = self.keeper.state
        listing = self.observing.listing()
        if not enforce and self._recovered and self.observing.nothing_new(listing):
            return
        started = time.perf_counter()
        self._publisher.began(time.monotonic())
        decisions = self._look(listing)
        self._mirror.write()
        if decisions is None:
            self._publisher.publish(self._problems())
            return
        self._faults.well("state")
        self._telling.repair()
        changed = self.keeper.state is not before
        self._telling.looked(before, decisions, time.perf_counter() - started)
        self._devices.tell(self._announce)
        if enforce or changed:
            self._enforce()
        if changed:
            self._service.status(self._faults.summary())
        self._publisher.publish(self._problems())
        self.observing.settle(decided=bool(decisions))

    def _look(self, listing: Listing) -> tuple[Decision, ...] | None:
        """One decision; None where there could be none, which is told."""
        try:
            self._publisher.paused = self._mode.mode is not Mode.RUNNING
            seen = self.observing.look(listing)
            running = None if self._recovered else running_containers(self.enforcement)
            decisions = self.keeper.look(seen, running)
        except StateWriteError as error:
            self._faults.unsaved(error)
        except NewerStateFileError as error:
            self._faults.fault("state", error)
        except CgroupError as error:  # without a look at what runs nothing may be given or taken
            self._faults.fault("enforcement", error)
        except Exception as error:  # noqa: BLE001 - a defect must not become a crash loop: what is held stays held and served
            self._faults.defect(error)
        else:
            self._recovered = self._recovered or not seen.silent_sources
            self._faults.well("decision")
            if self._evictions is not None:
                self._evictions.look(self.keeper.state, seen, ready=self._board.is_ready())
            return decisions
        return None

    def _enforce(self) -> None:
        try:
            done = self.enforcement.apply(self.keeper.state)
            narrow = self.enforcement.too_narrow(self.keeper.managers.machine.topology.all)
        except CgroupError as error:
            self._faults.fault("enforcement", error)
            return
        for line in self._telling.drifted(done):
            self._publisher.drifted(line)
        self.mispinned = len(done.faults) + len(done.starved)
        self._telling.enforced(done, narrow, self.enforcement.problems())
        try:
            self._telling.decided(self.keeper.settle(done.actuation))
        except StateWriteError as error:
            self._faults.unsaved(error)

    def _do_reload(self) -> None:
        """Apply the configuration as it is now. Raises AgentError, told already; the one before then stays in force."""
        self._service.reloading()
        try:
            if self._reconfigure is not None:
                self._reconfigure(self)
            self._faults.well("configuration")
        except StateWriteError as error:
            self._faults.unsaved(error)
            raise
        except AgentError as error:
            self._faults.fault("configuration", error)
            raise
        finally:
            self._service.ready(self._faults.summary())

    def _see_machine(self) -> None:
        """Go on with the machine as it is now; grants that lost something are marked, new CPUs are shared."""
        try:
            self.rediscover(self)
            self.enforcement.open()
            self._faults.well("machine")
        except StateWriteError as error:
            self._faults.unsaved(error)
        except AgentError as error:
            self._faults.fault("machine", error)

    def _problems(self) -> tuple[str, ...]:
        """What is wrong with the sources' objects and with what is in force, one sentence each."""
        return (*self.observing.problems(), *self.enforcement.problems())
