"""The daemon: one loop that looks, decides, saves, enforces and tells. Wiring only; each step is somebody else's.

Everything that changes something happens in the loop's own thread. Servers answer in theirs, from values that the loop
publishes whole. Order of one turn: look at the sources, decide, save (durable or nothing happened), write cgroups, publish.
"""

from __future__ import annotations

import logging
import queue
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

from agent.errors import AgentError, BadInputError
from agent.formats.explanation import Explanation, explain
from agent.formats.manifests import decode_manifests
from agent.formats.podresources import Answers, encode_answers
from agent.formats.status import encode_status
from agent.keeper import Keeper
from agent.kube.manifest_directory import Listing, ManifestDirectory
from agent.log import say
from agent.model.cpuset import CPUSet
from agent.model.pod import Pod
from agent.model.state import PodRecord
from agent.node.cgroup_errors import CgroupError
from agent.node.enforcer import Enforcer
from agent.node.exec_cgroups import ExecCgroups
from agent.node.service_manager import ServiceManager
from agent.node.state_store import StateWriteError
from agent.policy.cgroup_intents import Rules, has_slice, intent
from agent.policy.cgroup_names import ContainerCgroup, PodCgroup
from agent.policy.pins import pins
from agent.policy.plan import Decision, Event, Observation, Wanted, ending
from agent.policy.podresources_view import Shape, podresources_view
from agent.serve.decision_counts import count_decision
from agent.serve.exec_grant import FINISHED, PREPARE, ExecFinished, ExecGrant
from agent.serve.health import Check, HealthBoard
from agent.serve.series import Tally

_log = logging.getLogger("pinfold")


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


class UnknownPodError(BadInputError):
    """No pod of this name holds a place here."""

    hint = "see `pinfold status` for the pods that are here and those that were refused"


class Daemon:
    """One agent. exec_cgroups: None with backend `none`. publish: tells the PodResources server the answers of a change."""

    def __init__(
        self,
        keeper: Keeper,
        manifests: ManifestDirectory | None,
        enforcer: Enforcer,
        exec_cgroups: ExecCgroups | None,
        publish: Callable[[Answers], None],
        board: HealthBoard,
        tally: Tally,
        service: ServiceManager,
        *,
        shape: Shape = Shape.V1_37,
        periods: Periods | None = None,
        strict_pod_quota: bool = False,
        reload: Callable[[Daemon], None] | None = None,
    ) -> None:
        self.keeper = keeper
        self.manifests = manifests
        self.periods = periods or Periods()
        self.shape = shape
        self.strict_pod_quota = strict_pod_quota
        self._enforcer = enforcer
        self._exec = exec_cgroups
        self._publish = publish
        self._board = board
        self._tally = tally
        self._service = service
        self._reload = reload
        self._inbox: queue.SimpleQueue[_Request | str] = queue.SimpleQueue()
        self._listing = Listing()
        self._said: dict[str, str] = {}  # what was last logged about each subject, so that a lasting fault is said once
        self._published: object = None
        self._answers = Answers()

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

    # --- the loop ---

    def prepare(self) -> Answers:
        """The first turn, before anybody is served; what PodResources answers after it."""
        self._turn(enforce=True)
        self._publish_answers()
        return self._answers

    def run(self) -> None:
        """Serve until `stop`. All pins stay when it ends."""
        self._service.ready(self._summary())
        source_due, enforcement_due = self._due(self.periods.source), self._due(self.periods.enforcement)
        while True:
            now = time.monotonic()
            wait = max(min(source_due, enforcement_due) - now, 0.0)
            if self._service.watchdog_seconds is not None:
                wait = min(wait, self._service.watchdog_seconds / 3)
            message = self._next(wait)
            if message == "stop":
                self._service.stopping()
                return
            if message == "reload":
                self._do_reload()
            elif isinstance(message, _Request):
                self._serve(message)
            now = time.monotonic()
            if now >= source_due or now >= enforcement_due or message == "reload":
                self._turn(enforce=now >= enforcement_due)
                if now >= enforcement_due:
                    enforcement_due = self._due(self.periods.enforcement)
                source_due = self._due(self.periods.source)
            self._service.alive()

    def _due(self, period: float) -> float:
        return time.monotonic() + period

    def _next(self, wait: float) -> _Request | str | None:
        try:
            return self._inbox.get(timeout=wait)
        except queue.Empty:
            return None

    def _turn(self, *, enforce: bool = False) -> None:
        """Look at the sources, decide, and make it so."""
        before = self.keeper.state
        started = time.perf_counter()
        try:
            decisions = self.keeper.look(self._observe())
        except StateWriteError as error:
            self._tally.add("pinfold_state_write_failures_total")
            self._fault("state", error)
            return
        self._well("state")
        if self.keeper.state is not before:
            self._tally.observe("pinfold_decision_duration_seconds", time.perf_counter() - started)
        for decision in decisions:
            count_decision(self._tally, decision, self.keeper.managers, self.keeper.state.grants)
            self._tell(decision)
        if enforce or self.keeper.state is not before:
            self._enforce()
        if self.keeper.state is not before:
            self._service.status(self._summary())
        self._publish_answers()

    def _observe(self) -> Observation:
        listing = self.manifests.list() if self.manifests is not None else Listing()
        self._problems(listing)
        self._listing = listing
        wanted = [Wanted(each.pod, "manifests", each.fingerprint) for each in listing.pods]
        silent = frozenset() if listing.readable else frozenset({"manifests"})
        alive: set[tuple[str, str]] = set()
        if self._exec is not None:
            for uid in ending(self.keeper.state, wanted, silent):
                alive.update((uid, name) for name in self._exec.running(uid))
        unnamed = sum(1 for each in listing.pods if not each.pod.uid)
        fresh = [str(uuid.uuid4()) for _ in range(unnamed)]
        return Observation(wanted, silent, frozenset(alive), fresh, time.time())

    def _enforce(self) -> None:
        """Write what the cgroups lack. A fault of one cgroup is told and does not stop the rest."""
        state = self.keeper.state
        pods = {uid: record.pod for uid, record in state.pods.items()}
        rules = Rules(owned=frozenset(pods), strict_pod_quota=self.strict_pod_quota)
        try:
            seen = self._enforcer.observe()
            plan = pins(state.grants, pods, seen.groups, rules)
            applied = self._enforcer.apply(plan)
        except CgroupError as error:
            self._fault("enforcement", error)
            return
        for drift in seen.drift:
            self._tally.add("pinfold_drift_repairs_total", writer=drift.writer)
            say(_log, logging.WARNING, "drift repaired", cgroup=drift.key, setting=drift.setting, writer=drift.writer)
        faults = {**seen.unreadable, **applied.failed}
        if faults:
            key, fault = next(iter(faults.items()))
            self._fault("enforcement", fault, f"{len(faults)} cgroups are not as they should be, first {key}: {fault}")
        else:
            self._well("enforcement")
        self._sweep(pods)

    def _sweep(self, pods: Mapping[str, object]) -> None:
        """Remove the empty cgroups of pods that hold nothing any more."""
        if self._exec is None:
            return
        for key in self._exec.find():
            if isinstance(key, PodCgroup) and key.pod not in pods:
                try:
                    self._exec.remove(key)
                except CgroupError as error:
                    self._fault(f"cgroup of {key.pod}", error)

    def _publish_answers(self) -> None:
        state = self.keeper.state
        if self._published is state:
            return
        manager = self.keeper.managers.cpu
        allocatable = manager.allocatable if manager is not None else CPUSet()
        view = podresources_view([r.pod for r in state.pods.values()], state.grants, allocatable, self.shape)
        self._answers = encode_answers(view)
        self._publish(self._answers)
        self._published = state

    # --- control requests ---

    def _serve(self, request: _Request) -> None:
        try:
            request.answer.set_result(self._method(request.method, request.params))
        except AgentError as error:
            request.answer.set_exception(error)
        except Exception as error:  # noqa: BLE001 - the caller gets it, the loop goes on
            request.answer.set_exception(error)

    def _method(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        match method:
            case "status":
                problems = [f"{name}: {c.reason}" for name, c in self._board.ready().items() if not c.ok]
                return encode_status(
                    self.keeper.state,
                    self.keeper.managers,
                    self.keeper.refused,
                    [*problems, *self._listing.problems],
                    ready=self._board.is_ready(),
                )
            case "explain":
                return {"pods": [{"text": e.text, "json": e.encoded} for e in self._explain(params)]}
            case "reload":
                self._do_reload()
                return {}
            case "look":
                self._turn(enforce=True)
                return {}
            case _ if method == PREPARE:
                return self._prepare(str(params.get("pod", "")), str(params.get("container", ""))).encode()
            case _ if method == FINISHED:
                self._finished(ExecFinished.decode(params))
                return {}
        raise BadInputError(f"unknown method {method[:40]!r}", hint="agent and command are of different versions")

    def _explain(self, params: Mapping[str, Any]) -> list[Explanation]:
        """Of a manifest's pods, one after the other as if each before it had come; or of a pod that is known by name."""
        keeper = self.keeper
        if "manifest" not in params:
            pod = self._known(str(params.get("pod", "")))
            return [explain(keeper.managers, keeper.node, keeper.state, pod)]
        gate = keeper.managers.gates.pod_level_resources
        found = decode_manifests(str(params["manifest"]).encode(), str(params.get("file")), pod_level_resources=gate)
        if found.problems:
            raise found.problems[0]
        state, answers = keeper.state, []
        for each in found.pods:
            answers.append(explain(keeper.managers, keeper.node, state, each.pod))
            state = replace(state, grants=answers[-1].verdict.grants)
        return answers

    def _known(self, name: str) -> Pod:
        full = name if "/" in name else f"default/{name}"
        refused = self.keeper.refused.get(full)
        return refused.pod if refused is not None else self._find(name).pod

    def _prepare(self, name: str, container: str) -> ExecGrant:
        """Make the container's cgroup with its grant in force; earlier init containers end here."""
        if self._exec is None:
            raise BadInputError(
                "enforcement.backend is none: there are no cgroups to run in",
                hint="set enforcement.backend to cgroup and restart the agent",
            )
        record = self._find(name)
        pod = record.pod
        if container not in (each.name for each in pod.containers):
            known = ", ".join(each.name for each in pod.containers)
            raise UnknownPodError(f"pod {pod.namespaced_name} has no container {container!r}", hint=f"it has: {known}")
        self.keeper.started(pod.uid, container)
        state = self.keeper.state
        pods = {uid: each.pod for uid, each in state.pods.items()}
        rules = Rules(owned=frozenset(pods), strict_pod_quota=self.strict_pod_quota)
        key = ContainerCgroup(pod.uid, container)
        wanted = intent(key, state.grants, pods, rules).settings
        around = intent(PodCgroup(pod.uid), state.grants, pods, rules).settings
        self._exec.open()
        groups = self._exec.prepare(key, around, wanted)
        self._publish_answers()
        kind = next(each for each in pod.containers if each.name == container).kind
        say(_log, logging.INFO, "exec", pod=pod.namespaced_name, container=container, cpus=wanted.cpus)
        return ExecGrant(
            pod.uid,
            container,
            groups,
            cpus=str(wanted.cpus or ""),
            mems=str(CPUSet(wanted.mems or 0)),
            exclusive=any(has_slice(state.grants.cpu, pod, each) for each in pod.containers if each.name == container),
            must_report=kind == "init",
        )

    def _find(self, name: str) -> PodRecord:
        full = name if "/" in name else f"default/{name}"
        for record in self.keeper.state.pods.values():
            if record.pod.namespaced_name == full:
                return record
        refused = self.keeper.refused.get(full)
        if refused is not None:
            raise UnknownPodError(f"pod {full} was refused: {refused.reason}: {refused.message}", hint=refused.hint)
        raise UnknownPodError(f"no pod {full} is here")

    def _finished(self, ended: ExecFinished) -> None:
        how = f"exit code {ended.exit_code}" if ended.signal is None else f"signal {ended.signal}"
        record = self.keeper.state.pods.get(ended.uid)
        name = record.pod.namespaced_name if record is not None else ended.uid
        say(_log, logging.INFO, "exec finished", pod=name, container=ended.container, how=how)
        if self._exec is not None:
            self._exec.remove(ContainerCgroup(ended.uid, ended.container))

    # --- telling ---

    def _do_reload(self) -> None:
        self._service.reloading()
        if self._reload is not None:
            try:
                self._reload(self)
                self._well("configuration")
            except AgentError as error:
                self._fault("configuration", error)
        self._service.ready(self._summary())

    def _tell(self, decision: Decision) -> None:
        pod = decision.pod
        level = logging.WARNING if decision.event is Event.REFUSED else logging.INFO
        facts: dict[str, object] = {"pod": pod.namespaced_name, "uid": pod.uid}
        if decision.event is Event.ADMITTED:
            entries = self.keeper.state.grants.cpu.entries.get(pod.uid, {})
            facts["cpus"] = " ".join(f"{name}:{cpus}" for name, cpus in entries.items())
        say(
            _log,
            level,
            str(decision.event),
            **facts,
            reason=decision.reason,
            message=decision.message,
            hint=decision.hint,
        )

    def _problems(self, listing: Listing) -> None:
        text = "; ".join(listing.problems)
        if text != self._said.get("manifests", ""):
            for problem in listing.problems:
                say(_log, logging.ERROR, "manifest", problem=problem)
            self._said["manifests"] = text
        # a broken file is somebody's mistake, not the agent's: it is named, and the agent stays ready
        self._board.set("manifests", Check(listing.readable, text))

    def _fault(self, subject: str, error: AgentError, text: str | None = None) -> None:
        shown = text or str(error)
        reason = f"{shown} ({error.hint})" if error.hint else shown
        self._board.set(subject, Check(False, reason))
        if self._said.get(subject) != reason:
            say(_log, logging.ERROR, f"{subject} failed", error=shown, hint=error.hint)
            self._said[subject] = reason
            self._service.status(self._summary())

    def _well(self, subject: str) -> None:
        if self._said.pop(subject, None) is not None:
            say(_log, logging.INFO, f"{subject} is well again")
        self._board.set(subject, Check(True))

    def _summary(self) -> str:
        state = self.keeper.state
        ready = "ready" if self._board.is_ready() else "not ready"
        return f"{ready}: {len(state.pods)} pods, {len(self.keeper.refused)} refused, generation {state.generation}"


def group_path(text: str) -> PurePosixPath:
    """`enforcement.parent` as a path below the hierarchy. Raises BadInputError for one that leaves it."""
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise BadInputError(f"enforcement.parent {text!r} is not a relative path below the cgroup root")
    return path
