"""Tells people what was decided and what became of it: the log, the counters, the decision log, Events.

What is wrong with the agent is `agent.faults`; what servers answer is `agent.publisher`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from agent.enforcement import Enforced
from agent.errors import AgentError
from agent.faults import Faults
from agent.keeper import Keeper
from agent.log import say
from agent.model.state import State
from agent.node.decision_log import DecisionLog
from agent.policy.free_hugepages import HUGEPAGES_IN_USE
from agent.policy.observation import Decision, Event
from agent.policy.pod_events import PodEvent, PodEvents
from agent.serve.decision_counts import count_decision
from agent.serve.resize_counts import ResizeCounts
from agent.serve.series import Tally
from agent.startup import APPLY, tell_steps, waiting_text

_log = logging.getLogger("pinfold")
WARNINGS = (Event.REFUSED, Event.UNPLACED, Event.RESIZE_DEFERRED, Event.RESIZE_INFEASIBLE, Event.RESIZE_ERROR)


class Telling:
    """Called by the daemon's loop alone. announce: tells Kubernetes of a pod. decision_log: None where none is kept."""

    def __init__(
        self,
        keeper: Keeper,
        tally: Tally,
        faults: Faults,
        decision_log: DecisionLog | None,
        announce: Callable[[PodEvent], None],
    ) -> None:
        self._keeper = keeper
        self._tally = tally
        self._faults = faults
        self._decision_log = decision_log
        self._announce = announce
        self._resizes = ResizeCounts(tally)
        self._announced = keeper.state
        self._events = PodEvents(keeper.state)

    def looked(self, before: State, decisions: tuple[Decision, ...], seconds: float) -> None:
        """What one look has decided. before: the state that it began with. seconds: what it took."""
        if self._keeper.state is not before:
            self._tally.observe("pinfold_decision_duration_seconds", seconds)
        self._time_admissions(decisions, seconds)
        self.decided(decisions)
        self._record(before, decisions)
        self._announce_marks()

    def decided(self, decisions: Iterable[Decision]) -> None:
        """Count decisions, and log each."""
        for decision in decisions:
            count_decision(self._tally, decision, self._keeper.managers, self._keeper.state.grants)
            self._resizes.count(decision, time.monotonic())
            self._log_decision(decision)

    def repair(self) -> None:
        """Steps that were made by themselves, and those that an operator must confirm."""
        tell_steps(self._keeper.take_made())
        waiting = waiting_text(self._keeper.repair)
        if waiting:
            self._faults.fault("repair", AgentError(waiting, hint=APPLY))
        else:
            self._faults.well("repair")

    def drifted(self, done: Enforced) -> tuple[str, ...]:
        """What others had changed and was put right: logged and counted, and as a line each for the page."""
        lines = []
        for drift in done.drift:
            self._tally.add("pinfold_drift_repairs_total", writer=drift.writer)
            facts = {"cgroup": drift.key, "setting": drift.setting, "writer": drift.writer}
            say(_log, logging.WARNING, "drift repaired", **facts)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            lines.append(f"{when} {drift.key}: {drift.setting} had been changed by {drift.writer}")
        return tuple(lines)

    def enforced(self, done: Enforced, narrow: AgentError | None, not_kept: Iterable[str]) -> None:
        """Whether the cgroups are as they should be.

        narrow: why containers cannot get all CPUs of the machine. not_kept: what is in force and may be undone by others; the
        agent stays ready.
        """
        self._faults.note("units", "; ".join(not_kept), "not kept by systemd")
        self._tally.observe("pinfold_isolation_gap_seconds", done.gap_seconds)
        if done.faults:
            key, fault = next(iter(done.faults.items()))
            text = f"{len(done.faults)} cgroups are not as they should be: {key}: {fault}"
            self._faults.fault("enforcement", fault, text)
        elif done.starved:
            what = f"the shared pool is empty: {len(done.starved)} cgroups keep what they had, {done.starved[0]} first"
            self._faults.fault("enforcement", AgentError(what, hint="end an exclusive pod, or reserve fewer CPUs"))
        elif narrow is not None:
            self._faults.fault("enforcement", narrow)
        else:
            self._faults.well("enforcement")

    def _time_admissions(self, decisions: tuple[Decision, ...], seconds: float) -> None:
        """The kubelet's histogram counts pods; one look's time is shared among those that it decided about."""
        judged = sum(decision.event in (Event.ADMITTED, Event.REFUSED) for decision in decisions)
        for _ in range(judged):
            self._tally.observe("kubelet_topology_manager_admission_duration_ms", 1000 * seconds / judged)

    def _record(self, before: State, decisions: tuple[Decision, ...]) -> None:
        """The decisions for later looks at them; where they cannot be written, all goes on."""
        keeper, log = self._keeper, self._decision_log
        if log is None or not decisions:
            return
        log.record(before, keeper.state, decisions, keeper.managers, keeper.node)
        self._faults.note("decisions", log.problem, "decisions are not recorded")

    def _announce_marks(self) -> None:
        """Pods that run with less than before, or with all again, since the last time."""
        before, self._announced = self._announced, self._keeper.state
        if before is not self._keeper.state:
            for event in self._events.look(self._keeper.state):
                self._announce(event)

    def _log_decision(self, decision: Decision) -> None:
        pod = decision.pod
        entries = self._keeper.state.grants.cpu.entries.get(pod.uid, {})
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
