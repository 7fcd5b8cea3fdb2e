"""The daemon: one loop that looks, decides, saves, enforces and tells. Wiring only; each step is somebody else's.

Everything that changes something happens in the loop's own thread. Servers answer in theirs, from values that the loop
publishes whole. Order of one turn: look at the sources, decide, save (durable or nothing happened), write cgroups, publish.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from agent.control_methods import ControlMethods, everything
from agent.device_watch import DeviceWatch
from agent.enforcement import Enforcement
from agent.errors import AgentError
from agent.evictions import Evictions
from agent.formats.kubelet_export import export
from agent.formats.kubelet_forms import NEWEST
from agent.formats.podresources import Answers
from agent.keeper import Keeper
from agent.kube.manifest_directory import Listing, ManifestDirectory
from agent.log import printable, say
from agent.model.state import State
from agent.node.cgroup_errors import CgroupError
from agent.node.decision_log import DecisionLog
from agent.node.kubelet_files import KubeletFiles
from agent.node.mode_file import Mode, ModeFile
from agent.node.service_manager import ServiceManager
from agent.node.state_store import NewerStateFileError, StateWriteError
from agent.pod_sources import PodSources
from agent.policy.free_hugepages import FreeHugepages, asks_for_hugepages
from agent.policy.observation import Decision, Event, Observation, Wanted
from agent.policy.plan import HUGEPAGES_IN_USE, ending
from agent.policy.pod_events import PodEvent, pod_events
from agent.publisher import Publisher
from agent.serve.decision_counts import count_decision
from agent.serve.gauges import SourceHealth
from agent.serve.health import Check, HealthBoard
from agent.serve.resize_counts import ResizeCounts
from agent.serve.series import Tally
from agent.startup import APPLY, running_containers, tell_steps, waiting_text

_log = logging.getLogger("pinfold")
NO_MANIFESTS = Listing()  # where that source is not configured
WARNINGS = (Event.REFUSED, Event.UNPLACED, Event.RESIZE_DEFERRED, Event.RESIZE_INFEASIBLE, Event.RESIZE_ERROR)


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds between two looks of their kind."""

    source: float = 1.0
    enforcement: float = 10.0


@dataclass(frozen=True, slots=True)
class _Request:
    """A call from the control socket, to be answered by the loop."""

    method: str
    params: Mapping[str, Any]
    answer: Future[Mapping[str, Any]]


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
        self.manifests = manifests
        self.enforcement = enforcement
        self.periods = periods or Periods()
        self._publisher = publisher
        self._board = board
        self._tally = tally
        self._resizes = ResizeCounts(tally)
        self._service = service
        self._reconfigure = reconfigure
        self.hugepages = hugepages
        self.rediscover = rediscover
        self._kubelet_files = kubelet_files
        self._decision_log = decision_log
        self.mispinned = 0  # cgroups that are not as they should be after the last look
        self._mirrored: State | None = None
        self.sources = sources or PodSources((), board)
        self._announce = announce
        self._devices = devices or DeviceWatch(keeper)
        self._evictions = evictions
        self._unix_clock = unix_clock
        self._awaited = False  # whether the loop has been told that a source has news
        self._listed: set[str] = set()  # names of pods, here or wanted, that a source has listed since the start
        self._ending: frozenset[str] = frozenset()  # pods that wait for their containers to stop
        self._settled: tuple[Listing, State] | None = (
            None  # what the last look saw and left, where it had nothing to do
        )
        self._inbox: queue.SimpleQueue[_Request | str] = queue.SimpleQueue()
        self._listing = Listing()
        self._manifests_read: float | None = None
        self._announced = keeper.state
        self._recovered = False  # whether what ran before the first look has been taken over
        self._said: dict[str, str] = {}  # what was last logged about each subject, so that a lasting fault is said once
        self._mode = ModeFile(keeper.directory / "mode")
        if self._mode.mode is Mode.RELEASED:
            enforcement.widened = everything(keeper)
        self._methods = ControlMethods(
            keeper,
            enforcement,
            board,
            self._problems,
            lambda: self._turn(enforce=True),
            self._do_reload,
            self._mode,
            lambda: self.hugepages(),  # noqa: PLW0108 - a reload puts another one there
        )

    # --- called from other threads and from signal handlers ---

    def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Have the loop answer a control request, and wait for it. Raises what the loop raised."""
        request = _Request(method, params, Future())
        self._inbox.put(request)
        return request.answer.result()

    def stop(self) -> None:
        """End the loop after the turn it is in."""
        self._inbox.put("stop")

    def reload(self) -> None:
        """Read the configuration again."""
        self._inbox.put("reload")

    def look(self) -> None:
        """A source, or whoever tells the devices, has news."""
        if not self._awaited:
            self._awaited = True
            self._inbox.put("look")

    def source_health(self) -> Mapping[str, SourceHealth]:
        """Every pod source by name, for the metrics."""
        health = dict(self.sources.health())
        if self.manifests is not None and self._manifests_read is not None:
            health["manifests"] = SourceHealth(self._listing.readable, time.monotonic() - self._manifests_read)
        return health

    def machine_changed(self, what: str) -> None:
        """CPUs, memory or NUMA nodes have come or gone: `what` in words."""
        say(_log, logging.INFO, "hotplug", events=what)
        self._inbox.put("machine")

    # --- the loop ---

    def prepare(self) -> Answers:
        """The first turn, before anybody is served; what PodResources answers after it."""
        self._turn(enforce=True)
        return self._publisher.answers

    def run(self) -> None:
        """Serve until `stop`. All pins stay when it ends."""
        self._service.ready(self._summary())
        source_due = time.monotonic() + self.periods.source
        enforcement_due = time.monotonic() + self.periods.enforcement
        while True:
            message = self._next(min(source_due, enforcement_due))
            if message == "stop":
                self._service.stopping()
                self._refuse_waiting()
                return
            if message == "reload":
                with contextlib.suppress(AgentError):  # it is logged, and nobody waits for an answer to a signal
                    self._do_reload()
            elif isinstance(message, _Request):
                self._serve(message)
            elif message == "machine":
                self._see_machine()
            now = time.monotonic()
            if now >= min(source_due, enforcement_due) or message in ("reload", "look", "machine"):
                self._turn(enforce=now >= enforcement_due)
                if now >= enforcement_due:
                    enforcement_due = time.monotonic() + self.periods.enforcement
                source_due = time.monotonic() + self.periods.source
            self._service.alive()

    def _next(self, due: float) -> _Request | str | None:
        wait = max(due - time.monotonic(), 0.0)
        if self._service.watchdog_seconds is not None:
            wait = min(wait, self._service.watchdog_seconds / 3)
        try:
            return self._inbox.get(timeout=wait)
        except queue.Empty:
            return None

    def _serve(self, request: _Request) -> None:
        try:
            answer = self._methods.call(request.method, request.params)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it, the loop goes on
            if isinstance(error, StateWriteError):
                self._unsaved(error)
            request.answer.set_exception(error)
        else:
            self._mirror()
            request.answer.set_result(answer)
            self._publisher.publish(self._problems())

    def _refuse_waiting(self) -> None:
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, _Request):
                message.answer.set_exception(AgentError("the agent is stopping", hint="try again when it runs"))

    def _turn(self, *, enforce: bool = False) -> None:
        """Look at the sources, decide, and make it so."""
        before = self.keeper.state
        listing = self.manifests.list() if self.manifests is not None else NO_MANIFESTS
        if not enforce and self._nothing_new(listing):
            return
        started = time.perf_counter()
        self._publisher.began(time.monotonic())
        decisions = self._look(listing)
        self._mirror()
        if decisions is None:
            self._publisher.publish(self._problems())
            return
        self._well("state")
        self._tell_repair()
        changed = self.keeper.state is not before
        if changed:
            self._tally.observe("pinfold_decision_duration_seconds", time.perf_counter() - started)
        self._time_admissions(decisions, time.perf_counter() - started)
        self._tell_all(decisions)
        self._record(before, decisions)
        self._announce_marks()
        self._devices.tell(self._announce)
        if enforce or changed:
            self._enforce()
        if changed:
            self._service.status(self._summary())
        self._publisher.publish(self._problems())
        self._settled = None if decisions or self._ending else (self._listing, self.keeper.state)

    def _nothing_new(self, listing: Listing) -> bool:
        """Whether a look would find what the last one found: the idle agent stops here, whatever it holds."""
        if self._settled is None or self._awaited or not self._recovered or self.keeper.restless:
            return False
        if self._settled[0] is not listing or self._settled[1] is not self.keeper.state:
            return False
        self._manifests_read = time.monotonic()
        return True

    def _look(self, listing: Listing) -> tuple[Decision, ...] | None:
        """One decision; None where there could be none, which is told."""
        try:
            seen = self._observe(listing)
            running = None if self._recovered else running_containers(self.enforcement)
            decisions = self.keeper.look(seen, running)
        except StateWriteError as error:
            self._unsaved(error)
        except NewerStateFileError as error:
            self._fault("state", error)
        except CgroupError as error:  # without a look at what runs nothing may be given or taken
            self._fault("enforcement", error)
        except Exception as error:  # noqa: BLE001 - a defect must not become a crash loop: what is held stays held and served
            self._defect(error)
        else:
            self._recovered = self._recovered or not seen.silent_sources
            self._well("decision")
            if self._evictions is not None:
                self._evictions.look(self.keeper.state, seen, ready=self._board.is_ready())
            return decisions
        return None

    def _defect(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        if text not in self._said.get("decision", ""):
            _log.exception("a decision failed")
        hint = "what is held stays held; please report this with the output of `pinfold gather`"
        self._fault("decision", AgentError(f"internal error: {text}", hint=hint))

    def _mirror(self) -> None:
        """The kubelet's files after a change. They are for others: where they cannot be written, nothing is refused."""
        if self._kubelet_files is None or self._mirrored is self.keeper.state:
            return
        problem = self._kubelet_files.write(export(self.keeper.state, NEWEST).files)
        self._board.set("kubeletFiles", Check(True, problem))
        if problem and self._said.get("kubeletFiles") != problem:
            say(_log, logging.WARNING, "the kubelet's files are not up to date", problem=problem)
        self._said["kubeletFiles"] = problem
        self._mirrored = None if problem else self.keeper.state

    def _announce_marks(self) -> None:
        """Pods that run with less than before, or with all again, since the last time."""
        before, self._announced = self._announced, self.keeper.state
        if before is not self.keeper.state:
            for event in pod_events(before, self.keeper.state):
                self._announce(event)

    def _time_admissions(self, decisions: tuple[Decision, ...], seconds: float) -> None:
        """The kubelet's histogram counts pods; one look's time is shared among those that it decided about."""
        judged = sum(decision.event in (Event.ADMITTED, Event.REFUSED) for decision in decisions)
        for _ in range(judged):
            self._tally.observe("kubelet_topology_manager_admission_duration_ms", 1000 * seconds / judged)

    def _record(self, before: State, decisions: tuple[Decision, ...]) -> None:
        """The decisions for later looks at them; where they cannot be written, all goes on."""
        keeper, log = self.keeper, self._decision_log
        if log is None or not decisions:
            return
        log.record(before, keeper.state, decisions, keeper.managers, keeper.node)
        if log.problem and self._said.get("decisions") != log.problem:
            say(_log, logging.WARNING, "decisions are not recorded", problem=log.problem)
        self._said["decisions"] = log.problem

    def _tell_repair(self) -> None:
        """Steps that were made by themselves, and those that an operator must confirm."""
        tell_steps(self.keeper.take_made())
        waiting = waiting_text(self.keeper.repair)
        if waiting:
            self._fault("repair", AgentError(waiting, hint=APPLY))
        else:
            self._well("repair")

    def _observe(self, listing: Listing) -> Observation:
        self._tell_problems(listing)
        self._listing = listing
        if listing.readable:
            self._manifests_read = time.monotonic()
        self._publisher.paused = self._mode.mode is not Mode.RUNNING
        self._awaited = False
        beside = self.sources.look()
        self.enforcement.tell_instances(beside.instances)
        wanted = [*beside.wanted, *(Wanted(each.pod, "manifests", each.fingerprint) for each in listing.pods)]
        wanted += self._unread(listing, wanted)
        silent = beside.silent if listing.readable else beside.silent | {"manifests"}
        alive: set[tuple[str, str]] = set()
        self._ending = ending(self.keeper.state, wanted, silent)
        for uid in self._ending:
            alive.update((uid, name) for name in self.enforcement.alive(uid))
            if uid in beside.running:
                alive.add((uid, ""))
        fresh = [str(uuid.uuid4()) for each in listing.pods if not each.pod.uid]
        here = {record.pod.namespaced_name for record in self.keeper.state.pods.values()}
        new = [each.pod for each in listing.pods if each.pod.namespaced_name not in here]
        hugepages = self.hugepages() if any(map(asks_for_hugepages, new)) else None
        return Observation(
            wanted,
            silent,
            frozenset(alive),
            fresh,
            self._unix_clock(),
            hugepages,
            sources=beside.names if self.manifests is None else beside.names | {"manifests"},
            cgroups_seen=self.enforcement.hierarchy is not None,
            paused=self._mode.mode is not Mode.RUNNING,
            devices=self._devices.seen(),
        )

    def _unread(self, listing: Listing, wanted: Sequence[Wanted]) -> list[Wanted]:
        """Pods that hold a place here and whose file this process has never been able to read: a file that was broken while
        the agent was down must not end them."""
        records = self.keeper.state.pods.values()
        held = {record.pod.namespaced_name for record in records}
        self._listed = {each.pod.namespaced_name for each in wanted} | (self._listed & held)
        if not listing.problems:
            return []
        return [
            Wanted(record.resize.desired or record.pod, record.source, record.fingerprint)
            for record in records
            if record.source == "manifests" and record.pod.namespaced_name not in self._listed
        ]

    def _enforce(self) -> None:
        try:
            done = self.enforcement.apply(self.keeper.state)
            narrow = self.enforcement.too_narrow(self.keeper.managers.machine.topology.all)
        except CgroupError as error:
            self._fault("enforcement", error)
            return
        for drift in done.drift:
            self._tally.add("pinfold_drift_repairs_total", writer=drift.writer)
            say(_log, logging.WARNING, "drift repaired", cgroup=drift.key, setting=drift.setting, writer=drift.writer)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            self._publisher.drifted(f"{when} {drift.key}: {drift.setting} had been changed by {drift.writer}")
        self._tell_not_kept()
        self._tally.observe("pinfold_isolation_gap_seconds", done.gap.seconds)
        self.mispinned = len(done.faults) + len(done.starved)
        if done.faults:
            key, fault = next(iter(done.faults.items()))
            self._fault("enforcement", fault, f"{len(done.faults)} cgroups are not as they should be: {key}: {fault}")
        elif done.starved:
            what = f"the shared pool is empty: {len(done.starved)} cgroups keep what they had, {done.starved[0]} first"
            self._fault("enforcement", AgentError(what, hint="end an exclusive pod, or reserve fewer CPUs"))
        elif narrow is not None:
            self._fault("enforcement", narrow)
        else:
            self._well("enforcement")
        try:
            self._tell_all(self.keeper.settle(done.actuation))
        except StateWriteError as error:
            self._unsaved(error)

    def _tell_not_kept(self) -> None:
        """What is in force and may be undone by others; the agent stays ready."""
        text = "; ".join(self.enforcement.problems())
        if text and text != self._said.get("units"):
            say(_log, logging.WARNING, "not kept by systemd", problem=text)
        self._said["units"] = text

    def _do_reload(self) -> None:
        """Apply the configuration as it is now. Raises AgentError, told already; the one before then stays in force."""
        self._service.reloading()
        try:
            if self._reconfigure is not None:
                self._reconfigure(self)
            self._well("configuration")
        except StateWriteError as error:
            self._unsaved(error)
            raise
        except AgentError as error:
            self._fault("configuration", error)
            raise
        finally:
            self._service.ready(self._summary())

    def _see_machine(self) -> None:
        """Go on with the machine as it is now; grants that lost something are marked, new CPUs are shared."""
        try:
            self.rediscover(self)
            self.enforcement.open()
            self._well("machine")
        except StateWriteError as error:
            self._unsaved(error)
        except AgentError as error:
            self._fault("machine", error)

    # --- telling ---

    def _problems(self) -> tuple[str, ...]:
        """What is wrong with the sources' objects, one sentence each."""
        return (*self._listing.problems, *self.sources.problems(), *self.enforcement.problems())

    def _tell_all(self, decisions: Iterable[Decision]) -> None:
        for decision in decisions:
            count_decision(self._tally, decision, self.keeper.managers, self.keeper.state.grants)
            self._resizes.count(decision, time.monotonic())
            self._tell(decision)

    def _tell(self, decision: Decision) -> None:
        pod = decision.pod
        entries = self.keeper.state.grants.cpu.entries.get(pod.uid, {})
        cpus = " ".join(f"{name}:{cpus}" for name, cpus in entries.items()) if decision.event is Event.ADMITTED else ""
        say(
            _log,
            logging.WARNING if decision.event in WARNINGS or decision.reason == HUGEPAGES_IN_USE else logging.INFO,
            str(decision.event),
            pod=pod.namespaced_name,
            uid=pod.uid,
            cpus=cpus,
            reason=decision.reason,
            message=decision.message,
            hint=decision.hint,
        )

    def _tell_problems(self, listing: Listing) -> None:
        text = "; ".join(listing.problems)
        if text != self._said.get("manifests", ""):
            for problem in listing.problems:
                say(_log, logging.ERROR, "manifest", problem=problem)
            self._said["manifests"] = text
        # a broken file is somebody's mistake, not the agent's: it is named, and the agent stays ready
        self._board.set("manifests", Check(listing.readable, text))

    def _unsaved(self, error: StateWriteError) -> None:
        self._tally.add("pinfold_state_write_failures_total")
        self._fault("state", error)

    def _fault(self, subject: str, error: AgentError, text: str | None = None) -> None:
        shown = text or str(error)
        reason = f"{shown} ({error.hint})" if error.hint else shown
        self._board.set(subject, Check(False, reason))
        if self._said.get(subject) != reason:
            say(_log, logging.ERROR, f"{subject} failed", error=shown, hint=error.hint)
            self._said[subject] = reason
            self._service.status(self._summary())

    def _well(self, subject: str) -> None:
        self._board.set(subject, Check(True))
        if self._said.pop(subject, None) is not None:
            say(_log, logging.INFO, f"{subject} is well again")
            self._service.status(self._summary())

    def _summary(self) -> str:
        state = self.keeper.state
        wrong = [f"{name}: {check.reason}" for name, check in self._board.ready().items() if not check.ok]
        ready = f"not ready ({printable('; '.join(wrong).replace(chr(10), '; '))})" if wrong else "ready"
        return f"{ready}: {len(state.pods)} pods, {len(self.keeper.refused)} refused, generation {state.generation}"
