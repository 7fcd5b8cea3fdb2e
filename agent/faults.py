"""What is wrong with the agent, by subject: on the health board, in the service's status, and once in the log while it lasts.

Called by the daemon's loop alone.
"""

from __future__ import annotations

import logging

from agent.errors import AgentError
from agent.keeper import Keeper
from agent.log import printable, say
from agent.node.service_manager import ServiceManager
from agent.node.state_errors import StateWriteError
from agent.serve.health import Check, HealthBoard
from agent.serve.series import Tally

_log = logging.getLogger("pinfold")


class Faults:
    """service: whoever started the agent is told too."""

    def __init__(self, keeper: Keeper, board: HealthBoard, tally: Tally, service: ServiceManager) -> None:
        self._keeper = keeper
        self._board = board
        self._tally = tally
        self._service = service
        self._said: dict[str, str] = {}  # what was last logged about each subject

    def fault(self, subject: str, error: AgentError, text: str | None = None) -> None:
        """The agent is not ready because of `subject`. text: said instead of the error's own."""
        shown = text or str(error)
        reason = f"{shown} ({error.hint})" if error.hint else shown
        self._board.set(subject, Check(False, reason))
        if self._said.get(subject) != reason:
            say(_log, logging.ERROR, f"{subject} failed", error=shown, hint=error.hint)
            self._said[subject] = reason
            self._service.status(self.summary())

    def well(self, subject: str) -> None:
        """Nothing is wrong with `subject`, or nothing any more."""
        self._board.set(subject, Check(True))
        if self._said.pop(subject, None) is not None:
            say(_log, logging.INFO, f"{subject} is well again")
            self._service.status(self.summary())

    def note(self, subject: str, problem: str, event: str) -> None:
        """Something that the agent is ready in spite of; "" where it is no more."""
        if problem and self._said.get(subject) != problem:
            say(_log, logging.WARNING, event, problem=problem)
        self._said[subject] = problem

    def unsaved(self, error: StateWriteError) -> None:
        """A state could not be made durable, and so never was."""
        self._tally.add("pinfold_state_write_failures_total")
        self.fault("state", error)

    def defect(self, error: Exception) -> None:
        """A decision ended in a way that nobody foresaw; called where the error is handled."""
        text = f"{type(error).__name__}: {error}"
        if text not in self._said.get("decision", ""):
            _log.exception("a decision failed")
        hint = "what is held stays held; please report this with the output of `pinfold gather`"
        self.fault("decision", AgentError(f"internal error: {text}", hint=hint))

    def summary(self) -> str:
        """The agent in one line."""
        state = self._keeper.state
        wrong = self._board.problems()
        ready = f"not ready ({printable('; '.join(wrong).replace(chr(10), '; '))})" if wrong else "ready"
        return f"{ready}: {len(state.pods)} pods, {len(self._keeper.refused)} refused, generation {state.generation}"
