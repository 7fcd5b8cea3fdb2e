"""Whether this one of several accountants answers: it holds the Lease, and has taken over what its predecessor had let grow."""

from __future__ import annotations

import threading
import time

from agent.kube.lease import LeaseCandidate
from agent.serve.accountant import AccountantService
from agent.serve.health import Check

# what was admitted last is still on its way through the API server to where the next holder sees it
LINGER_SECONDS = 1.0


class Replica:
    """lease: None where there are no others. linger_seconds: between the end of answering and giving the Lease back."""

    def __init__(
        self, service: AccountantService, lease: LeaseCandidate | None, linger_seconds: float = LINGER_SECONDS
    ) -> None:
        self._service = service
        self._lease = lease
        self._linger_seconds = linger_seconds
        self._taking = threading.Lock()
        self._term = 0  # the last one whose ledger was rebuilt

    def start(self) -> None:
        """Stand for election."""
        if self._lease is not None:
            self._lease.start(self._take_over)

    def stop(self) -> None:
        """Give the Lease back; nothing is answered any more by now."""
        if self._lease is not None:
            if self._lease.term():
                time.sleep(self._linger_seconds)
            self._lease.stop()

    def standby(self) -> str:
        """Why this replica does not answer; "" where it does. To be asked after a decision too, which may have taken long."""
        if self._lease is None:
            return ""
        if self._lease.term() not in (0, self._term):
            return "it has just got the lease, and rebuilds the reservation ledger"
        return self._lease.reason()

    def check(self) -> Check:
        """For readiness."""
        why = self.standby()
        return Check(not why, why or ("" if self._lease is None else f"lease {self._lease.name} is held"))

    def _take_over(self) -> None:
        """A term has begun. Before anything is answered in it, growth that others admitted is reserved here too."""
        with self._taking:
            if self._lease is not None and (term := self._lease.term()):
                self._service.take_over()
                self._term = term
