"""Evicts pods for which there has been no room for too long, where that is wanted: one after another, and everybody is told."""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack

from agent.config_schema import Config
from agent.kube.evictor import Evicted, Evictor, Outcome
from agent.kube.http_access import Server
from agent.log import say
from agent.model.pod import Pod
from agent.model.state import State
from agent.policy.eviction import EvictionRule, next_eviction, waiting_since
from agent.policy.observation import Observation
from agent.policy.pod_events import PodEvent
from agent.serve.series import Tally
from agent.source_config import apiserver_access

_log = logging.getLogger("pinfold")
_MOST_DOUBLINGS = 6  # of the interval, before one pod that could not be evicted is tried again


class Evictions:
    """`look` is called by the daemon's loop, `ended` by any thread. evict: has a pod evicted, and returns at once.

    announce: tells Kubernetes. clock: seconds, never back.
    """

    def __init__(
        self,
        rule: EvictionRule,
        evict: Callable[[Pod], None],
        tally: Tally,
        announce: Callable[[PodEvent], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rule = rule
        self._evict = evict
        self._tally = tally
        self._announce = announce
        self._clock = clock
        self._answers: queue.SimpleQueue[Evicted] = queue.SimpleQueue()
        self._since: Mapping[str, float] = {}
        self._failures: dict[str, int] = {}
        self._not_before: dict[str, float] = {}
        self._due = clock()
        self._asked: tuple[Pod, str] | None = None  # who is being evicted, and why

    def ended(self, answer: Evicted) -> None:
        """An eviction was answered."""
        self._answers.put(answer)

    def look(self, state: State, seen: Observation, *, ready: bool) -> None:
        """Take the answers that have come, and evict the next pod if it is time. ready: whether all is well with the agent."""
        now = self._clock()
        while not self._answers.empty():
            self._take(self._answers.get(), now)
        self._since = waiting_since(self._since, state, seen, ready=ready, now=now)
        for uid in self._failures.keys() - state.pods.keys():
            del self._failures[uid], self._not_before[uid]
        if self._asked is not None or now < self._due:
            return
        pod = next_eviction(state, seen, self._since, self._not_before, now, self._rule.after_seconds)
        mark = state.pods[pod.uid].unplaced if pod is not None else None
        if pod is None or mark is None:
            return
        seconds = now - self._since[pod.uid]
        self._asked = (pod, f"no room on this node for {seconds:.0f} s: {mark.message}")
        self._due = now + self._rule.interval_seconds
        say(_log, logging.WARNING, "evicting", pod=pod.namespaced_name, uid=pod.uid, message=self._asked[1])
        self._evict(pod)

    def _take(self, answer: Evicted, now: float) -> None:
        pod, why = self._asked if self._asked is not None else (answer.pod, "")
        self._asked = None
        self._tally.add("pinfold_evictions_total", outcome=str(answer.outcome))
        again = self._back_off(pod, answer, now)
        level = logging.INFO if answer.outcome in (Outcome.EVICTED, Outcome.GONE) else logging.WARNING
        say(
            _log,
            level,
            f"eviction {answer.outcome}",
            pod=pod.namespaced_name,
            uid=pod.uid,
            message=answer.message,
            hint=answer.hint,
            again_in_seconds=f"{again:.0f}",
        )
        if answer.outcome is Outcome.EVICTED:
            self._announce(PodEvent(pod, "EvictedUnplaced", why, warning=True))

    def _back_off(self, pod: Pod, answer: Evicted, now: float) -> float:
        """Seconds until this pod may be asked about again: one that was evicted and stays is not asked about at once either.

        What failed for a reason that is not the pod's holds everybody up.
        """
        failures = self._failures[pod.uid] = self._failures.get(pod.uid, 0) + 1
        doubled = self._rule.interval_seconds * float(1 << min(failures, _MOST_DOUBLINGS))
        wait = max(doubled, answer.retry_after or 0.0)
        self._not_before[pod.uid] = now + wait
        if answer.outcome is Outcome.FAILED:
            self._due = max(self._due, now + wait)
        return wait


def evictions_of(
    config: Config, tally: Tally, announce: Callable[[PodEvent], None], changed: Callable[[], None], stack: ExitStack
) -> Evictions | None:
    """Evictions as configured, their thread started; None where they are not wanted. changed: called after every answer.

    Raises ConfigError where no API server is known.
    """
    section = config.enforcement.eviction
    if section is None:
        return None

    def ended(answer: Evicted) -> None:
        evictions.ended(answer)
        changed()

    evictor = Evictor(Server(apiserver_access(config)), ended)
    evictions = Evictions(EvictionRule(section.afterSeconds, section.intervalSeconds), evictor.evict, tally, announce)
    evictor.worker.start()
    stack.callback(evictor.worker.stop)
    return evictions
