"""Asks the API server to evict pods (policy/v1 Eviction), one at a time from a thread of its own.

The API server judges disruption budgets. A precondition on the UID makes it safe to ask again after an answer that was lost:
another pod of the same name is never meant. Source: Kubernetes API, policy/v1 Eviction, and `pods/eviction` of core/v1.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from agent.errors import AgentError
from agent.kube.http_access import Server, StatusError
from agent.kube.worker import Worker
from agent.model.pod import Pod

_MAX_ANSWER = 64 << 10
_RIGHTS = "give the account what examples/kubernetes/rbac-eviction.yaml has"


class Outcome(StrEnum):
    """What became of an eviction."""

    EVICTED = "evicted"  # the pod is being deleted
    GONE = "gone"  # there is no such pod any more
    REFUSED = "refused"  # not now: a disruption budget, or the server has too much to do
    FAILED = "failed"  # not known, or not allowed


@dataclass(frozen=True, slots=True)
class Evicted:
    """One answer. message, hint: why not. retry_after: seconds that the server asks to wait, None where it does not say."""

    pod: Pod
    outcome: Outcome
    message: str = ""
    hint: str = ""
    retry_after: float | None = None


class Evictor:
    """ended: told every answer, in the evictor's thread."""

    def __init__(self, server: Server, ended: Callable[[Evicted], None]) -> None:
        self._server = server
        self._ended = ended
        self._asked: queue.SimpleQueue[Pod | None] = queue.SimpleQueue()
        self.worker = Worker("evictions", self._run, self._wake)

    def evict(self, pod: Pod) -> None:
        """Have this pod evicted; returns at once."""
        self._asked.put(pod)

    def _wake(self) -> None:
        self._asked.put(None)
        self._server.abort()

    def _run(self) -> None:
        while not self.worker.stopping.is_set():
            pod = self._asked.get()
            if pod is None:
                continue
            answer = self._ask(pod)
            if not self.worker.stopping.is_set():
                self._ended(answer)

    def _ask(self, pod: Pod) -> Evicted:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/eviction"
        try:
            self._server.send("POST", path, _encode(pod), "application/json", limit=_MAX_ANSWER)
        except StatusError as error:
            return _said_no(pod, error)
        except AgentError as error:
            return Evicted(pod, Outcome.FAILED, str(error), error.hint)
        return Evicted(pod, Outcome.EVICTED)


def _said_no(pod: Pod, error: StatusError) -> Evicted:
    match error.status:
        case 404:
            return Evicted(pod, Outcome.GONE, str(error))
        case 409 | 429:  # 409: another pod has the name by now, or somebody else changes this one
            return Evicted(pod, Outcome.REFUSED, str(error), retry_after=error.retry_after)
        case 403:
            return Evicted(pod, Outcome.FAILED, str(error), _RIGHTS)
        case _:
            return Evicted(pod, Outcome.FAILED, str(error), error.hint, error.retry_after)


def _encode(pod: Pod) -> bytes:
    return json.dumps(
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
    ).encode()
