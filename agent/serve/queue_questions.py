"""What can be asked of an accountant, whatever it is asked by: one place computes, HTTP and gRPC encode.

Every answer is of one moment. Which replica may answer is asked first.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agent.errors import AgentError, BadInputError
from agent.model.pod import Pod
from agent.queues.accountant_resize import Unready
from agent.queues.accountant_view import AccountantView
from agent.queues.encode import encode_outcome, encode_proposal, encode_resize
from agent.queues.encode_accountant import (
    encode_fair_shares,
    encode_nodes,
    encode_queue,
    encode_reservations,
    encode_view,
)
from agent.queues.reclaim_search import propose
from agent.queues.simulation import simulate
from agent.queues.snapshot import unallocated
from agent.queues.text import fair_share_lines, reclaim_lines, resize_lines, simulation_lines
from agent.queues.text_accountant import accountant_lines
from agent.queues.what_if import decode_reclaim_question, decode_resize_question, decode_simulation_question
from agent.serve.accountant import AccountantService

Standby = Callable[[], str]  # why another replica answers, or none yet; "" where this one does

PATIENCE_SECONDS = 5.0  # for a search to end before another begins


class StandbyError(AgentError):
    """This replica does not answer."""

    hint = "ask the Service, or the replica that holds the lease"


class NotInSyncError(AgentError):
    """Nothing is known yet that an answer could be about."""

    hint = "try again in a moment; /readyz?verbose says what is waited for"


class UnknownNameError(BadInputError):
    """What is asked about does not exist."""


class BusyError(AgentError):
    """Too much is asked at once."""

    hint = "try again"


@dataclass(frozen=True, slots=True)
class Answer:
    """encoded: the answer as JSON has it. lines: the same for people, None where there is no such form."""

    encoded: Callable[[], dict[str, Any]]
    lines: Callable[[], Iterable[str]] | None = None


class QueueQuestions:
    """standby: asked before every answer. Questions are decoded JSON documents, as `agent.queues.what_if` reads them.

    Every method raises StandbyError and NotInSyncError, and those with questions QuestionError too.
    """

    def __init__(self, service: AccountantService, standby: Standby = lambda: "") -> None:
        self._service = service
        self._standby = standby
        self._searching = threading.Lock()  # a search can take long: one at a time

    def answers(self) -> None:
        """Raises StandbyError where this replica does not."""
        if why := self._standby():
            raise StandbyError(f"this replica does not answer: {why}")

    def view(self) -> AccountantView:
        """Everything at this moment."""
        self.answers()
        view = self._service.view()
        if not view.capture.has_objects:
            raise NotInSyncError(Unready.NO_OBJECTS.value)
        return view

    def queues(self) -> Answer:
        """Every queue."""
        view = self.view()
        return Answer(lambda: encode_view(view), lambda: accountant_lines(view))

    def queue(self, name: str) -> Answer:
        """One queue with its path to the root. Raises UnknownNameError."""
        view = self.view()
        if name not in view.tree.queues:
            raise UnknownNameError(
                f"no such queue: {name or '(none)'}", hint="ask for all of them: /v1/queues, ListQueues"
            )
        return Answer(
            lambda: encode_queue(view, name, self._service.jobs()),
            lambda: fair_share_lines(view.tree, view.shares, view.fair, name),
        )

    def fair_shares(self) -> Answer:
        """Fair shares alone."""
        view = self.view()
        return Answer(lambda: encode_fair_shares(view))

    def reservations(self) -> Answer:
        """Growth that was admitted and that no report shows yet."""
        view = self.view()
        return Answer(lambda: encode_reservations(view))

    def nodes(self) -> Answer:
        """Which nodes are accounted for; also before anything else is known."""
        self.answers()
        view = self._service.view()
        return Answer(lambda: encode_nodes(view))

    def check_resize(self, question: object) -> Answer:
        """May this pod be resized. Reserves nothing."""
        self.view()
        old, new = decode_resize_question(question, self._find)
        verdict = self._service.resize(old, new, reserve=False)
        warning = None if verdict.unready is None else verdict.unready.value

        def lines() -> Iterator[str]:
            yield from resize_lines(verdict.answer)
            if warning is not None:
                yield f"warning: {warning}"

        return Answer(lambda: {**encode_resize(verdict.answer), "unready": warning}, lines)

    def _find(self, name: str) -> Pod | None:
        namespace, _, pod = name.rpartition("/")
        return self._service.pod(namespace or "default", pod)

    def reclaim(self, document: object) -> Answer:
        """Who would be reclaimed for a job. Raises UnknownNameError, BusyError."""
        question = decode_reclaim_question(document, self._service.options.queues)
        with self._one_search():
            view, jobs = self.view(), self._service.jobs()
            job = question.made or next((each for each in jobs if each.name == question.job), None)
            if job is None:
                raise UnknownNameError(f"no pod of {question.job} waits or runs")
            if job.queue not in view.tree.queues:
                raise UnknownNameError(f"queue {job.queue or '(none)'} does not exist")
            free = unallocated(view.shares, view.total)
            found = propose(job, jobs, view.shares, view.total, free, question.options)
        return Answer(lambda: encode_proposal(job.name, found), lambda: reclaim_lines(job.name, found))

    def simulate(self, document: object) -> Answer:
        """The scheduler's decisions run on, from what runs and waits now. Raises BusyError."""
        rounds, options = decode_simulation_question(document, self._service.options.queues)
        with self._one_search():
            view = self.view()
            outcome = simulate(view.tree, self._service.jobs(), view.total, options, rounds)
        counts = Counter(back.kind.value for event in outcome.events for back in event.take_backs)
        return Answer(lambda: encode_outcome(outcome, counts), lambda: simulation_lines(view.tree, outcome, counts))

    @contextmanager
    def _one_search(self) -> Iterator[None]:
        if not self._searching.acquire(timeout=PATIENCE_SECONDS):
            raise BusyError("too many such questions at once")
        try:
            yield
        finally:
            self._searching.release()
