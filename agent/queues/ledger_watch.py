"""An accountant's ledger beside what pods are charged for: reservations move and end by it, and a ledger that was lost is rebuilt
from it. The ledger itself, and how one resize is reserved, is `agent.queues.ledger`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from agent.queues.accounting import Accounting
from agent.queues.ledger import Ledger, LedgerOptions, Reservation, expire, follow, rebuild, settle
from agent.queues.observed_pods import ObservedPods
from agent.queues.resize_growth import NOTHING

# longer than an API server takes from a webhook's answer to the stored pod (its own time-out is 34 s)
CATCH_UP_SECONDS = 60.0


class LedgerWatch:
    """limits: None keeps no reservations. accounting: what pods are charged for; observed: what the API server's pods ask for."""

    def __init__(self, limits: LedgerOptions | None, accounting: Accounting, observed: ObservedPods) -> None:
        self.ledger = Ledger()
        # a ledger that was not found is wanted, and the API server's pods are not known yet
        self.waits_for_pods = False
        self._limits = limits
        self._accounting = accounting
        self._observed = observed
        self._lost_until = 0.0  # reservations may be missing until all that could be have ended
        self._rebuilt = False
        self._catching_up_until = 0.0

    def is_lost(self, now: float) -> bool:
        """Whether there may be reservations that the ledger lacks."""
        return now < self._lost_until

    # --- in step with the charges ---

    def settle(self, uids: Iterable[str]) -> None:
        """End reservations whose growth is seen, or whose pods are gone: neither reported nor known to the API server."""
        concerned = [uid for uid in uids if uid in self.ledger.reservations] if self.ledger.reservations else []
        if concerned:
            charges = {uid: self._accounting.charge_of(uid) for uid in concerned}
            occupied = {
                uid: NOTHING if each is None else each.allocated.cpu_memory()
                for uid, each in charges.items()
                if each is not None or uid in self._observed.charges
            }
            self.ledger = settle(self.ledger, occupied, [uid for uid in concerned if uid not in occupied])
            self.follow(concerned)

    def follow(self, uids: Iterable[str]) -> None:
        """Move reservations of pods that are charged to another queue now, or are preemptible now or not any more."""
        charges = {uid: self._accounting.charge_of(uid) for uid in uids if uid in self.ledger.reservations}
        charged = {uid: (each.queue, each.preemptible) for uid, each in charges.items() if each is not None}
        self.ledger = follow(self.ledger, charged)

    def expire(self, now: float) -> None:
        """End reservations whose time has come."""
        self.ledger = expire(self.ledger, now)

    # --- a ledger that was lost ---

    def begin_empty(self) -> None:
        """A first start: nothing was ever reserved, so without pods to ask there is no reason to wait for any."""
        self._lost_until = 0.0

    def rebuild(self, now: float, *, pods_known: bool) -> bool:
        """Reserve all that pods of the API server ask for beyond what is charged; see `Accountant.rebuild_ledger`."""
        limits = self._limits
        if limits is None:
            return True
        self.waits_for_pods = not pods_known
        if self.waits_for_pods:
            self._lost_until = now + limits.ttl_seconds
            return False
        self._lost_until = 0.0
        self._rebuilt = True
        self._catching_up_until = now + CATCH_UP_SECONDS
        self._reserve_unseen(self._observed.charges, now)
        return True

    def catch_up(self, uids: Collection[str], now: float, *, first: bool = False) -> None:
        """After a rebuild: pods may ask for more than was known then. first: these are of a node's first report, however late."""
        if now < self._catching_up_until or (first and self._rebuilt):
            self._reserve_unseen(uids, now)

    def _reserve_unseen(self, uids: Iterable[str], now: float) -> None:
        """Reserve what these pods of the API server occupy by their spec beyond what they are charged for."""
        if self._limits is None:
            return
        found: dict[str, Reservation] = {}
        for uid in uids:
            asked, charged = self._observed.charges.get(uid), self._accounting.charge_of(uid)
            if asked is None or asked == charged:
                continue
            seen = NOTHING if charged is None else charged.allocated.cpu_memory()
            found[uid] = Reservation(
                asked.pod,
                asked.queue,
                asked.preemptible,
                asked.allocated.cpu_memory(),
                seen,
                now + self._limits.ttl_seconds,
            )
        self.ledger = rebuild(self.ledger, found)
